"""Known patterns of operations, recognized by their structure alone.

A pattern is what some function emits for stand-ins. A tensor is an instance of it where the
operations that made the tensor are those, with the same attributes and numbers, down to the
stand-ins: in their places there may be any tensor.
"""

from __future__ import annotations

from collections.abc import Callable

from nnef_grad.emit.arguments import settings_key
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.opset import OpSet
from nnef_grad.targets.registry import Relations

# Emits a pattern for its stand-ins, and returns the tensor that is compared.
Build = Callable[..., Operand]


def is_instance(near: Relations, found: Operand, build: Build, *given: Tensor) -> bool:
    """Whether a tensor was made of some others as a function makes it.

    Args:
        near: the operations of the graph of the tensor.
        found: the tensor.
        build: emits the pattern, given what emits and stand-ins for the other tensors.
        given: the other tensors.
    """
    emit = Emitter(OpSet(), simplify=simplify)
    stand_ins = [emit.stand_in(x) for x in given]
    wanted = build(emit, *stand_ins)
    return _Comparison(near, emit, dict(zip(stand_ins, given, strict=True))).agree(
        found, wanted
    )


class _Comparison:
    """The comparison of the operations around two tensors."""

    def __init__(
        self, near: Relations, emit: Emitter, known: dict[Operand, Operand]
    ) -> None:
        self._near, self._emit = near, emit
        # What stands where a tensor of the pattern stands.
        self._known = known

    def agree(self, found: Operand, wanted: Operand) -> bool:
        if isinstance(found, tuple) and isinstance(wanted, tuple):
            return len(found) == len(wanted) and all(map(self.agree, found, wanted))
        if not (isinstance(found, Tensor) and isinstance(wanted, Tensor)):
            return type(found) is type(wanted) and repr(found) == repr(wanted)
        if wanted not in self._known:
            ours, theirs = self._near.producer(found), self._emit.producer(wanted)
            if ours is None or theirs is None or not self._made_alike(ours, theirs):
                return False
            self._known[wanted] = found
        return self._known[wanted] is found

    def _made_alike(self, ours: Operation, theirs: Operation) -> bool:
        if (ours.name, ours.dtype) != (theirs.name, theirs.dtype):
            return False
        is_set_alike = settings_key(ours) == settings_key(theirs)
        return is_set_alike and self.agree(ours.operands, theirs.operands)
