"""The backend tests of the package onnx: models of a node or a few, with inputs and what they
compute. Each is right, or refused with a reason.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError

onnx = pytest.importorskip("onnx")

# Tests that compare what NNEF or ONNX Runtime has otherwise, and what that is.
OTHERWISE = {
    "resize_downsample_scales_linear_align_corners": "extents are rounded first",
    "resize_downsample_scales_cubic_align_corners": "extents are rounded first",
    "qk_matmul_bias_3d_mask_causal": "minus infinity becomes the smallest number",
    "qk_matmul_bias_4d_mask_causal": "minus infinity becomes the smallest number",
    "mod_float_edge_cases_fmod_0": "the remainder by an infinite number is NaN",
}


def cases() -> Iterator[Any]:
    """Those whose inputs and outputs are arrays."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        values = [x for pair in case.data_sets for side in pair for x in side]
        if all(isinstance(x, (np.ndarray, np.generic)) for x in values):
            yield case


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
        return _compared(path, model, data_sets)
    except NnefGradError as error:
        return f"refused: {error.problems[0].message}"


def _compared(path: Path, model: Any, data_sets: Any) -> str:
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
            found = nnef_grad.evaluate(graph, fed, data)
        for name, wanted in zip(graph.output_names, outputs, strict=True):
            array, tolerance = np.asarray(found[name], float), 1e-4
            if np.asarray(wanted).dtype == np.float16:
                tolerance = 2e-3
            if array.shape != np.shape(wanted):
                return f"wrong shape: {array.shape}"
            if not np.allclose(
                array, np.asarray(wanted, float), tolerance, tolerance, equal_nan=True
            ):
                return "wrong"
    return "right"


def test_every_case_is_right_or_refused(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = [(case, verdict(case, tmp_path / "x.onnx")) for case in cases()]
    wrong = {
        case.name: said
        for case, said in found
        if said.startswith("wrong") and not explanation(case.name)
    }
    assert wrong == {}
    counts = Counter(said.partition(":")[0] for _, said in found)
    assert counts["right"] >= 1210, counts
    if request.config.getoption("--rewrite-cases"):
        PAGE.write_text(page(found), "utf-8")
    assert operators(PAGE.read_text("utf-8")) == operators(page(found))


def explanation(name: str) -> str:
    return next((why for known, why in OTHERWISE.items() if known in name), "")


# ---- docs/onnx-operators.md ----


def page(found: list[tuple[Any, str]]) -> str:
    """The page: a row for each operator that models of one node have."""
    counts = Counter(word(case.name, said) for case, said in found)
    rows: dict[str, Counter[str]] = {}
    reasons: dict[str, str] = {}
    for case, said in found:
        if len(case.model.graph.node) == 1:
            (node,) = case.model.graph.node
            kind = f"{node.domain}.{node.op_type}".lstrip(".")
            rows.setdefault(kind, Counter())[word(case.name, said)] += 1
            if not said.startswith("right"):
                reasons[kind] = explanation(case.name) or reason(said)
    lines = [HEAD.format(count=len(found), **counts)]
    for kind, row in sorted(rows.items()):
        cells = [str(row[name] or "") for name in ("right", "refused", "otherwise")]
        lines.append(f"| `{kind}` | {' | '.join(cells)} | {reasons.get(kind, '')} |")
    return "\n".join(lines) + "\n"


PAGE = Path(__file__).parents[2] / "docs" / "onnx-operators.md"
HEAD = """# ONNX operators, one by one

The package onnx has tests for backends: models of one or a few nodes, with inputs and
results. Of {count:,} whose inputs and results are arrays, nnef-grad computes {right:,} right,
refuses {refused}, and differs in {otherwise}: infinite numbers in a mask, a remainder by
infinity, or extents that are rounded before resizing. The table counts the models of one
node. A test runs all models and writes this page.

| operator | right | refused | different | why the last one is not right |
|---|---|---|---|---|"""


def word(name: str, said: str) -> str:
    said = said.partition(":")[0]
    return (
        "otherwise" if said not in ("right", "refused") and explanation(name) else said
    )


def reason(said: str) -> str:
    """What a refusal says, without the file, the node and its settings."""
    message = re.sub(
        r"^.*? to NNEF: |; attributes: .*$|'/[^']*' ", "", said, flags=re.DOTALL
    )
    message = re.sub(r"^refused: |^'\w+'( \(.*?\))? is not possible: ", "", message)
    return " ".join(message.split()).replace("|", "\\|")[:120]


def operators(text: str) -> list[list[str]]:
    """The rows without the reasons, whose words may depend on versions."""
    return [
        line.split("|")[1:5] for line in text.splitlines() if line.startswith("| `")
    ]
