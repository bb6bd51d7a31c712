"""What Python decides by the values of inputs: on each way the results and gradients are those of
torch, and what is the same on all ways is there once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_gradients import compare
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import nnef_grad
from nnef_grad.interop import from_torch


class Module(nn.Module):  # type: ignore[misc]
    """A function of an input, with layers, a parameter and a buffer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.gate = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("total", torch.zeros(4))
        self.noise = nn.Dropout()

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def nested(net: Any, x: Tensor) -> Tensor:
    if x[0, 0] > 0:
        x = net.first(x) if x[0, 1] > 0 else net.second(x)
    elif x[0, 2] > 0:
        x = x.sin()
    if x.mean() > 0 and x[1, 2] > 0:
        x = x + x[0]
    return x


def singular(net: Any, x: Tensor) -> Tensor:
    """What is not a number on the other way has no gradient."""
    s = x.sum()
    return s.sqrt() * x.exp() if s > 0 else (-s).log() * x


def until(net: Any, x: Tensor) -> Tensor:
    for _ in range(4):
        if x.norm() < 3:
            break
        x = net.first(x) * 0.5
    return x


def flagged(net: Any, x: Tensor) -> Tensor:
    """The same answer each time."""
    is_large = x.norm() > 2
    y = net.first(x) if is_large else x
    return net.second(y) * 2 if is_large else y.exp()


def written(net: Any, x: Tensor) -> Tensor:
    """What was asked for is written into."""
    s = x.sum() * 1
    y = x.sin() if s > 0 else x.cos()
    s.neg_()
    return y + 1 if s > 0 else y * s


def moved(net: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        net.total += x.detach().sum(0)
        return x * 2
    return x * net.total.exp()


def kept(net: Any, x: Tensor) -> Tensor:
    """A buffer that changes decides."""
    y = x.sin() if net.total.sum() > 1 else net.first(x)
    net.total += x.detach().abs().sum(0)
    return y


def put(net: Any, x: Tensor) -> Tensor:
    y, m = torch.zeros_like(x), x.abs() < 1
    y[~m] = x[~m] * net.gate
    if m.any():
        y[m] = (1 - x[m] ** 2).sqrt()
    return net.first(y)


def put_if_any_is(net: Any, x: Tensor) -> Tensor:
    y = net.first(x)
    for m in (y > 0.5, y < -0.5):
        if m.sum() == 0:
            continue
        y = y.index_put((m,), y[m].abs().log())
    return y


def summed(net: Any, x: Tensor) -> Tensor:
    m = x > 1
    loss = net.first(x).pow(2).mean()
    if m.any():
        loss = loss + net.second(x)[m].sum()
    return loss


def valid(x: Tensor) -> bool:
    return not bool((x.abs() > 50).any())


def checked(net: Any, x: Tensor) -> Tensor:
    if not valid(x):
        raise ValueError("too large")
    return net.first(x)


def otherwise_raised(net: Any, x: Tensor) -> Tensor:
    if x.abs().max() < 60:
        return net.first(x)
    raise ValueError("too large")


def present(net: Any, x: Tensor) -> Any:
    """A mean over what is there: a number of Python, where nothing is."""
    losses = [net.first(row).sum() for row in x if row.sum() > 0]
    return sum(losses) / len(losses) if losses else 0


def squeezed(net: Any, x: Tensor) -> Tensor:
    """Rows that a mask takes are no axis of extent 1, though the mask has a single element."""
    y = x.sum().reshape(1).sin()
    valid = y > 0
    if valid.any():
        y[valid] = (y[valid] * net.gate).squeeze()
    return y.squeeze()


def read_as_integer(net: Any, x: Tensor) -> Tensor:
    """An integer that may be negative, unlike a number of rows."""
    k = x.round().long().sum().item()
    if k > -3:
        return x.sin() if k >= 0 else x * k
    return net.first(x) if k <= -8 else x.cos()


def counted(net: Any, x: Tensor) -> Tensor:
    k = (x > 0).sum().item()
    if k == 0:
        return x * 2
    return net.first(x) if k != 3 and k < 7 else x * k


RIGHT: dict[str, Callable[..., Any]] = {
    "a way out": lambda net, x: net.first(x) if x.mean() > 0 else x.exp(),
    "nested": nested,
    "singular": singular,
    "a loop that ends": until,
    "asked twice": flagged,
    "asked, and written": written,
    "a parameter": lambda net, x: net.first(x) if net.gate > 0 else x,
    "the parameter itself": lambda net, x: net.first(x) if net.gate else x,
    "its sign": lambda net, x: x * net.gate if (net.gate * x.sum()) > 0 else x / net.gate,
    "of several": lambda net, x: (x.sin(), x * 2) if x.sum() > 0 else (net.first(x), x * 2),
    "equal ones": lambda net, x: x if torch.equal(x, x.abs()) else net.first(x),
    "a mask": put,
    "masks": put_if_any_is,
    "a sum": summed,
    "a number, or a tensor": present,
    "a squeezed row": squeezed,
    "an integer that is read": read_as_integer,
    "a count that is read": counted,
    "by where": lambda net, x: torch.where(x < 0, net.first(x), x) if (x < 0).any() else x,
    "a check": checked,
    "a check by both": otherwise_raised,
    "of a block": lambda net, x: checkpoint(nested, net, x, use_reentrant=False),
}  # fmt: skip
# How many operations a graph has of a name, where ways are the same.
ONCE = {"a mask": ("sqrt", 1), "masks": ("log", 2), "a sum": ("select", 1), "by where": ("select", 1)}  # fmt: skip


def inputs(count: int = 10) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = [0.01, 1.0, 4.0]
    return [
        torch.randn(2, 4, generator=generator) * sizes[i % 3] + (i % 2) * 3 - 1.5
        for i in range(count)
    ]


@pytest.mark.filterwarnings("ignore:nnef-grad")
@pytest.mark.parametrize("name", RIGHT)
def test_each_way(name: str) -> None:
    compare(Module(RIGHT[name]).eval(), *((x,) for x in inputs()))


@pytest.mark.parametrize("name", ONCE)
def test_what_changes_nothing_is_no_choice(name: str) -> None:
    graph = from_torch(Module(RIGHT[name]).eval(), inputs(1)).graph
    operation, count = ONCE[name]
    names = [op.name for op in graph.operations]
    assert names.count(operation) == count
    assert "any_reduce" not in names


def test_an_input_decides() -> None:
    class Decided(nn.Module):  # type: ignore[misc]
        def forward(self, x: Tensor, is_on: Tensor) -> Tensor:
            return x.sin() if is_on else x * 2

    given = ((x, torch.tensor(on)) for x in inputs(2) for on in (True, False))
    compare(Decided(), *given)


@pytest.mark.parametrize("function", [moved, kept])
def test_buffers(function: Callable[..., Any]) -> None:
    compare(Module(function).train(), *((x,) for x in inputs()))
    module, model = Module(function), from_torch(Module(function), inputs(1))
    state = {model.buffers["total"]: module.total.numpy().copy()}
    data = dict(model.data)
    for x in inputs():
        wanted = module(x)
        found = nnef_grad.evaluate(model.graph, {"x": x.numpy()}, {**data, **state})
        torch.testing.assert_close(torch.tensor(found["output"]).float(), wanted)
        new = found[model.updates["total"]]
        torch.testing.assert_close(torch.tensor(new).float(), module.total)
        state = {model.buffers["total"]: new}


def warmed_up(net: Any, x: Tensor) -> Tensor:
    net.steps += 1
    return net.first(x) if net.steps > 2 else x * net.steps


def begun(net: Any, x: Tensor) -> Tensor:
    if not net.is_begun:
        net.is_begun.fill_(True)
        return x.sin()
    return net.first(x)


def counted_apart(net: Any, x: Tensor) -> Tensor:
    """One way changes what another one reads."""
    if x.sum() > 0:
        net.steps += 1
        return x * 2
    return net.first(x) * net.steps


@pytest.mark.parametrize("function", [warmed_up, begun, counted_apart])
def test_counters_and_flags(function: Callable[..., Any]) -> None:
    """From one call to the next, they are what they are in torch."""
    module = Module(function).train()
    module.register_buffer("steps", torch.tensor(0))
    module.register_buffer("is_begun", torch.tensor(False))
    model = from_torch(module, inputs(1))
    data = dict(model.data)
    for x in inputs():
        wanted = module(x)
        found = nnef_grad.evaluate(model.graph, {"x": x.numpy()}, data)
        torch.testing.assert_close(torch.tensor(found["output"]).float(), wanted)
        for name, output in model.updates.items():
            assert float(found[output]) == float(getattr(module, name))
            label = model.graph.labels[model.buffers[name]]
            data[label] = found[output].reshape(data[label].shape)


def test_ways_share_what_they_draw() -> None:
    """A graph is on one way at a time."""

    def noisy(net: Any, x: Tensor) -> Tensor:
        x = net.noise(x)
        if x.sum() > 0:
            return net.noise(net.first(x))
        return net.noise(x) + torch.randn_like(x)

    model = from_torch(Module(noisy).train(), inputs(1))
    kinds = [drawn.distribution for drawn in model.random.values()]
    assert sorted(kinds) == ["kept", "kept", "normal"]


def test_an_open_batch() -> None:
    model = from_torch(
        Module(put).eval(), inputs(1), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    module, x = Module(put), torch.cat(inputs(3))
    (found,) = nnef_grad.evaluate(model.graph, {"x": x.numpy()}, model.data).values()
    torch.testing.assert_close(torch.tensor(found).float(), module(x))


def test_checks_are_told() -> None:
    for name in ("a check", "a check by both"):
        with pytest.warns(UserWarning, match="is not checked in the graph"):
            from_torch(Module(RIGHT[name]).eval(), inputs(1))


def falls(net: Any, x: Tensor) -> Tensor:
    while x.norm() > 1:
        x = x * 0.5
    return x


def many(net: Any, x: Tensor) -> Tensor:
    for row in x.flatten():
        if row > 0:
            x = x.sin() + row
    return x


def raises_always(net: Any, x: Tensor) -> Tensor:
    raise ValueError("no" if x.sum() > 0 else "never")


def wrapped(net: Any, x: Tensor) -> Tensor:
    """An error of torch that the network passes on is none of its own."""
    if x.sum() > 0:
        try:
            return x * torch.as_tensor(x.detach().numpy())
        except RuntimeError as error:
            raise ValueError("no arrays") from error
    return x


def left_out(net: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        y = x * 2
    return y


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a loop without an end": (falls, "decide by torch"),
    "too many": (many, "more than 32 ways"),
    "other shapes": (lambda net, x: x if x.sum() > 0 else x[:1], "on one way, and scalar .1, 4. on another"),
    "other types": (lambda net, x: x > 0 if x.sum() > 0 else x, "logical .2, 4. on one way"),
    "other results": (lambda net, x: (x,) if x.sum() > 0 else (x, x * 2), r"depends on the values of inputs; at .*test_choices.py:\d+"),
    "an error": (raises_always, "ValueError|never|no"),
    "a maximum that is written into": (lambda net, x: x * max((x > 0).sum(), 1).add_(1), "written into"),
    "arrays": (lambda net, x: x if x.sum() > 0 else x * float(x.detach().numpy().max()), "leave PyTorch"),
    "an error passed on": (wrapped, "cannot export"),
    "what is not there": (left_out, "cannot export"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        from_torch(Module(function).eval(), inputs(1))
