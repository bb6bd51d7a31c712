"""Chains of nodes that exporters write for an operation that older versions of ONNX lack,
and NNEF has. Its derivative is shorter than that of the chain, and exact.

    x * 0.5 * (1 + Erf(x / sqrt(2)))   ->   Gelu(x)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import isclose, nan, sqrt
from typing import Any

from onnx.helper import make_node

from nnef_grad.base.arrays import Array

# A number, times tensors by name, in order.
_Product = tuple[float, list[str]]
_PRODUCTS = ("Mul", "Div")


def with_idioms(nodes: Sequence[Any], constants: Mapping[str, Array]) -> list[Any]:
    """The nodes, with one in place of the last of each chain. What has axes may be a
    parameter, and is never looked at.
    """
    ends = dict(_Chains(nodes, constants).gelus())
    return [
        make_node("Gelu", [ends[name]], [name], name=node.name)
        if (name := node.output[0]) in ends
        else node
        for node in nodes
    ]


class _Chains:
    """Which node made a tensor, which products are made of it, and which tensors are
    constants.
    """

    def __init__(self, nodes: Sequence[Any], constants: Mapping[str, Array]) -> None:
        self._nodes = nodes
        numbers = ((n, x) for n, x in constants.items() if x.dtype.kind in "fiuV")
        self._numbers = {name: float(value) for name, value in numbers}
        self._producers = {name: node for node in nodes for name in node.output}
        self._products = defaultdict[str, list[str]](list)
        for node in nodes:
            if node.op_type in _PRODUCTS:
                for name in node.input:
                    self._products[name] += node.output

    def gelus(self) -> Iterator[tuple[str, str]]:
        """The results of chains, and their operands."""
        for x, total in self._sums():
            inner = self._products[total]
            outer = [name for part in inner for name in self._products[part]]
            for name in (*inner, *outer):
                if _is_near(self._product(name, (x, total), 2), 0.5, x, total):
                    yield name, x

    def _sums(self) -> Iterator[tuple[str, str]]:
        """Each x whose 1 + Erf(x / sqrt(2)) there is, and this."""
        for node in self._nodes:
            pairs = (node.input, node.input[::-1]) if node.op_type == "Add" else ()
            for name, one in pairs:
                erf = self._producers.get(name)
                if erf is None or erf.op_type != "Erf" or self._numbers.get(one) != 1:
                    continue
                scaled = self._product(erf.input[0], (), 1)
                if _is_near(scaled, sqrt(0.5), *scaled[1][:1]):
                    yield scaled[1][0], node.output[0]

    def _product(self, name: str, whole: Sequence[str], depth: int) -> _Product:
        """A tensor as a product, or a product of products; some tensors stay whole."""
        node = self._producers.get(name)
        if name in self._numbers:
            return self._numbers[name], []
        is_whole = name in whole or not depth
        if is_whole or node is None or node.op_type not in _PRODUCTS:
            return 1.0, [name]
        parts = (self._product(n, whole, depth - 1) for n in node.input)
        (a, these), (b, those) = parts
        if node.op_type == "Mul":
            return a * b, sorted([*these, *those])
        return (1.0, [name]) if those else (a / b if b else nan, these)


def _is_near(product: _Product, number: float, *names: str) -> bool:
    """Whether a product is one of these; the constants may be of half precision."""
    is_near = isclose(product[0], number, rel_tol=1e-3)
    return bool(names) and is_near and product[1] == sorted(names)
