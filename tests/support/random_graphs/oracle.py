"""One operation, evaluated by the oracle of the tests without a text around it.

A graph is made operation by operation: parsing a document for each would take most of
the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nnef_grad.language.library import STDLIB
from nnef_grad.language.types import ArrayType
from support import reference

from .graphs import SOURCES, flat

_TYPED = ("constant", "cast")


def knows(operation: str) -> bool:
    """Whether the oracle has the operation."""
    return operation in SOURCES or operation in reference._OPERATIONS


def apply(
    operation: str,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    dtype: str | None = None,
) -> list[Tensor]:
    """The results, those of an array one after the other."""
    declared = STDLIB[operation]
    missing = [p.name for p in declared.operands[len(operands) :]]
    operands = [*operands, *(declared.defaults[name] for name in missing)]
    values = {**declared.defaults, **attributes}
    arguments = [_tensor(operand) for operand in operands]
    arguments += [values[p.name] for p in declared.attributes]
    arguments += [dtype] if operation in _TYPED else []
    result = reference._OPERATIONS[operation](*arguments)
    return list(flat((tuple(result) if isinstance(result, list) else result,)))


def grouped(operation: str, names: Sequence[str]) -> tuple[Any, ...]:
    """The names of the results as a statement has them: an array is a tuple."""
    (first, *_) = STDLIB[operation].results
    return (tuple(names),) if isinstance(first.type, ArrayType) else tuple(names)


def _tensor(operand: Any) -> Any:
    if isinstance(operand, Tensor):
        return operand
    if isinstance(operand, (list, tuple)):
        return [_tensor(item) for item in operand]
    return torch.tensor(
        operand, dtype=torch.float64 if type(operand) is float else None
    )
