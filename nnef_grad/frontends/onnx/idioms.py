"""Chains of nodes that exporters write for an operation that older versions of ONNX lack,
and NNEF has. Its derivative is shorter than that of the chain, and exact.

    x * 0.5 * (1 + Erf(x / sqrt(2)))   ->   Gelu(x)
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from math import isclose, sqrt
from typing import Any

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
    ends = dict(_Chains(nodes, constants).gelus())
    return [
        make_node("Gelu", [ends[name]], [name], name=node.name)
        if (name := node.output[0]) in ends
        else node
        for node in nodes
    ]


# A factor of 0.5, or a division by 2: no tensor has an empty name.
_HALF = ""


class _Chains:
    """Which node made a tensor, and which tensors are constants."""

    def __init__(self, nodes: Sequence[Any], constants: Mapping[str, Array]) -> None:
        self._nodes = nodes
        self._constants = constants
        self._producers = {name: node for node in nodes for name in node.output}

    def gelus(self) -> Iterator[tuple[str, str]]:
        """The results of chains, and their operands."""
        products = [node for node in self._nodes if node.op_type in ("Mul", "Div")]
        for x, total in self._sums():
            wanted = sorted([x, total, _HALF])
            for node in products:
                (name,) = node.output
                if sorted(self._factors(name, wanted, 2)) == wanted:
                    yield name, x

    def _sums(self) -> Iterator[tuple[str, str]]:
        """Each x whose 1 + Erf(x / sqrt(2)) there is, and this."""
        for node in self._nodes:
            erf = self._producers.get(self._beside(node, "Add", 1.0))
            if erf is not None and erf.op_type == "Erf":
                x = self._divided(self._producers.get(erf.input[0]), sqrt(2.0))
                if x is not None:
                    yield x, node.output[0]

    def _factors(self, name: str, known: Container[str], depth: int) -> list[str]:
        """The factors of a tensor that is a product, or a product of products."""
        node = self._producers.get(name)
        if name in known or node is None or not depth:
            return [name]
        whole = self._divided(node, 2.0)
        if whole is not None:
            return [*self._factors(whole, known, depth - 1), _HALF]
        factors = node.input if node.op_type == "Mul" else []
        parts = [f for n in factors for f in self._factors(n, known, depth - 1)]
        return parts or [name]

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
