"""ONNX files whose tensors name other files: inside of the folder or outside, through links,
pipes or folders, at places and of lengths that are there or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from fuzz.inputs import Command, Input
from fuzz.options import command_options
from fuzz.places import EVIL, MARK, SECRET, output
from fuzz.tars import END, Member, packed

DATA = bytes(range(64))
# The floating point numbers in the mark.
_COUNT = len(MARK) // 4
_NAMES = ["w.bin", "in/w.bin", "link.bin", "pipe.bin", "way/w.bin", "in"]
_LEADS = ["../secret.dat", "/etc/passwd", "w.bin", ".", "..", "missing", "link.bin"]
_LOCATIONS = [
    *["in/w.bin", "./w.bin", "in\\w.bin", "in/../w.bin"],
    *["../secret.dat", "in/../../secret.dat", "way/secret.dat", "link.bin", "pipe.bin"],
    *["..\\secret.dat", "/etc/passwd", f"{'../' * 30}etc/passwd", str(EVIL), "C:w.bin"],
    *[
        "",
        ".",
        "..",
        "in",
        "w.bin\0",
        "missing",
        "n" * 300,
        "é.bin",
        "W.BIN",
        "model.onnx",
    ],
]
_NUMBERS = [
    *["0", "0", "4", "16", "16", "128", "128", "-4", "65", "1000000000000", "9" * 30],
    *["9" * 5000, "", "x", "1.5", " 4"],
]
_EXTENTS = [1, 0, 16, 17, 2**40, 2**63 - 1]
# double, half, bfloat16, integers of 64, 8 and 4 bits, texts, bool, none.
_TYPES = [11, 10, 16, 7, 3, 22, 8, 9, 0, 99]


# ---- Messages of protocol buffers ----


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _tensor(rng: Random, name: str) -> bytes:
    """A tensor whose data are elsewhere."""
    entries = {"location": _usually(rng, "w.bin", _LOCATIONS, 0.5)}
    for key in ("offset", "length", "basepath"):
        if rng.random() < 0.2:
            entries[key] = rng.choice(_NUMBERS)
    stored = [_field(1, key) + _field(2, value) for key, value in entries.items()]
    rank = _usually(rng, 1, [0, 2], 0.1)
    dims = [_usually(rng, _COUNT, _EXTENTS, 0.2) for _ in range(rank)]
    kind = _usually(rng, 1, _TYPES, 0.2)
    fields = [
        *[_field(1, extent) for extent in dims],
        _field(2, kind),
        _field(8, name),
        *[_field(13, entry) for entry in stored],
        _field(14, 1),
    ]
    return b"".join(fields)


def _usually(rng: Random, usual: Any, odd: Sequence[Any], chance: float) -> Any:
    return rng.choice(odd) if rng.random() < chance else usual


def _node(kind: str, inputs: list[str], result: str, *attributes: bytes) -> bytes:
    names = b"".join(_field(1, name) for name in inputs) + _field(2, result)
    return names + _field(4, kind) + b"".join(_field(5, a) for a in attributes)


def _value(name: str) -> bytes:
    shape = _field(1, _field(1, _COUNT))
    return _field(1, name) + _field(2, _field(1, _field(1, 1) + _field(2, shape)))


def _model(rng: Random) -> bytes:
    """A product with a tensor: an initializer, or the value of an attribute."""
    nodes, initializers = [_node("Mul", ["x", "w"], "y")], [_tensor(rng, "w")]
    if rng.random() < 0.3:
        value = _field(1, "value") + _field(5, initializers.pop()) + _field(20, 4)
        nodes.insert(0, _node("Constant", [], "w", value))
    graph = [
        *[_field(1, node) for node in nodes],
        _field(2, "g"),
        *[_field(5, tensor) for tensor in initializers],
        _field(11, _value("x")),
        _field(12, _value("y")),
    ]
    return _field(1, 8) + _field(8, _field(2, 18)) + _field(7, b"".join(graph))


def external(rng: Random) -> Input:
    """An ONNX file with files, links and pipes beside it."""
    kinds = {"link.bin": b"2", "way/w.bin": b"0", "pipe.bin": b"6", "in": b"5"}
    members = [Member("model.onnx", _model(rng))]
    if rng.random() < 0.5:
        members.append(Member("way", b"", b"2", rng.choice(_LEADS)))
    for name in _NAMES:
        kind = rng.choice([b"0", b"2", b"6"]) if rng.random() < 0.1 else kinds.get(name)
        data = rng.choice([DATA, DATA, SECRET[:128] + bytes(16), b""])
        members.append(Member(name, data, kind or b"0", rng.choice(_LEADS)))
    data = packed(members) + END
    arguments = command_options(rng, "x = w = y =") if rng.random() < 0.3 else []
    command = Command("beside", "model.onnx", *output(rng), arguments, len(data))
    return Input(data, command.as_options())
