"""The extents that a program leaves open, expressions of sympy, as extents of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add, floordiv, mod, mul
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.torch.internals import pytree
from nnef_grad.graph.extents import Dimension, symbol
from nnef_grad.graph.ir import Shape
from nnef_grad.graph.names import NameSupply


class Symbols:
    """The symbols of a program, and their extents.

    Attributes:
        extents: the extent of each symbol of sympy.
    """

    def __init__(self, extents: Mapping[Any, Dimension]) -> None:
        self.extents = dict(extents)

    def extent(self, size: Any) -> Dimension:
        """The extent for a size of PyTorch: an integer, or a polynomial of symbols."""
        if isinstance(size, int):
            return size
        if not isinstance(size, torch.SymInt):
            return int(size)
        dimension: Dimension = self._of(size.node.expr)
        return dimension

    def shape(self, tensor: Any) -> Shape:
        """The shape of a tensor of PyTorch."""
        sizes: Sequence[Any] = tensor.shape
        return tuple(self.extent(size) for size in sizes)  # type: ignore[misc]

    def learn(self, sizes: Sequence[Any], shape: Shape) -> None:
        """Takes extents that depend on data from a shape: with one, the data were known."""
        for size, extent in zip(sizes, shape, strict=False):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if isinstance(expression, sympy.Symbol) and str(expression).startswith("u"):
                self.extents.setdefault(expression, extent)

    def _of(self, expression: Any) -> Any:
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Symbol):
            if expression in self.extents:
                return self.extents[expression]
            if str(expression).startswith("u"):
                message = "an extent depends on input values"
                raise UnsupportedError(message)
            return self.extents.setdefault(expression, symbol(str(expression)))
        parts = [self._of(part) for part in expression.args]
        if function := _FUNCTIONS.get(type(expression).__name__):
            return function(*parts)
        raise UnsupportedError(f"the extent {expression} has no polynomial of symbols")


def _power(base: Any, exponent: Any) -> Any:
    return reduce(mul, [base] * int(exponent), 1)


# Functions of sympy, and of torch, by their names.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *parts: reduce(add, parts),
    "Mul": lambda *parts: reduce(mul, parts),
    "Pow": _power,
    **dict.fromkeys(("FloorDiv", "CleanDiv"), floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), mod),
}


# ---- Which axes are open ----


def of_batch(module: nn.Module, given: Any) -> Any:
    """The first axis of each tensor as one that is open: it is given another number."""
    first = torch.export.Dim("batch")

    def axes(x: Any) -> Any:
        return {0: first} if isinstance(x, torch.Tensor) and x.ndim else None

    if isinstance(given, torch.Tensor):
        given = (given,)
    return pytree.tree_map(
        axes, dict(given) if isinstance(given, Mapping) else tuple(given)
    )


def symbols_of(
    program: ExportedProgram, dynamic_shapes: Any, batch: int | None
) -> Symbols:
    """The symbols of a program, called after their `Dim`, or after an input and axis."""
    extents: dict[Any, Dimension] = {}
    supply = NameSupply()
    for node in program.graph.nodes:
        fake = node.meta.get("val") if node.op == "placeholder" else None
        for axis, size in enumerate(getattr(fake, "shape", ())):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if getattr(expression, "is_Symbol", False) and expression not in extents:
                name = _name_of_axis(program, node.name, axis, dynamic_shapes)
                own = symbol(supply.fresh(name))
                extents[expression] = own if batch is None else batch
    return Symbols(extents)


def _name_of_axis(
    program: ExportedProgram, name: str, axis: int, dynamic_shapes: Any
) -> str:
    """The name of the extent of an axis."""
    names = [spec.arg.name for spec in program.graph_signature.input_specs
             if spec.kind is InputKind.USER_INPUT]  # fmt: skip
    leaves = pytree.tree_leaves(dynamic_shapes, is_leaf=lambda x: _is_axes(x))
    if name in names and len(leaves) == len(names):
        axes = leaves[names.index(name)]
        dim = axes.get(axis) if isinstance(axes, dict) else axes[axis] if axes else None
        name_of_dim = getattr(dim, "__name__", None)
        if name_of_dim is not None:
            return str(name_of_dim)
    return f"{name.upper()}_{axis}"


def _is_axes(x: Any) -> bool:
    """Whether this says which axes of one tensor are open."""
    if x is None:
        return True
    items = (
        x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    )
    keys = x if isinstance(x, dict) else [0]
    is_flat = all(not isinstance(item, (dict, list, tuple, str)) for item in items)
    return bool(items) and is_flat and all(isinstance(key, int) for key in keys)
