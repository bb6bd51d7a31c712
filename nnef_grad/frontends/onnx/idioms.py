"""Chains of nodes that exporters write for an operation that older versions of ONNX lack,
and NNEF has. Its derivative is shorter than that of the chain, and exact.

    x * 0.5 * (1 + Erf(x / sqrt(2)))   ->   Gelu(x)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isclose, sqrt
from typing import Any, NamedTuple

from onnx.helper import make_node

from nnef_grad.frontends.values import Array

# The constants may be of half precision.
_PRECISION = 1e-3


def with_idioms(nodes: Sequence[Any], constants: Mapping[str, Array]) -> list[Any]:
    """The nodes, with one in place of the last of each chain.

    Args:
        nodes: each after those that it reads.
        constants: the values of tensors that are constants, by name.
    """
    chains = _Chains(nodes, constants)
    ends = {end.output[0]: x for end, x in chains.gelus()}
    return [
        make_node("Gelu", [ends[name]], [name], name=node.name)
        if (name := node.output[0]) in ends
        else node
        for node in nodes
    ]


class _Gelu(NamedTuple):
    """The last node of a chain, and the name of its operand."""

    end: Any
    x: str


class _Chains:
    """Which node made a tensor, and which ones read it."""

    def __init__(self, nodes: Sequence[Any], constants: Mapping[str, Array]) -> None:
        self._nodes = nodes
        self._constants = constants
        self._producers = {name: node for node in nodes for name in node.output}
        self._readers: dict[str, list[Any]] = defaultdict(list)
        for node in nodes:
            for name in dict.fromkeys(node.input):
                self._readers[name].append(node)

    def gelus(self) -> Iterable[_Gelu]:
        for erf in self._nodes:
            if erf.op_type != "Erf":
                continue
            x = self._divided(self._producers.get(erf.input[0]), sqrt(2.0))
            if x is not None:
                yield from self._above(erf, x)

    def _above(self, erf: Any, x: str) -> Iterable[_Gelu]:
        """The chains from an error function of x / sqrt(2) on."""
        for node in self._readers[erf.output[0]]:
            if self._beside(node, "Add", 1.0) == erf.output[0]:
                yield from self._products(node, x, frozenset({"x", "half"}))

    def _products(self, node: Any, x: str, missing: frozenset[str]) -> Iterable[_Gelu]:
        """The last products, of which the result of a node has all factors but some."""
        if not missing:
            yield _Gelu(node, x)
            return
        for product in self._readers[node.output[0]]:
            factors = self._factors(product, node.output[0], x)
            if factors and factors <= missing:
                yield from self._products(product, x, missing - factors)

    def _factors(self, product: Any, name: str, x: str) -> frozenset[str]:
        """Which factors a product has beside the named one; none if it has others."""
        if self._divided(product, 2.0) == name:
            return frozenset({"half"})
        if product.op_type != "Mul" or name not in product.input:
            return frozenset()
        (other,) = [n for n in product.input if n != name] or [name]
        if other == x:
            return frozenset({"x"})
        if self._divided(self._producers.get(other), 2.0) == x:
            return frozenset({"x", "half"})
        return frozenset()

    def _divided(self, node: Any, divisor: float) -> str | None:
        """The operand that a node divides by a number, or multiplies by its inverse."""
        if node is None:
            return None
        if node.op_type == "Div":
            is_divisor = self._is_number(node.input[1], divisor)
            return str(node.input[0]) if is_divisor else None
        return self._beside(node, "Mul", 1.0 / divisor)

    def _beside(self, node: Any, kind: str, number: float) -> str | None:
        """The other operand of a node of a kind that has a number for one of them."""
        if node.op_type != kind:
            return None
        one, other = map(str, node.input)
        if self._is_number(other, number):
            return one
        return other if self._is_number(one, number) else None

    def _is_number(self, name: str, number: float) -> bool:
        """An array that has axes may be a parameter, and is never looked at."""
        value = self._constants.get(name)
        if value is None or value.ndim > 0:
            return False
        return isclose(float(value), number, rel_tol=_PRECISION)
