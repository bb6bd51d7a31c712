"""NaN as what is missing, which NNEF has no literal for."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import nnef_grad

NAN = np.float32(np.nan)
TABLE = np.array([[1.0, NAN], [NAN, 4.0], [5.0, 6.0]], np.float32)
KINDS = {
    "shape": "s = Shape (x) c = ConstantOfShape <value = float[1] {nan}> (s) y = Where (m, x, c)",
    "number": "y = Where (m, x, number)",
    "whole": "y = Where (m, x, whole)",
    "some": "y = Where (m, x, table)",
}


def _written(kind: str, rows: str, path: Path) -> Path:
    nodes = KINDS[kind].replace("nan", "1")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>\n'
        f"net (float[{rows}, 2] x, bool[{rows}, 2] m) => (float[{rows}, 2] y) {{ {nodes} }}"
    )
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            node.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array([NAN])))
    constants = {"number": NAN, "whole": np.full((3, 2), NAN), "table": TABLE}
    for name, array in constants.items():
        own = numpy_helper.from_array(np.asarray(array, np.float32), name)
        model.graph.initializer.append(own)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("runtime", ["numpy", "onnxruntime", "openvino", "tract"])
@pytest.mark.parametrize(
    ("kind", "rows"),
    [*((kind, "3") for kind in KINDS), ("shape", "N"), ("number", "N")],
)
def test_what_is_missing(kind: str, rows: str, runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    path = _written(kind, rows, tmp_path / "model.onnx")
    random = np.random.default_rng(0)
    x, seed = random.standard_normal((2, 3, 2)).astype(np.float32)
    m = np.array([[True, False], [False, True], [False, False]])
    found = nnef_grad.function(path, wrt=["x"], runtime=runtime)(x=x, m=m, seed=seed)
    missing = TABLE if kind == "some" else NAN
    np.testing.assert_array_equal(found.outputs["y"], np.where(m, x, missing))
    np.testing.assert_array_equal(found.gradients["x"], np.where(m, seed, 0.0))
