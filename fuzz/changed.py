"""What was returned is changed by its user: what is made next must be what it was before."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

import nnef_grad
from fuzz.broken import Broken
from fuzz.clock import Clock
from fuzz.documents import network
from fuzz.inputs import Input
from fuzz.stored import tensors
from fuzz.tars import END, Member, packed
from nnef_grad.graph.ir import Graph
from nnef_grad.storage.files import text_of

# There are thousands of words and places of syntax to each operation.
MOST_OF_A_TYPE = 50

# ---- What is made ----


def _step(graph: Graph) -> Any:
    data = {
        label: np.ones(tensor.shape, np.float32)
        for label, tensor in zip(graph.labels.values(), graph.variables, strict=True)
    }
    optimizer = "adam(amsgrad = true)"
    return nnef_grad.training_step(graph, loss="huber", optimizer=optimizer, data=data)


def _data(graph: Graph) -> Mapping[str, Any]:
    """The stored data of the variables, as they are loaded."""
    text = nnef_grad.dumps(graph)
    members = [Member("graph.nnef", text.encode()), *tensors(Random(0), text)]
    with tempfile.TemporaryDirectory(prefix="nnef-grad-fuzz-") as folder:
        path = Path(folder, "model.tar")
        path.write_bytes(packed(members) + END)
        return dict(nnef_grad.load_data(path))


MADE: dict[str, Callable[[Graph], Any]] = {
    "graph": lambda graph: graph,
    "backward": lambda graph: nnef_grad.differentiate(graph),
    "statistics": lambda graph: nnef_grad.statistics(graph),
    "split": lambda graph: nnef_grad.split(graph, nnef_grad.differentiate(graph)),
    "tract": lambda graph: nnef_grad.lower(graph, "tract"),
    "onnx": lambda graph: nnef_grad.lower(nnef_grad.differentiate(graph).graph, "onnx"),
    "step": _step,
    "data": _data,
}


def mutated(rng: Random) -> Input:
    """A network, what is made of it, and a seed of what is changed then."""
    what = ["backward", *rng.sample(list(MADE), 2)]
    options = {"what": list(dict.fromkeys(what)), "seed": rng.randrange(10**9)}
    return Input(network(rng).encode(), {"changed": options})


# ---- The property ----


def examine_changed(item: Input, clock: Clock) -> None:
    """Makes things, changes them, and makes them again.

    Raises:
        NnefGradError: they cannot be made.
        Broken: they are others after the changes.
    """
    text, options = text_of(BytesIO(item.data), "<fuzz>").text, item.options["changed"]
    clock(len(text), check=True)
    made = _made(text, options["what"])
    before = {what: shown(value) for what, value in made.items()}
    clock(len(text), check=True)
    changes = Changes(Random(options["seed"]))
    try:
        changes.of(made)
        after = _again(text, options["what"], changes)
    finally:
        changes.undo()
    for what, value in before.items():
        if after[what] != value:
            raise Broken(f"another {what} after changes of a result", str(changes))


def _made(text: str, names: list[str]) -> dict[str, Any]:
    return {name: MADE[name](nnef_grad.loads(text)) for name in names}


def _again(text: str, names: list[str], changes: Changes) -> dict[str, str]:
    try:
        return {what: shown(value) for what, value in _made(text, names).items()}
    except Exception as error:
        what = f"{type(error).__name__} after changes of a result"
        raise Broken(what, f"{changes}: {error}") from error


def shown(value: Any) -> str:
    """All that is to be seen of a thing, as a text."""
    if isinstance(value, (nnef_grad.Graph, nnef_grad.Backward)):
        return nnef_grad.dumps(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes()!r}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {shown(item)}" for key, item in value.items())
    if is_dataclass(value):
        return ", ".join(shown(getattr(value, field.name)) for field in fields(value))
    return str(value)


# ---- Changes ----

Undo = Callable[[], Any]

# What cannot be changed, and what belongs to the program and not to a result.
_ATOMS = (
    str, bytes, int, float, complex, bool, type(None), type, range, slice,
    FunctionType, BuiltinFunctionType, MethodType, ModuleType, np.dtype, np.generic,
)  # fmt: skip
# FrozenInstanceError is an AttributeError.
_REFUSALS = (TypeError, AttributeError, ValueError)


def reached(value: Any) -> Iterator[Any]:
    """All objects that one leads to, itself among them, by public names."""
    known: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) not in known and not isinstance(one, _ATOMS):
            known.add(id(one))
            waiting += _parts(one)
            yield one


def _parts(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return []
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [*value]
    return [getattr(value, name, None) for name in _fields(value)]


def _fields(value: Any) -> list[str]:
    slots = [s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())]
    names = [*slots, *getattr(value, "__dict__", {})]
    return [name for name in names if not name.startswith("_")]


def _other(rng: Random, value: Any) -> Any:
    """Another value of the same kind, or of none."""
    found: list[Any] = [None, "changed", (), 7]
    # Of others, such as a graph with changes, there may be no text.
    same: dict[type, Callable[[], Any]] = {
        str: lambda: f"{value}_",
        tuple: lambda: value,
        bool: lambda: not value,
    }
    return rng.choice([*found, same.get(type(value), int)()])


def _in_array(rng: Random, array: Any) -> Undo:
    old = array.copy()
    array[...] = rng.choice([0, 1])

    def undo() -> None:
        array[...] = old

    return undo


def _in_mapping(rng: Random, mapping: Any) -> Undo:
    old = dict(mapping)
    key = rng.choice([*mapping, "changed"])

    def undo() -> None:
        mapping.clear()
        mapping.update(old)

    ways: list[Callable[[], Any]] = [
        lambda: mapping.__setitem__(key, _other(rng, mapping.get(key))),
        lambda: mapping.update({key: None}),
        lambda: mapping.pop(key, None),
        mapping.clear,
    ]
    rng.choice(ways)()
    return undo


def _in_sequence(rng: Random, items: Any) -> Undo:
    old = list(items)

    def undo() -> None:
        items[:] = old

    place = rng.randrange(len(items) + 1)
    ways: list[Callable[[], Any]] = [
        lambda: items.append(None),
        lambda: items.__setitem__(slice(place, place + 1), [_other(rng, None)]),
        items.clear,
    ]
    rng.choice(ways)()
    return undo


def _in_set(rng: Random, items: Any) -> Undo:
    old = set(items)

    def undo() -> None:
        items.clear()
        items.update(old)

    ways: list[Callable[[], Any]] = [lambda: items.add("changed"), items.clear]
    rng.choice(ways)()
    return undo


def _in_fields(rng: Random, thing: Any) -> Undo:
    name = rng.choice([*_fields(thing), "changed"])
    has, old = hasattr(thing, name), getattr(thing, name, None)
    setattr(thing, name, _other(rng, old))
    return lambda: setattr(thing, name, old) if has else delattr(thing, name)


# The first row that fits; the last one fits all.
_WAYS: list[tuple[tuple[type, ...], Callable[[Random, Any], Undo]]] = [
    ((np.ndarray,), _in_array),
    ((Mapping,), _in_mapping),
    ((MutableSequence, tuple), _in_sequence),
    ((set, frozenset), _in_set),
    ((object,), _in_fields),
]


class Changes:
    """Random changes, as far as they are possible, which can be taken back: the process
    goes on to other inputs.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._undo: list[Undo] = []
        self._kinds: set[str] = set()

    def __str__(self) -> str:
        return ", ".join(sorted(self._kinds)) or "nothing"

    def of(self, value: Any) -> None:
        """Changes some of what a value leads to."""
        by_type: dict[str, list[Any]] = {}
        for thing in reached(value):
            by_type.setdefault(type(thing).__name__, []).append(thing)
        for kind, things in by_type.items():
            for thing in self._rng.sample(things, min(len(things), MOST_OF_A_TYPE)):
                self._change(kind, thing)

    def _change(self, kind: str, thing: Any) -> None:
        way = next(way for kinds, way in _WAYS if isinstance(thing, kinds))
        try:
            self._undo.append(way(self._rng, thing))
        except _REFUSALS:
            return
        self._kinds.add(kind)

    def undo(self) -> None:
        """Takes all changes back, the last one first."""
        while self._undo:
            self._undo.pop()()
