"""The extents that a program leaves open, expressions of sympy, as extents of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add, mod, mul
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.expansions.resizing import scaled
from nnef_grad.frontends.torch.internals import pytree
from nnef_grad.graph.atoms import LONGEST_AXIS
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Shape
from nnef_grad.graph.learning import reaches, symbol_of
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.quotients import exact_quotient, maximum, minimum


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
        return tuple(self.extent(size) for size in sizes)

    def learn(self, sizes: Sequence[Any], shape: Shape) -> None:
        """Takes extents that depend on data from a shape: with one, the data were known."""
        for size, extent in zip(sizes, shape, strict=False):
            if is_number_of_data(size):
                self.extents.setdefault(size.node.expr, extent)

    def follow_from_inputs(self, sizes: Sequence[Any]) -> bool:
        """Whether sizes of PyTorch follow from the shapes of inputs, and not from data."""
        expressions = (getattr(getattr(n, "node", None), "expr", None) for n in sizes)
        symbols = (x.free_symbols for x in expressions if x is not None)
        return not any(is_of_data(symbol) for own in symbols for symbol in own)

    def _of(self, expression: Any) -> Any:
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Symbol):
            if expression in self.extents:
                return self.extents[expression]
            if is_of_data(expression):
                message = "an extent depends on input values"
                raise UnsupportedError(message)
            return self.extents.setdefault(expression, symbol_of(str(expression)))
        if type(expression).__name__ in ("FloorToInt", "TruncToInt"):
            factor, number = expression.args[0].as_coeff_Mul()
            if type(number).__name__ == "ToFloat":
                return scaled(self._of(number.args[0]), float(factor))
        parts = [self._of(part) for part in expression.args]
        if function := _FUNCTIONS.get(type(expression).__name__):
            return function(*parts)
        raise UnsupportedError(f"the extent {expression} has no polynomial of symbols")


def is_number_of_data(size: Any) -> bool:
    """Whether a size of PyTorch is a symbol for what depends on the values of tensors."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    return isinstance(expression, sympy.Symbol) and is_of_data(expression)


def is_of_data(symbol: Any) -> bool:
    """Whether PyTorch makes this symbol for what depends on the values of tensors."""
    return str(symbol).startswith("u")


def _power(base: Any, exponent: Any) -> Any:
    return reduce(mul, [base] * int(exponent), 1)


def _quotient(whole: Any, by: Any) -> Any:
    """A quotient, rounded down: there is one if the divisor is positive."""
    if not reaches(by, 1):
        raise UnsupportedError(f"{whole} is divided by {by}, which is not positive")
    return whole // by


# Functions of sympy, and of torch, by their names.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *parts: reduce(add, parts),
    "Mul": lambda *parts: reduce(mul, parts),
    "Pow": _power,
    "FloorDiv": _quotient,
    "CleanDiv": exact_quotient,
    "CeilDiv": lambda whole, by: -(-whole // by),
    "Max": maximum,
    "Min": minimum,
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


def program_symbols(
    program: ExportedProgram, dynamic_shapes: Any, batch: int | None
) -> Symbols:
    """The symbols of a program, called after their `Dim`, or after an input and axis."""
    extents: dict[Any, Dimension] = {}
    supply = NameSupply()
    axes = [*_open_axes(program)]
    for place, expression in axes:
        if expression.is_Symbol and expression not in extents:
            dim = _dim_of(program, *place, dynamic_shapes)
            name = getattr(dim, "__name__", None) or "{}_{}".format(*place).upper()
            own = symbol_of(supply.fresh(str(name)), *_range(program, expression))
            extents[expression] = own if batch is None else batch
    # The symbol of an axis such as 2 * Dim, of which no axis is alone.
    for place, expression in axes:
        root: Any = getattr(_dim_of(program, *place, dynamic_shapes), "root", None)
        for symbol in expression.free_symbols - {*extents} if root else ():
            name = supply.fresh(root.__name__)
            extents[symbol] = symbol_of(name, *_range(program, symbol))
    return Symbols(extents)


def _open_axes(program: ExportedProgram) -> Iterator[tuple[tuple[str, int], Any]]:
    """The open axes of the inputs: the name of the input, the axis, and its extent."""
    for node in program.graph.nodes:
        fake = node.meta.get("val") if node.op == "placeholder" else None
        for axis, size in enumerate(getattr(fake, "shape", ())):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if getattr(expression, "free_symbols", None):
                yield (node.name, axis), expression


def _range(program: ExportedProgram, expression: Any) -> tuple[int, int]:
    """The least and the greatest number of a symbol that the guards of a program let pass.
    An export takes each open extent for 2 or more, and programs are right for 1.
    """
    found = program.range_constraints.get(expression)
    lower: Any = getattr(found, "lower", None)
    upper: Any = getattr(found, "upper", None)
    is_guard = getattr(lower, "is_Integer", False) and lower > 2
    is_bounded = getattr(upper, "is_Integer", False) and upper < LONGEST_AXIS
    least = int(lower) if is_guard else 1
    return least, int(upper) if is_bounded else LONGEST_AXIS - 1


def _dim_of(program: ExportedProgram, name: str, axis: int, dynamic_shapes: Any) -> Any:
    """The entry of `dynamic_shapes` for an axis."""
    names = [spec.arg.name for spec in program.graph_signature.input_specs
             if spec.kind is InputKind.USER_INPUT]  # fmt: skip
    leaves = pytree.tree_leaves(dynamic_shapes, is_leaf=lambda x: _is_axes(x))
    if name not in names or len(leaves) != len(names):
        return None
    axes = leaves[names.index(name)]
    return axes.get(axis) if isinstance(axes, dict) else axes[axis] if axes else None


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
