"""The backend tests of the package onnx: models of a node or a few, with inputs and what they
compute. Each is right, or refused with a reason.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tables import FOLDER, csv_of

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError

onnx = pytest.importorskip("onnx")
VERSION = tuple(map(int, onnx.__version__.split(".")[:2]))

# What these expect is computed with extents before they are rounded. The operator's text, ONNX
# Runtime and PyTorch have the extents of the tensor: ONNX Runtime says what is right.
DISPUTED = (
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)
# The largest number of single precision: how NNEF, which has no literal for it, says infinity.
LARGEST = float(np.finfo(np.float32).max)


def cases() -> Iterator[Any]:
    """Those whose inputs and outputs are arrays."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        values = [x for pair in case.data_sets for side in pair for x in side]
        if all(isinstance(x, (np.ndarray, np.generic)) for x in values):
            if case.name in DISPUTED:
                case.data_sets[:] = [
                    (fed, in_runtime(case.model, fed)) for fed, _ in case.data_sets
                ]
            yield case


def in_runtime(model: Any, fed: list[Any]) -> list[Any]:
    """What ONNX Runtime computes."""
    session = pytest.importorskip("onnxruntime").InferenceSession(
        model.SerializeToString()
    )
    names = [value.name for value in model.graph.input]
    results: list[Any] = session.run(None, dict(zip(names, fed, strict=True)))
    return results


def verdict(case: Any, path: Path) -> str:
    """What becomes of a case; where a value must be known, it is an initializer."""
    found = _verdict(case.model, case.data_sets, path)
    if "must be known" not in found or len(case.data_sets) != 1:
        return found
    ((inputs, outputs),) = case.data_sets
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    names = [value.name for value in model.graph.input]
    for name, array in [*zip(names, inputs, strict=True)][1:]:
        tensor = onnx.numpy_helper.from_array(np.asarray(array), name)
        model.graph.initializer.append(tensor)
    del model.graph.input[1:]
    return _verdict(model, [(inputs[:1], outputs)], path)


def _verdict(model: Any, data_sets: Any, path: Path) -> str:
    path.write_bytes(model.SerializeToString())
    try:
        found = _compared(path, model, data_sets, np.float64)
        # Which code a number between two becomes may be decided by its last digit.
        return (
            _compared(path, model, data_sets, np.float32) if found == "wrong" else found
        )
    except NnefGradError as error:
        return f"refused: {error.problems[0].message}"


def _compared(path: Path, model: Any, data_sets: Any, dtype: Any) -> str:
    (first, _), *_ = data_sets
    shapes = {
        value.name: [*np.shape(array)]
        for value, array in zip(model.graph.input, first, strict=True)
        if not all(d.HasField("dim_value") for d in value.type.tensor_type.shape.dim)
    }
    graph, data = interop.from_onnx(path, input_shapes=shapes)
    for inputs, outputs in data_sets:
        fed = dict(zip(graph.input_names, map(np.asarray, inputs), strict=True))
        with np.errstate(all="ignore"):
            found = nnef_grad.evaluate(graph, fed, data, dtype=dtype)
        for name, output in zip(graph.output_names, outputs, strict=True):
            wanted = np.asarray(output)
            array, tolerance = np.asarray(found[name], float), 1e-4
            if wanted.dtype == np.float16:
                tolerance = 2e-3
            if array.shape != wanted.shape:
                return f"wrong shape: {array.shape}"
            a, b = (
                np.clip(x, -LARGEST, LARGEST) for x in (array, wanted.astype(float))
            )
            if not np.allclose(a, b, tolerance, tolerance, equal_nan=True):
                return "wrong"
    return "right"


# What the tests of an older onnx take for right: codes that wrap around, where ONNX Runtime
# cuts them off, and a setting that the node does not have.
WRONG_IN_ONNX = {
    "test_adam_multiple",
    "test_l2normalization_axis_0",
    *(
        f"test_qlinearmatmul_{rank}_int8_float{bits}"
        for rank in ("2D", "3D")
        for bits in (16, 32)
    ),
}
WRONG_IN_ONNX = WRONG_IN_ONNX if VERSION < (1, 21) else set()


def test_every_case_is_right_or_refused(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = [(case, verdict(case, tmp_path / "x.onnx")) for case in cases()]
    wrong = {case.name: said for case, said in found if said.startswith("wrong")}
    assert wrong.keys() <= WRONG_IN_ONNX, wrong
    counts = Counter(said.partition(":")[0] for _, said in found)
    assert counts["right"] >= 0.73 * len(found), counts
    # Another onnx has other tests.
    if f"onnx=={onnx.__version__}\n" in MEASURED.read_text("utf-8"):
        if request.config.getoption("--rewrite-cases"):
            TABLE.write_text(table(found), "utf-8")
        assert summary(len(found), counts) in PAGE.read_text("utf-8")
        assert without_reasons(TABLE.read_text("utf-8")) == without_reasons(
            table(found)
        )


# ---- The section of docs/onnx.md, and its table ----

PAGE, TABLE = FOLDER.parent / "onnx.md", FOLDER / "onnx-operators.csv"
MEASURED = FOLDER.parents[1] / "locks" / "measured.txt"
COLUMNS = ("operator", "right", "refused", "why the last one is refused")


def summary(count: int, counts: Counter[str]) -> str:
    """The line of the page with the numbers."""
    return (
        f"Of {count:,} whose inputs and results are arrays, nnef-grad computes"
        f" {counts['right']:,} right and refuses {counts['refused']}."
    )


def table(found: list[tuple[Any, str]]) -> str:
    """The table: a row for each operator that models of one node have."""
    rows: dict[str, Counter[str]] = {}
    reasons: dict[str, str] = {}
    for case, said in found:
        if len(case.model.graph.node) == 1:
            (node,) = case.model.graph.node
            kind = f"{node.domain}.{node.op_type}".lstrip(".")
            rows.setdefault(kind, Counter())[said.partition(":")[0]] += 1
            if said.startswith("refused"):
                reasons[kind] = reason(said)
    return csv_of(
        COLUMNS,
        (
            [f"`{kind}`", row["right"] or "", row["refused"] or "", reasons.get(kind)]
            for kind, row in sorted(rows.items())
        ),
    )


def reason(said: str) -> str:
    """What a refusal says, without the file, the node and its settings."""
    message = re.sub(
        r"^.*? to NNEF: |; attributes: .*$|'/[^']*' ", "", said, flags=re.DOTALL
    )
    message = re.sub(r"^refused: |^'\w+'( \(.*?\))? is not possible: ", "", message)
    return " ".join(message.split())[:120]


def without_reasons(text: str) -> list[list[str]]:
    """The rows without the reasons, whose words may depend on versions."""
    return [row[:3] for row in csv.reader(text.splitlines())]
