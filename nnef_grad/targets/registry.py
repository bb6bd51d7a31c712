"""Where lowerings are entered, and found.

A lowering puts other operations in the place of one: a function of what emits operations
and the operation, which returns a value for each result. What it emits is standard NNEF
and computes the same numbers, whatever the target. It may emit operations that are
lowered in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from nnef_grad.emit.bodies import LONGEST, has_open_count, is_short
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.emit.rewriting import Decompose
from nnef_grad.graph.ir import ARGSORT, LOOP, Operation
from nnef_grad.language.library import FragmentFile
from nnef_grad.ops import DECOMPOSITIONS
from nnef_grad.ops.registry import Decomposition
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition

Function = TypeVar("Function", bound=Decompose)
SUFFIX = "_lowered"
LOWERINGS: dict[str, Decomposition] = {}


def lowering(
    *names: str, applies: Callable[[Operation], bool] = when.always
) -> Callable[[Function], Function]:
    """Enters the lowering of operations, for settings; with others they have none."""

    def enter(function: Function) -> Function:
        for name in names:
            assert name not in LOWERINGS, f"{name} is entered twice"
            LOWERINGS[name] = Decomposition(function, applies)
        return function

    return enter


_MAXIMA = "max_pool argmax_pool max_pool_with_index sample"
_INDEXED = "argmax_pool sample desample"
_POOLS = f"{_MAXIMA} avg_pool rms_pool box debox desample"
_EMPTY = when.ignoring & when.empty
_LONG = ~when.blocks & when.long

# For the operations, named in a string, settings that no exporter writes and that have no
# other form, and what messages say of them.
REFUSED: Sequence[tuple[str, Condition, str]] = (
    ("slice tile", when.above_rank(5), "along more than 5 axes"),
    ("conv deconv", when.no_space, "without spatial axes"),
    ("conv deconv", when.above_rank(5), "with more than 3 spatial axes"),
    ("conv deconv", ~when.touching, "with windows that all lie outside"),
    (_POOLS, when.along_four_axes, "with windows along more than 3 axes"),
    (
        f"{_MAXIMA} avg_pool rms_pool",
        _EMPTY,
        "with windows that have no element inside",
    ),
    (_POOLS, when.cropping, "with negative padding"),
    (LOOP, when.Condition(has_open_count), "of a number of steps that is not known"),
    (LOOP, ~when.Condition(is_short), f"of more than {LONGEST:,} steps"),
    (
        ARGSORT,
        when.ordering_many,
        "of more than 1,024 elements; ONNX Runtime and tract can",
    ),
    (_INDEXED, _LONG, "with windows of more than 300 elements along an axis"),
)


def refusal(operation: Operation) -> str:
    """The settings of the operation that have no other form; empty if none."""
    for names, condition, phrase in REFUSED:
        if operation.name in names.split() and condition(operation):
            return f" {phrase}"
    return ""


# Their borders that repeat elements are padded first.
_PADDED = {"conv", "deconv", "debox"}


# The lowerings of lowerings.nnef, by the name of the fragment.
WRITTEN = FragmentFile(Path(__file__).parent / "lowerings.nnef")


def find_lowering(operation: Operation) -> Decompose | None:
    """Puts other operations in the place of one; None where it has no other form. First
    the Python lowering, then that of lowerings.nnef, then the body of the operation.
    """
    name = operation.name
    own, body = LOWERINGS.get(name), DECOMPOSITIONS.get(name)
    if refusal(operation):
        return None
    if body is not None and not body.applies(operation):
        body = None
    if own is not None and not (body is not None and name in _PADDED):
        return own.build if own.applies(operation) else None
    if name + SUFFIX in WRITTEN:
        return partial(instantiate_body, fragment=WRITTEN[name + SUFFIX])
    if body is not None:
        return body.build
    return instantiate_body if operation.definition.body is not None else None
