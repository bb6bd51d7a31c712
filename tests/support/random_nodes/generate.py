"""A seed and a number to a file of ONNX, and the values that it is fed."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .draw import Array, Draw
from .kinds import KINDS

# fmt: off
# What takes whole numbers; other kinds are given floating-point ones.
WHOLE = [
    "Abs",
    "Neg",
    "Sign",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Greater",
    "Less",
    "Equal",
    "Pow",
    "Clip",
    "Where",
    "Cast",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ArgMax",
    "ArgMin",
    "TopK",
    "CumSum",
    "Trilu",
    "Gather",
    "GatherElements",
    "GatherND",
    "ScatterElements",
    "ScatterND",
    "Slice",
    "Pad",
    "Split",
    "Concat",
    "Expand",
    "Tile",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Relu",
    "Identity",
    "MaxPool",
]

# What jumps: where its operand is rounded, a last bit more or less is another result.
STEPS = {
    *[
        "Sign",
        "Mod",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Equal",
        "Floor",
        "Ceil",
        "Round",
        "Hardmax",
        "ArgMax",
        "ArgMin",
        "TopK",
        "Cast",
        "Shrink",
        "ThresholdedRelu",
        "QuantizeLinear",
        "OneHot",
        "LpNormalization",
        "MeanVarianceNormalization",
    ]
}
# What is the same to the last bit in all runtimes.
EXACT = {*WHOLE} - {"Div", "Mod", "Pow", "Cast", "ReduceSum", "ReduceProd", "CumSum"}

# NNEF has integers of one type: sums of others, which wrap around, are not those here.
MOVES = [
    "Gather",
    "GatherElements",
    "GatherND",
    "Slice",
    "Split",
    "Expand",
    "Tile",
    "Reshape",
    "Transpose",
    "Identity",
]
KINDS_OF = {"float32": list(KINDS), "int64": WHOLE}


class Drawn(NamedTuple):
    model: Any
    fed: dict[str, Array]
    results: int
    """How many results the last node has."""


class Skipped(Exception):
    """There is no such node in this version, or the runtime does not run it."""


class Making:
    """A file in the making: its nodes, and the arrays that they are given."""

    def __init__(self, draw: Draw, version: int) -> None:
        self.draw, self.version = draw, version
        self.nodes: list[Any] = []
        self.fed: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}

    def operand(self, value: Any, is_fed: bool) -> str:
        array = np.asarray(value)
        kept = self.fed if is_fed else self.constants
        name = f"v{len(self.fed) + len(self.constants)}"
        kept[name] = array.astype(np.int64) if isinstance(value, list) else array
        return name

    def add(self, kind: str, x: Array, name: str) -> list[str]:
        """A node of this kind whose first operand is x; the names of its results."""
        schema = _schema(kind, self.version)
        if schema is None:
            raise Skipped
        given = KINDS[kind](self.draw, x) if x.ndim or kind not in RANKED else None
        if given is None:
            raise Skipped
        given = {**self.draw.attributes(schema, x.ndim), **given}
        first = self.operand(given.pop(""), True) if "" in given else name
        names = [first]
        for parameter in schema.inputs[1:]:
            names.append(self._parameter(given.pop(parameter.name, None), x, name))
        if "Inputs" in given or "inputs" in given:
            other = given.pop("Inputs", None) or given.pop("inputs")
            names[1:] = [self.operand(other[0], self.draw.chance(0.5))]
        while names and not names[-1]:
            names.pop()
        declared = schema.attributes
        kept = {n: self._plain(v) for n, v in given.items() if n in declared}
        for n in kept.keys() & {"value", "min", "max"}:
            kept[n] = float(kept[n])
        count = 2 if kind in ("Split", "TopK") else 1
        results = [f"r{len(self.nodes)}_{i}" for i in range(count)]
        node = helper.make_node(kind, names, results)
        node.attribute.extend(
            helper.make_attribute(n, v, attr_type=declared[n].type.value)
            for n, v in kept.items()
        )
        self.nodes.append(node)
        return results

    def _parameter(self, value: Any, x: Array, name: str) -> str:
        if value is None:
            return ""
        if value is x:
            return name
        is_data = (
            isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size
        )
        return self.operand(
            value,
            (bool(is_data or value is None) and self.draw.chance(0.5))
            or (self._is_index(value) and self.draw.chance(0.4)),
        )

    @staticmethod
    def _is_index(value: Any) -> bool:
        return (
            isinstance(value, np.ndarray) and value.ndim > 1 and value.dtype == np.int64
        )

    @staticmethod
    def _plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else value

    def model(self, results: list[str]) -> Any:
        inputs = [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for n, a in self.fed.items()
        ]
        arrays = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        outputs = [helper.make_empty_tensor_value_info(n) for n in results]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, arrays)
        opsets = [helper.make_opsetid("", self.version)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


# fmt: off
# What needs an axis.
RANKED = [
    "Gather",
    "GatherElements",
    "GatherND",
    "ScatterElements",
    "ScatterND",
    "Slice",
    "Split",
    "Concat",
    "TopK",
    "CumSum",
    "LpNormalization",
    "LayerNormalization",
    "MatMul",
    "Softmax",
    "LogSoftmax",
    "Hardmax",
    "ArgMax",
    "ArgMin",
    "Flatten",
    "Einsum",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "MeanVarianceNormalization",
]


WINDOWED = [
    "Resize", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "LRN",
    "GroupNormalization", "InstanceNormalization", "GlobalAveragePool", "GlobalMaxPool",
]
# The fewest and the most axes of the first operand.
RANKS = {
    **dict.fromkeys(
        [
            "Resize",
            "Conv",
            "ConvTranspose",
            "MaxPool",
            "AveragePool",
            "LpPool",
            "LRN",
            "GroupNormalization",
            "InstanceNormalization",
            "GlobalAveragePool",
            "GlobalMaxPool",
        ],
        (3, 4),
    ),
    "Gemm": (2, 2),
    "DepthToSpace": (4, 4),
    "DFT": (2, 3),
    "Trilu": (2, 4),
    "BatchNormalization": (2, 4),
}


# fmt: on
@cache
def _schema(kind: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(kind, version)
    except onnx.defs.SchemaError:
        return None


def make_graph(seed: int, number: int, compute: Any) -> Drawn:
    """A file of one to three nodes; `compute` gives the results of a file.

    Raises:
        Skipped: the version has no such node, or `compute` refuses one.
    """
    draw = Draw(seed, number)
    kind = draw.pick(list(KINDS))
    draw.version = draw.pick([v for v in range(7, 22) if _schema(kind, v)])
    making = Making(draw, draw.version)
    is_whole, is_exact = kind in WHOLE and draw.chance(0.25), True
    x = draw.floats(*draw.shape(*RANKS.get(kind, (kind in RANKED, 4))))
    x = np.rint(x * 2).astype(np.int64) if is_whole else x
    name = making.operand(x, True)
    for _ in range(draw.integer(1, 3)):
        is_exact = is_exact and kind in EXACT
        results = making.add(kind, x, name)
        model = making.model(results)
        values = compute(model, making.fed)
        name, x = results[0], values[results[0]]
        if not x.size or x.size > 2000:
            break
        kinds = KINDS_OF.get(str(x.dtype), MOVES)
        kind = draw.pick([k for k in kinds if is_exact or k not in STEPS])
    return Drawn(model, making.fed, len(results))
