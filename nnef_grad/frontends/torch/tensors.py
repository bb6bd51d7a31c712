"""Tensors of PyTorch as arrays, and their data types."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.values import Array, simple


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
