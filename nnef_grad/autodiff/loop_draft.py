"""A loop that is put together around the second half of the derivative of a body."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.loops import emit_loop
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.loops import Collected, Loop, Way, external
from nnef_grad.graph.names import NameSupply, substitute
from nnef_grad.graph.passes import put_inputs_first
from nnef_grad.ops.opset import OpSet

# The results of a loop that was emitted, by what they were carried, added up or collected as.
Results = Mapping[object, Tensor]


class Stack(NamedTuple):
    """The values of a tensor of the body at all steps, in the order of the loop, one after
    the other along an axis.

    Attributes:
        find: finds it, given the results of the loop, which is not emitted yet.
        axis: the axis.
    """

    find: Callable[[Results], Tensor]
    axis: int


class _State(NamedTuple):
    """A state of the loop.

    Attributes:
        key: what its last value is found by.
        inside: the input of the body.
        first: its first value; zeros, if there is none.
        new: its next value in the body.
    """

    key: Tensor
    inside: Tensor
    first: Tensor | None
    new: Tensor


class LoopDraft:
    """A loop that is put together around the second half of a derivative.

    Attributes:
        emit: emits the operations of its body.
        scanned: the inputs of the body that are a part of a tensor at each step, with the
            tensor, and the way through it.
    """

    def __init__(self, half: Graph, seeds: Collection[str], way: Way) -> None:
        self.emit = Emitter(OpSet().extended(half.fragments), half.names)
        self._half = half
        self._way = way
        self._supply = NameSupply(half.tensors.keys() - {*seeds})
        # What stands for a tensor of the half.
        self._replaced: dict[Tensor, Tensor] = {}
        self._full: list[tuple[Tensor, Tensor]] = []
        self._states: list[_State] = []
        self.scanned: list[tuple[Tensor, Tensor, Way]] = []
        self._collected: dict[object, tuple[Tensor, Way]] = {}

    def tensor(self, wish: str, like: Tensor) -> Tensor:
        """A new input of the body, like another tensor."""
        name = self._supply.fresh(wish)

        return self.emit.emit_named(name, "external", like.dtype, shape=like.shape)

    def _input(self, tensor: Tensor) -> Tensor:
        if not self.emit.knows(tensor):
            self.emit.append(external(tensor))
        return tensor

    def see(self, inside: Tensor, whole: Tensor) -> None:
        """Lets the body see a tensor whole."""
        self._full.append((self._input(inside), whole))

    def scan(self, inside: Tensor, whole: Tensor, way: Way) -> None:
        """Lets the body see a part of a tensor."""
        self.scanned.append((self._input(inside), whole, way))

    def scan_rows(self, inside: Tensor, whole: Tensor, way: Way) -> None:
        """Lets the body see a row of a tensor, without the axis of the rows."""
        shape = (*inside.shape[: way.axis], 1, *inside.shape[way.axis :])
        like = replace(inside, shape=shape)
        row = self.tensor(f"{self.emit.called(inside)}_row", like)
        self.emit.emit_to(inside, "squeeze", row, axes=[way.axis])
        self.scan(row, whole, way)

    def sum(self, tensor: Tensor, sources: Sequence[Tensor]) -> None:
        """Puts a sum in the place of a tensor of the half."""
        total, hint = sources[0] if sources else None, self.emit.called(tensor)
        for source in sources[1:]:
            total = self.emit("add", total, source, hint=hint)
        if total is None:
            total = self.emit("constant", shape=tensor.shape, value=(0.0,))
        self._replaced[tensor] = total

    def append(self, operations: Iterable[Operation]) -> None:
        """Appends operations of the half."""
        for operation in operations:
            self.emit.append(substitute(operation, self._replaced))

    def carry(self, inside: Tensor, first: Tensor | None, new: Tensor) -> None:
        """Makes an input a state, whose first value is zeros if it is not given."""
        self._states.append(_State(new, inside, first, new))

    def add_up(self, gradient: Tensor) -> None:
        """Adds a tensor up, over all steps."""
        name = self.emit.called(gradient)
        before = self.tensor(f"{name}_before", gradient)
        total = self.emit("add", before, gradient, hint=f"{name}_sum")
        self._states.append(_State(gradient, before, None, total))

    def collect(self, gradient: Tensor, way: Way) -> None:
        """Puts a tensor of all steps side by side."""
        self._collected[gradient] = gradient, way

    def stacked(self, tensor: Tensor) -> Stack | None:
        """The values of a tensor at all steps, if the loop sees or collects them."""
        tensor = self._replaced.get(tensor, tensor)
        made = self.emit.producer(tensor)
        is_part = made is not None and made.name == "squeeze"
        row = made.inputs[0] if made is not None and is_part else tensor
        for inside, whole, way in self.scanned:
            if inside in (tensor, row) and way.direction == self._way.direction:
                return Stack(partial(_known, whole), way.axis)
        for key, (part, way) in self._collected.items():
            if part is tensor and way.direction == self._way.direction:
                return Stack(itemgetter(key), way.axis)
        return None

    def stack(self, tensor: Tensor) -> Stack | None:
        """The same: the loop collects them, if they are made in its body."""
        known = self.stacked(tensor)
        tensor = self._replaced.get(tensor, tensor)
        made = self.emit.producer(tensor)
        if known is not None or made is None or made.name == "external":
            return known
        gathered = {part for part, _ in self._collected.values()}
        part, axis = tensor, min(self._way.axis, tensor.rank)
        if tensor in gathered or not self._way.fits(tensor.shape):
            part = self.emit(
                "unsqueeze", part, axes=[axis], hint=f"{self.emit.called(part)}_row"
            )
        key = tensor, "steps"
        self._collected[key] = part, Way(axis, self._way.direction)
        return Stack(itemgetter(key), axis)

    def emitted(self, emit: Emitter) -> dict[object, Tensor]:
        """Emits the loop, and returns its results."""
        outputs = [state.new for state in self._states]
        outputs += [part for part, _ in self._collected.values()]
        inputs = [
            *(inside for inside, _ in self._full),
            *(state.inside for state in self._states),
            *(inside for inside, *_ in self.scanned),
        ]
        body = Graph(
            self._half.name,
            tuple(inputs),
            tuple(outputs),
            tuple(self.emit.operations),
            self.emit.assigned_names(self.emit.operations, self._supply.taken),
            notes=self._half.notes,
        )
        ways = (way for _, way in self._collected.values())
        loop = Loop(
            put_inputs_first(body),
            len(self._states),
            tuple(way for *_, way in self.scanned),
            tuple(
                Collected(place, way)
                for place, way in enumerate(ways, len(self._states))
            ),
        )
        operands = [
            *(whole for _, whole in self._full),
            *(s.first or _zeros(emit, s.inside) for s in self._states),
            *(whole for _, whole, _ in self.scanned),
        ]
        keys = [*(state.key for state in self._states), *self._collected]
        hints = tuple(map(self._hint, keys))
        return dict(zip(keys, emit_loop(emit, loop, operands, hints), strict=True))

    def _hint(self, key: object) -> str:
        tensor, *suffix = key if isinstance(key, tuple) else (key,)
        return "_".join([self.emit.called(tensor), *suffix])


def _known(whole: Tensor, results: Results) -> Tensor:
    """Facts that are known before the loop is emitted."""
    return whole


def _zeros(emit: Emitter, like: Tensor) -> Tensor:
    return emit("constant", shape=like.shape, value=(0.0,), hint="zeros")
