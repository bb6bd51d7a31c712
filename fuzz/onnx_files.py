"""ONNX files of a few kilobytes: random operators on constants and inputs, of which few fit
each other; extents that are negative or huge; names that mean two tensors; functions, branches
and loops in circles; and bytes that are damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, helper, numpy_helper
from onnx.defs import get_all_schemas, get_schema

from fuzz.inputs import Command, Input

# Commands are forks, which have imported it then.
from nnef_grad.frontends.onnx import graph as _graph_of_files  # noqa: F401
from nnef_grad.frontends.onnx.node import OPERATIONS

NUMBERS = [0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 7, -1, -1, -2, 100, 3000, 10**5, 10**9]
NUMBERS += [2**31, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, 1.0, 0.5, -1.0, 2.0, 1e9, -1e30, float("inf"), float("nan")]
WORDS = ["", "linear", "nearest", "constant", "SAME_UPPER", "ij,jk->ik", "a" * 500, "é"]
NAMES = ["x", "y", "", "\x1b[31m", "a\nb", "a/b.c", "n" * 3000, "?", "1"]
OWN = "own"
# A document of so many bytes may take what any file may compute on constants.
SIZE_OF_COMPUTATIONS = 500_000
DEPTH = 3


@cache
def _kinds() -> list[str]:
    """The operators that are read, the others of the standard, and none."""
    others = [s.name for s in get_all_schemas() if not s.domain]
    return [*sorted(OPERATIONS) * 40, *others, "Nothing"]


def _array(rng: Random) -> Any:
    shape = rng.choice([(), (1,), (2,), (3,), (2, 3), (1, 1, 2, 3), (0,)])
    count = int(np.prod(shape))
    if rng.random() < 0.7:
        items = np.array([rng.choice(NUMBERS) for _ in range(count)], np.int64)
    else:
        items = np.array([rng.choice(FLOATS) for _ in range(count)])
    dtype: Any = rng.choice([items.dtype, np.float32, np.int64, np.bool_, np.uint8])
    with np.errstate(all="ignore"):
        return items.reshape(shape).astype(dtype)


def _extents(rng: Random) -> Any:
    return [rng.choice([*NUMBERS, "N", None]) for _ in range(rng.choice([0, 1, 2, 4]))]


def _value(rng: Random, name: str) -> Any:
    kind = rng.choice([*[1] * 60, 7, 7, 9, 8, 16, 0, 99])
    shape = rng.choice([*[[2, 3], [1, 1, 4, 4]] * 8, None])
    try:
        given = shape if rng.random() < 0.95 else _extents(rng)
        return helper.make_tensor_value_info(name, kind, given)
    except (TypeError, ValueError):
        return helper.make_tensor_value_info(name, 1, shape)


# ---- Nodes ----

_ATTRIBUTES: dict[int, Callable[[Random, int], Any]] = {
    AttributeProto.INT: lambda rng, _: rng.choice(NUMBERS),
    AttributeProto.INTS: lambda rng, _: [
        rng.choice(NUMBERS) for _ in range(rng.choice([0, 1, 2, 2, 4]))
    ],
    AttributeProto.FLOAT: lambda rng, _: rng.choice(FLOATS),
    AttributeProto.FLOATS: lambda rng, _: [rng.choice(FLOATS) for _ in range(3)],
    AttributeProto.STRING: lambda rng, _: rng.choice(WORDS),
    AttributeProto.STRINGS: lambda rng, _: [rng.choice(WORDS)] * 2,
    AttributeProto.TENSOR: lambda rng, _: numpy_helper.from_array(_array(rng)),
    AttributeProto.GRAPH: lambda rng, depth: _graph(rng, depth + 1),
}


def _attributes(rng: Random, kind: str, depth: int) -> dict[str, Any]:
    try:
        declared = get_schema(kind).attributes
    except Exception:  # of onnx's own kind
        declared = {}
    found = {}
    for name, attribute in sorted(declared.items()):
        if attribute.required or rng.random() < 0.4:
            is_right = rng.random() < 0.93
            type_ = attribute.type.value if is_right else rng.choice([*_ATTRIBUTES])
            if type_ in _ATTRIBUTES and (type_ != 5 or depth < DEPTH):
                found[name] = _ATTRIBUTES[type_](rng, depth)
    return {n: value for n, value in found.items() if value != []}


def _node(rng: Random, known: list[str], functions: list[str], depth: int) -> Any:
    is_own = functions and rng.random() < 0.3
    kind = rng.choice(functions if is_own else _kinds())
    kind = rng.choice(["If", "Loop", "Scan"]) if rng.random() < 0.1 else kind
    try:
        schema = get_schema(kind)
        count = max(schema.min_input, min(schema.max_input, rng.randint(1, 4)))
    except Exception:  # of onnx's own kind
        count = rng.randint(0, 3)
    operands = [rng.choice(known) if known else "" for _ in range(count)]
    is_new = rng.random() < 0.995
    results = [f"t{len(known)}" if is_new or not known else rng.choice(known)]
    results += [f"{results[0]}_{i}" for i in range(rng.choice([0, 0, 0, 1, 2]))]
    known += results
    settings = _attributes(rng, kind, depth)
    name = rng.choice(NAMES)
    domain = OWN if is_own else rng.choice([*[""] * 100, "ai.onnx", "strange"])
    return helper.make_node(kind, operands, results, name, domain=domain, **settings)


def _graph(rng: Random, depth: int, functions: list[str] | None = None) -> GraphProto:
    inputs = ["x", *rng.sample(["z", *NAMES], rng.choice([0, 0, 0, 1, 2]))]
    inputs = [f"{name}{depth or ''}" for name in inputs]
    stored = [f"c{depth}_{i}" for i in range(rng.choice([1, 2, 4]))]
    known = [*inputs, *stored]
    count = rng.choice([1, 1, 2, 3, 6])
    nodes = [_node(rng, known, functions or [], depth) for _ in range(count)]
    arrays = [numpy_helper.from_array(_array(rng), name) for name in stored]
    outputs = [nodes[-1].output[0], *rng.sample(known, rng.choice([0, 0, 1]))]
    values = [_value(rng, name) for name in inputs]
    return helper.make_graph(
        nodes, rng.choice(NAMES), values, list(map(_plain, outputs)), arrays
    )


def _plain(name: str) -> Any:
    return helper.make_tensor_value_info(name, 1, None)


# ---- Functions ----


def _functions(rng: Random, names: list[str]) -> list[Any]:
    """Each calls others, or itself: some of them twice, so that few become many."""
    found = []
    for place, name in enumerate(names):
        before = names[:place] if rng.random() < 0.999 else names
        callee = before[-1:] or ["Relu"]
        count = rng.choice([1, 2, 3])
        places = ["a", *(f"b{i}" for i in range(count))]
        nodes = [
            helper.make_node(
                callee[0], [a], [b], domain=OWN if callee[0] in names else ""
            )
            for a, b in pairwise(places)
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(OWN, 1)]
        found.append(helper.make_function(OWN, name, ["a"], places[-1:], nodes, opsets))
    return found


# ---- Files ----


def _model(rng: Random) -> ModelProto:
    count = rng.choice([*[0] * 20, 2, 40, 200])
    names = [f"f{i}" for i in range(count)]
    version = rng.choice([*[17] * 40, 1, 6, 9, 11, 13, 18, 21, 24, 0, -1, 10**9])
    opsets = [helper.make_opsetid(*pair) for pair in (("", version), (OWN, 1))]
    opsets += opsets[:1] * (rng.random() < 0.03)
    model = helper.make_model(
        _graph(rng, 0, names), opset_imports=opsets, functions=_functions(rng, names)
    )
    graph = model.graph
    if rng.random() < 0.02:
        graph.node.append(rng.choice(graph.node))
    if rng.random() < 0.03:
        stored = rng.choice(graph.initializer)
        stored.dims[:] = [rng.choice(NUMBERS) for _ in range(rng.randint(0, 3))]
    if rng.random() < 0.02:
        rng.choice(graph.initializer).data_type = rng.choice([0, 2, 8, 14, 22, 23, 99])
    return model


def _damaged(rng: Random, data: bytes) -> bytes:
    """A few bytes are others, missing, there twice, or those of another place."""
    letters = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(letters)) if letters else 0
        length = rng.choice([1, 1, 2, 8, 50])
        other = rng.randrange(len(letters)) if letters else 0
        new = [
            bytes([rng.randrange(256)]),
            b"",
            letters[place : place + length] * 2,
            bytes(letters[other : other + length]),
            rng.choice([b"\xff" * 9 + b"\x01", b"\x7f", b"\x80\x80\x04", b"\0"]),
        ]
        letters[place : place + length] = rng.choice(new)
    return bytes(letters)


def hostile(rng: Random) -> Input:
    """A command on a file."""
    data = _model(rng).SerializeToString()
    if rng.random() < 0.1:
        data = _damaged(rng, data)
    options = [["--stats", "full"], ["--batch", "2"], ["--seed", "ones"], ["--wrt=x"]]
    arguments = rng.sample(options, rng.choice([0, 0, 1, 2]))
    arguments += [["--format", "json"]] * (rng.random() < 0.1)
    output = rng.choice(["-", "-", "out.nnef", "out", "out.tgz"])
    size = len(data) + SIZE_OF_COMPUTATIONS
    command = Command("file", "model.onnx", output, "nothing", arguments, size)
    return Input(data, command.as_options())
