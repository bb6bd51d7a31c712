"""Values that Python looks at: those of buffers and of constants are known, checks of others
are passed, and what changes is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from support.torch_modules import Case, Cases

EDGES = torch.tensor([[0, 1, 2, 2, 4, 3], [1, 0, 2, 3, 0, 3]])


class Holding(nn.Module):  # type: ignore[misc]
    """A function of buffers and an input, with a layer."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(3, 3)
        for name, x in buffers.items():
            self.register_buffer(name, x)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def convolved(self: Any, x: Any) -> Any:
    """A convolution on a graph: loops are left out, and one is added to each node."""
    count = x.shape[0]
    edges = self.edges[:, self.edges[0] != self.edges[1]]
    edges = torch.cat([edges, torch.arange(count).expand(2, -1)], 1)
    if edges.numel() > 0 and int(edges.max()) >= count:
        raise ValueError("there is no such node")
    degrees = torch.zeros(count).scatter_add_(0, edges[1], torch.ones(edges.shape[1]))
    weights = degrees.pow(-0.5)[edges].prod(0)
    rows = self.layer(x)[edges[0]] * weights[:, None]
    return torch.zeros(count, 3).index_add(0, edges[1], rows)


def stepped(self: Any, x: Any) -> Any:
    """A solver whose steps have known lengths."""
    times = torch.linspace(0, 1, 4)
    for step in times.diff():
        x = x + float(step) * self.layer(x).tanh()
    return x


def twice_in_data(self: Any, x: Any) -> Any:
    """What is written into a copy of what a buffer has made is not in the buffer."""
    y = self.layer(x) + self.mean.data.mul_(2)
    y = y.clone().add_(1)
    return y + self.mean.data.add_(3)


def warmed_up(self: Any, x: Any) -> Any:
    self.steps += 1
    return self.layer(x) * self.steps if self.steps > 3 else x


def begun(self: Any, x: Any) -> Any:
    """The first call looks at its input."""
    if not self.is_begun:
        self.scale.copy_(x.detach().abs().mean(0))
        self.is_begun.fill_(True)
    return self.layer(x) * self.scale


def apart(self: Any, x: Any) -> Any:
    """One way changes what another one reads."""
    if x.sum() > 0:
        self.steps += 1
        return self.layer(x)
    return self.layer(x) * self.steps


def redrawn(self: Any, x: Any) -> Any:
    """What one buffer decides changes another one."""
    if self.steps >= 3:
        self.table.copy_(torch.linalg.qr(x.detach().T @ x.detach() + torch.eye(3))[0])
        self.steps.zero_()
    else:
        self.steps += 1
    return self.layer(x @ self.table) if self.table.sum() > 0 else x


def checked(self: Any, x: Any) -> Any:
    if not torch.isfinite(x).all():
        raise ValueError("no numbers")
    if x.max() > 9 or (self.layer.training and x.min() < -9):
        raise ValueError("out of range")
    assert x.min().item() > -9, "out of range"
    return self.layer(x)


def written_then_asked(self: Any, x: Any) -> Any:
    """Known numbers, among which one is written that is not known."""
    numbers = torch.zeros(3)
    numbers[0] = x.sum()
    return x if numbers[0] > 0 else -x


def counted(self: Any, x: Any) -> Any:
    self.steps += 1
    return x * 2 if self.steps > 3 else self.layer(x)


def asked_first(self: Any, x: Any) -> Any:
    """A buffer that is written after its value has decided."""
    y = x * 2 if self.steps > 3 else self.layer(x)
    self.steps += 1
    return y


def copied(self: Any, x: Any) -> Any:
    """A copy of what is written later, by numbers that are not known."""
    before = self.steps.clone()
    self.steps.copy_(x.detach().sum())
    return x * 2 if before > 3 else self.layer(x)


def normalized(self: Any, x: Any) -> Any:
    y = x if self.mean.sum() > 3 else self.layer(x)
    return nn.functional.batch_norm(y, self.mean, self.variance, training=True)


def viewed(self: Any, x: Any) -> Any:
    """A buffer that is written through a view of it."""
    self.steps.view(-1)[0] += 1
    return x * 2 if self.steps > 3 else self.layer(x)


def both_answers(self: Any, x: Any) -> Any:
    """A check that raises an error if one part is true, or the other one is false."""
    if x.max() > 9 or not torch.isfinite(x).all():
        raise ValueError
    return self.layer(x)


def choice(self: Any, x: Any) -> Any:
    if x.sum() > -99:
        return self.layer(x)
    raise ValueError


def grown(self: Any, x: Any) -> Any:
    """A state that begins anew where it has another shape."""
    if self.state.shape != x.shape:
        self.state = torch.zeros_like(x)
    self.state = self.state * 0.9 + self.layer(x)
    return self.state.sin()


class Shared(nn.Module):  # type: ignore[misc]
    """Two layers with one table, in which one of them writes."""

    def __init__(self) -> None:
        super().__init__()
        table = Holding(lambda self, x: self.layer(x) + self.mean, mean=torch.ones(3))
        self.first, self.second = nn.ModuleList([table]), nn.ModuleList([table])

    def forward(self, x: Any) -> Any:
        y = self.first[0](x).sin()
        with torch.no_grad():
            self.second[0].mean.mul_(0.5)
        return self.second[0](y) + x.clone().mul_(2)


class Empty(nn.Module):  # type: ignore[misc]
    """Buffers that are None come before one that is assigned."""

    total: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", None)
        self.register_buffer("scale", None)
        self.register_buffer("total", torch.ones(3))
        self.register_buffer("shift", torch.full([3], 0.25))

    def forward(self, x: Any) -> Any:
        self.total = self.total + x.detach().sum(0)
        return x * self.total + self.shift


def looped(self: Any, x: Any) -> Any:
    return torch.while_loop(lambda y: y.sum() < 9, lambda y: (y.exp(),), (x,))[0]


def holds(function: Any, **buffers: torch.Tensor) -> Callable[[], nn.Module]:
    """What makes a module that holds some buffers."""
    return lambda: Holding(function, **{n: x.clone() for n, x in buffers.items()})


MASK = torch.tensor([1.0, 0.0, 2.0])
CASES: Cases = {
    "empty buffers": Case(Empty, lambda r: [r(2, 3)]),
    "edges of a graph": Case(holds(convolved, edges=EDGES), lambda r: [r(5, 3)]),
    "a mask": Case(holds(lambda self, x: self.layer(x)[:, self.mask > 0] * self.mask.sum(), mask=MASK), lambda r: [r(2, 3)]),
    "places of a mask": Case(holds(lambda self, x: x[:, self.mask.nonzero()[:, 0]].view(2, 2), mask=MASK), lambda r: [r(2, 3)]),
    "a branch": Case(holds(lambda self, x: self.layer(x) if self.mask.sum() > 2 else x, mask=MASK), lambda r: [r(2, 3)]),
    "a loop": Case(holds(lambda self, x: [x := self.layer(x) for _ in range(int(self.mask.max()))][-1], mask=MASK), lambda r: [r(2, 3)]),
    "steps": Case(holds(stepped), lambda r: [r(2, 3)]),
    "checks": Case(holds(checked), lambda r: [r(2, 3)]),
    "what is written": Case(holds(written_then_asked), lambda r: [r(3)]),
    "data of a buffer, twice": Case(holds(twice_in_data, mean=torch.ones(3)), lambda r: [r(2, 3)]),
    "a counter that decides": Case(holds(warmed_up, steps=torch.tensor(1)), lambda r: [r(2, 3)]),
    "a counter, later": Case(holds(warmed_up, steps=torch.tensor(7)), lambda r: [r(2, 3)]),
    "a flag": Case(holds(begun, is_begun=torch.tensor(False), scale=torch.ones(3)), lambda r: [r(2, 3)]),
    "a flag that is set": Case(holds(begun, is_begun=torch.tensor(True), scale=torch.ones(3) * 2), lambda r: [r(2, 3)]),
    "a counter on two ways": Case(holds(apart, steps=torch.tensor(2)), lambda r: [r(2, 3)]),
    "a counter begun again": Case(holds(redrawn, steps=torch.tensor(2), table=torch.eye(3)), lambda r: [r(2, 3)]),
    "a counter": Case(holds(counted, steps=torch.tensor(0.0)), lambda r: [r(2, 3)]),
    "a counter, asked first": Case(holds(asked_first, steps=torch.tensor(0.0)), lambda r: [r(2, 3)]),
    "a copy of a counter": Case(holds(copied, steps=torch.tensor(0.0)), lambda r: [r(2, 3)]),
    "running statistics": Case(holds(normalized, mean=torch.zeros(3), variance=torch.ones(3)), lambda r: [r(4, 3)]),
    "a counter by a view": Case(holds(viewed, steps=torch.tensor(0.0)), lambda r: [r(2, 3)]),
    "a check with both answers": Case(holds(both_answers), lambda r: [r(2, 3)]),
    "a buffer of another shape": Case(holds(grown, state=torch.zeros(0)), lambda r: [r(2, 3)]),
    "layers with one table": Case(Shared, lambda r: [r(2, 3)]),
    "a while loop": Case(holds(looped), lambda r: [r(3)], refused="loop a known number of times"),
    "a choice": Case(holds(choice), lambda r: [r(2, 3)]),
}  # fmt: skip
