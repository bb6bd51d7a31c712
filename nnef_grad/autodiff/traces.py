"""Rules that are applied once, and whose operations are emitted for many tensors.

What a rule emits depends on the shapes, data types and attributes of an operation, not on
which tensors it has. So it is traced: applied to tensors that stand for any. What it emits
for these is a body, which is instantiated wherever the operation differs from the traced one
in its tensors only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnef_grad.base.errors import NnefGradError
from nnef_grad.base.source import Span
from nnef_grad.emit.bodies import MARK, Body, body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Tensor

# Emits operations for some tensors, and returns tensors and numbers in nested tuples. It
# depends on nothing but the data types and shapes of the tensors.
Build = Callable[[Emitter, Sequence[Tensor]], "tuple[Any, ...]"]


class Traces:
    """The traces of one differentiation, by keys that are equal for equal operations."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._met: set[object] = set()
        self._bodies: dict[object, Body | None] = {}

    def apply(
        self,
        key: object,
        build: Build,
        inputs: Sequence[Tensor],
        caller: Span | None = None,
    ) -> tuple[Any, ...]:
        """Emits what `build` does for some inputs, and returns what it returns. It is traced
        when the key is met again.

        Args:
            key: tells how `build` differs from others, and the data types and shapes of
                the inputs; None if it may depend on anything.
            build: emits the operations.
            inputs: the tensors that it depends on.
            caller: the place of what the operations are emitted for.
        """
        results = None
        if key is not None and key in self._met:
            if key not in self._bodies:
                self._bodies[key] = _traced(build, self._emit, inputs)
            body = self._bodies[key]
            results = body and instantiate(body, self._emit, inputs, caller=caller)
        self._met.add(key)
        return build(self._emit, inputs) if results is None else results


def _traced(build: Build, emit: Emitter, inputs: Sequence[Tensor]) -> Body | None:
    """The body that is emitted; None where there is none: an operation that is refused is
    refused for the tensors themselves, and the results of one that has several are named
    together.
    """
    tracer = Emitter(emit.opset)
    tracer.naming = lambda name: f"{name}{MARK}"
    try:
        stand_ins = [tracer.stand_in(tensor) for tensor in inputs]
        results = build(tracer, stand_ins)
    except NnefGradError:
        return None
    emitted = tracer.operations[len(inputs) :]
    if not all(len(op.results) == len(op.outputs) == 1 for op in emitted):
        return None
    return body_of(stand_ins, emitted, results, tracer.called)
