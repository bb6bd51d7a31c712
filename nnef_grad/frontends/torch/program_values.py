"""The values of a program of PyTorch, while it becomes a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.base.source import Span
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.conversion import MOST_ELEMENTS, Conversion
from nnef_grad.frontends.reading import valid_name
from nnef_grad.frontends.torch.symbols import Symbols
from nnef_grad.frontends.values import Array, converted, is_uniform, simple
from nnef_grad.graph.ir import Tensor
from nnef_grad.language.library import FragmentFile

# Operations of ATen that are formulas, by their names.
FORMULAS = FragmentFile(Path(__file__).parent / "aten.nnef")


class ProgramValues(Conversion):
    """The state that the functions in operations/ share while a program is read.

    Attributes:
        symbols: the extents that PyTorch leaves open.
        variables: the variable of each parameter and buffer, by its name in PyTorch.
        drawn: for each input that stands for random numbers, what it must be drawn from.
        constants: what the program has as constants.
    """

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(Path(__file__).parent / "torch.nnef", FORMULAS)
        self.symbols = symbols
        self.variables: dict[str, Tensor] = {}
        self.drawn: dict[Tensor, Any] = {}
        self.constants: tuple[Any, ...] = ()
        self._casts: dict[tuple[Emitter, Tensor, str], Tensor] = {}

    def cast(self, x: Tensor, dtype: str, hint: str, span: Span) -> Any:
        """As in `Conversion`, but once; whole numbers that become integers, and scalars again,
        are what they were.
        """
        key = (self.emitter, x, dtype)
        if key not in self._casts:
            made = self._casts[key] = super().cast(x, dtype, hint, span)
            if dtype == "integer" and x.dtype != dtype:
                number = self.cast(x, "scalar", hint, span)
                self._casts[self.emitter, made, "scalar"] = number
        return self._casts[key]

    def stopped(self, x: Any) -> Any:
        """A value that no gradient flows through."""
        if not isinstance(x, Tensor) or x.dtype != "scalar":
            return x
        return self.emitter.stop(x)

    def input(self, name: str, dtype: str, shape: Sequence[Any]) -> Tensor:
        """A new input of the graph."""
        return self.emitter.emit_named(
            self.supply.fresh(valid_name(name)), "external", dtype, shape=list(shape)
        )

    def variable(self, name: str, tensor: torch.Tensor) -> Any:
        """The variable of a parameter or a buffer; one without axes gets one, which is
        removed again: not all runtimes have variables without.
        """
        array = array_of(tensor)
        shape = array.shape or (1,)
        called = self.supply.fresh(valid_name(name))
        made = self.declare(called, name, array.reshape(shape), "scalar")
        self.variables[name] = made
        return made if array.ndim else self.emitter("squeeze", made, axes=[0])

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """As in `Conversion`; a large table becomes a variable."""
        is_large = isinstance(value, np.ndarray) and value.size > MOST_ELEMENTS
        if not is_large or dtype != "scalar" or value.dtype.kind == "O":
            return super().materialize(value, dtype, hint, span)
        array = converted(value, dtype)
        if is_uniform(array):
            return super().materialize(value, dtype, hint, span)
        table = torch.from_numpy(array.astype(np.float32))
        return self.variable(f"tables.{hint}", table)


# ---- Tensors as arrays, and their data types ----


def dtype_name(dtype: torch.dtype) -> str:
    """The data type of NNEF for one of PyTorch."""
    if dtype == torch.bool:
        return "logical"
    if dtype.is_complex:
        raise UnsupportedError("NNEF has no complex numbers: compute with real ones")
    return "scalar" if dtype.is_floating_point else "integer"


def value_of(tensor: torch.Tensor) -> Any:
    """The elements of a tensor, exactly: an array, or a number where it has no axes."""
    dtype_name(tensor.dtype)  # refuses complex numbers
    return simple(array_of(tensor, exact=True))


def array_of(tensor: torch.Tensor, *, exact: bool = False) -> Array:
    """The elements of a tensor: fractions in single precision, or else in double."""
    values = tensor.detach().cpu()
    if values.is_floating_point():
        values = values.to(torch.float64 if exact else torch.float32)
    try:
        return np.array(values.contiguous().numpy())
    except RuntimeError as error:  # of a tensor inside of torch.func
        raise UnsupportedError(f"a tensor cannot be read: {error}") from None
