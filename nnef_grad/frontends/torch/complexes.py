"""Complex tensors: a graph has their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nnef_grad.frontends.torch.internals import pytree
from nnef_grad.frontends.values import simple
from nnef_grad.graph.ir import Shape, Tensor

PARTS = ("real", "imag")


@dataclass(frozen=True)
class Complex:
    """A complex value, as its parts. One that is zero everywhere is None."""

    parts: tuple[Any, Any]
    shape: Shape


def complex_of(value: Any) -> Complex:
    """A value as its parts, which are numbers or arrays if it is known."""
    if isinstance(value, Complex):
        return value
    if isinstance(value, Tensor):
        return Complex((value, None), value.shape)
    array = np.asarray(value)
    if array.dtype.kind != "c":
        return Complex((value, None), array.shape)
    parts = array.real, array.imag
    real, imag = (simple(x) if x.any() else None for x in parts)
    if real is None and imag is None:
        real = simple(array.real)
    return Complex((real, imag), array.shape)


def of_parts(parts: Sequence[Any]) -> Complex:
    """A value of two parts, or of the real one; one at least is not None."""
    real, imag = (*parts, None)[:2]
    known = complex_of(imag if real is None else real)
    return Complex((real, imag), known.shape)


def is_complex(value: Any) -> bool:
    """Whether a value is complex, or one in it; of a fake tensor, what it stands for."""
    return any(map(_is_complex, pytree.tree_leaves(value)))


def _is_complex(x: Any) -> bool:
    if isinstance(x, (torch.Tensor, np.ndarray)):
        return bool(
            x.dtype.is_complex if isinstance(x, torch.Tensor) else x.dtype.kind == "c"
        )
    return isinstance(x, (Complex, complex))


def real(fake: Any) -> Any:
    """The stand-in for a part of a complex tensor in the place of a fake one."""
    return (
        fake.new_empty(fake.shape, dtype=torch.float64) if fake.is_complex() else fake
    )


def counts(tensor: torch.Tensor) -> bool:
    """Whether the elements are whole, or truth values."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def in_parts(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor; the parts of a complex one are along a last axis."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
