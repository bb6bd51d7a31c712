"""What comes in and goes out: arguments, results, parameters, precisions, wrappers."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from support.torch_modules import Case, Cases, of

Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Output:
    logits: Any
    hidden: Any


pytree.register_dataclass(Output)


class Unnamed:
    """Results without names, as those of diffusers."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


pytree.register_pytree_node(
    Unnamed, lambda x: (x.items, None), lambda x, _: Unnamed([*x])
)


def linear() -> nn.Module:
    return nn.Linear(3, 2)


class Keyword(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, *, scale: float = 1.0, shift: Any = None) -> Any:
        return x * scale if shift is None else x * scale + shift


class Anything(nn.Module):  # type: ignore[misc]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return sum(args) * kwargs["by"]


class Tied(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        return self.b(torch.tanh(self.a(x))) @ self.a.weight.t()


class Numbers(nn.Module):  # type: ignore[misc]
    """Parameters without axes, one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = (
            nn.Parameter(torch.tensor(2.0)),
            nn.Parameter(torch.tensor(0.5)),
        )
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        return x * self.scale + self.shift


class Buffers(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(3.0) + 1)
        self.register_buffer("lost", torch.arange(3.0) * 2, persistent=False)
        self.register_buffer("places", torch.arange(3))
        self.plain = torch.ones(3) * 0.5

    def forward(self, x: Any) -> Any:
        return x * self.kept + self.lost * x[:, self.places] + self.plain


class Lists(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.eye(3) * (i + 1)) for i in range(2)]
        )
        self.named = nn.ParameterDict({"bias": nn.Parameter(torch.ones(3))})
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.by_name = nn.ModuleDict({"out": nn.Linear(3, 1)})

    def forward(self, x: Any) -> Any:
        for weight, layer in zip(self.weights, self.layers, strict=True):
            x = torch.tanh(layer(x @ weight))
        return self.by_name["out"](x + self.named["bias"])


class Twice(nn.Module):  # type: ignore[misc]
    """A layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.LayerNorm(3)

    def forward(self, x: Any) -> Any:
        return self.norm(self.layer(self.norm(torch.relu(self.layer(x)))))


class Dotted(nn.Module):  # type: ignore[misc]
    """Names that differ in case alone, and words of NNEF."""

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.Graph = nn.Linear(3, 3), nn.Linear(3, 3)
        self.variable = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.Graph(self.graph(x)) * self.variable


class Batched(nn.Module):  # type: ignore[misc]
    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {
            "sum": batch["a"] + batch["b"][0],
            "product": batch["a"] * batch["b"][1],
        }


def attended(x: Any) -> Any:
    weights = x.softmax(-1)
    return weights @ x, {"weights": weights, "more": [x.sum(), (x.mean(),)]}


CASES: Cases = {
    "keyword-only arguments": Case(Keyword, lambda r: {"x": r(3), "scale": 2.0, "shift": r(3)}),
    "defaults": Case(Keyword, lambda r: [r(3)]),
    "anything": Case(Anything, lambda r: {"by": r(3)}),
    "nested arguments": Case(Batched, lambda r: [{"a": r(3), "b": (r(3), r(3))}]),
    "a dictionary": of(lambda x: {"double": x * 2, "square": x * x}, lambda r: [r(3)]),
    "an ordered dictionary": of(lambda x: OrderedDict(out=x.sin()), lambda r: [r(3)]),
    "a named tuple": of(lambda x: Pair(x * 2, x.exp()), lambda r: [r(3)]),
    "a data class": of(lambda x: Output(x * 2, x.exp()), lambda r: [r(3)]),
    "a class without names": of(lambda x: Unnamed([x * 2, x.exp()]), lambda r: [r(3)]),
    "a class without names, of one": of(lambda x: Unnamed([x.exp()]), lambda r: [r(3)]),
    "a class without names, nested": of(lambda x: {"a": x.sin(), "b": Unnamed([x * 2, (x, x.exp())])}, lambda r: [r(3)]),
    "nested results": of(attended, lambda r: [r(3, 3)]),
    "a number among the results": of(lambda x: (x * 2, 3, None, x.sum()), lambda r: [r(3)]),
    "an input as a result": of(lambda x: (x, x * 2), lambda r: [r(3)]),
    "a result twice": of(lambda x: (x * 2,) * 2, lambda r: [r(3)]),
    "a list": of(lambda x: [x.relu(), x.tanh()], lambda r: [r(3)]),
    "an integer result": of(lambda x: (x * 2, x.argmax(-1)), lambda r: [r(3, 4)]),
    "a truth value": of(lambda x: (x * 2, x > 0), lambda r: [r(3)]),
    "an unused input": of(lambda x, y: x * 2, lambda r: [r(3), r(3)]),
    "a constant result": of(lambda x: (x * 2, torch.arange(3.0)), lambda r: [r(3)]),
    "tied parameters": Case(Tied, lambda r: [r(2, 3)]),
    "parameters without axes": Case(Numbers, lambda r: [r(2, 3)]),
    "buffers": Case(Buffers, lambda r: [r(2, 3)]),
    "lists of parameters": Case(Lists, lambda r: [r(2, 3)]),
    "a layer twice": Case(Twice, lambda r: [r(2, 3)]),
    "names": Case(Dotted, lambda r: [r(2, 3)]),
    "double precision": Case(lambda: linear().double(), lambda r: [r(2, 3).double()]),
    "half precision": Case(lambda: linear().half(), lambda r: [r(2, 3).half()], tolerance=1e-3),
    "bfloat16": Case(lambda: linear().bfloat16(), lambda r: [r(2, 3).bfloat16()], tolerance=1e-2),
    "lazy": Case(lambda: nn.LazyLinear(2), lambda r: [r(2, 3)], refused="have no shape yet: call the module once"),
    "a script": Case(lambda: torch.jit.script(linear()), lambda r: [r(2, 3)], refused="ScriptModule"),
    "a wrong shape": Case(linear, lambda r: [r(2, 4)], refused="torch cannot export the module"),
    "too many arguments": Case(linear, lambda r: [r(2, 3), r(2, 3)], refused="do not fit 'forward'"),
    "no tensor": Case(linear, lambda r: [3], refused="there is no tensor among the example inputs"),
    "no result": of(lambda x: None, lambda r: [r(3)], refused="returns no tensor"),
    "wide inputs": of(lambda x: x.sum((1, 2, 3, 4)), lambda r: [r(2, 2, 1, 2, 2)]),
    "a number as input": of(lambda x: x * x, lambda r: [r()]),
}  # fmt: skip
