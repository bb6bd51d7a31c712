"""Which lowering an operation has: one lookup, in one order.

the Python lowering; the one in lowerings.nnef; the body of the operation, in Python
or in the standard library
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.evaluation import Evaluator, instantiate_body, parameters
from nnef_grad.graph.ir import Operation
from nnef_grad.language.library import FragmentFile
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops import DECOMPOSITIONS
from nnef_grad.targets import (
    conv,
    elementwise,
    matrix,
    parts,
    pool,
    reduce,
    sampling,
    shape,
    tensors,
)
from nnef_grad.targets.registry import LOWERINGS, Lowering

SUFFIX = "_lowered"

__all__ = [
    "conv",
    "elementwise",
    "matrix",
    "parts",
    "pool",
    "reduce",
    "sampling",
    "shape",
    "tensors",
]


@lru_cache(maxsize=1)
def written() -> FragmentFile:
    """The lowerings of lowerings.nnef, by the name of the fragment."""
    return FragmentFile(Path(__file__).parent / "lowerings.nnef")


def find_lowering(operation: Operation) -> Lowering | None:
    """What puts other operations in the place of one; None where it has no other form."""
    name = operation.name
    if name in LOWERINGS:
        return LOWERINGS[name].build if LOWERINGS[name].applies(operation) else None
    if name + SUFFIX in written():
        return partial(_apply, written()[name + SUFFIX])
    if name in DECOMPOSITIONS and DECOMPOSITIONS[name].applies(operation):
        return DECOMPOSITIONS[name].build
    return instantiate_body if operation.definition.body is not None else None


def _apply(fragment: Fragment, emit: Emitter, operation: Operation) -> list[object]:
    bound = parameters(operation.definition, operation.operands, operation.settings)
    results = Evaluator(emit).instantiate(fragment, bound, emit.naming, operation.span)
    return list(results.values())
