"""What Khronos' converter writes of ONNX files: it may compute something else than the file,
which a warning says, and which is repaired on request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from nnef_tools.conversion.onnx_to_nnef import Converter
from nnef_tools.io.nnef import Writer

import nnef_grad
from nnef_grad.commandline.cli import main

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

LSTM = """
<ir_version: 8, opset_import: ["": 14]>
net (float[5, 2, 4] x, float[1, 12, 4] w, float[1, 12, 3] r, float[1, 24] b,
     float[1, 2, 3] h, float[1, 2, 3] c) => (float[1, 2, 3] y, float[1, 2, 3] z)
{
    s, y, z = LSTM <hidden_size = 3> (x, w, r, b, , h, c)
}
"""
DEPTH = """
<ir_version: 8, opset_import: ["": 13]>
net (float[1, 3, 4, 6] x) => (float[1, 12, 2, 3] y)
{
    y = SpaceToDepth <blocksize = 2> (x)
}
"""


def converted(text: str, folder: Path) -> Any:
    """What ONNX Runtime computes of random inputs, and these; the model is in net/."""
    from nnef_tools.io.onnx import Reader

    model = onnx.parser.parse_model(text)
    onnx.save(model, folder / "net.onnx")
    definitions = Converter.defined_operations()
    needed = Converter.defined_operation_dependencies()
    graph = Converter(keep_io_names=True)(Reader()(str(folder / "net.onnx")))
    Writer(fragments=definitions, fragment_dependencies=needed)(
        graph, str(folder / "net")
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(0).standard_normal
    fed = {x.name: random(x.shape).astype(np.float32) for x in session.get_inputs()}
    names = [y.name for y in session.get_outputs()]
    return fed, dict(zip(names, session.run(names, fed), strict=True))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (LSTM, "[i, o, f, g] = split(z, axis = 1, ratios = [1, 1, 1, 1])"),
        (DEPTH, "y = reshape(t, axis_start = 1, axis_count = 3, shape = [-1])"),
    ],
)
def test_what_is_meant(text: str, meant: str, tmp_path: Path) -> None:
    fed, wanted = converted(text, tmp_path)
    strict = nnef_grad.load(tmp_path / "net")
    (warning,) = strict.warnings
    assert warning.message.endswith(f": write {meant}")
    assert warning.span is not None
    graph = nnef_grad.load(tmp_path / "net", lenient=True)
    assert [w.message for w in graph.warnings] == [f"read as {meant}"]
    found = nnef_grad.evaluate(graph, fed)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, 1e-5, 1e-6)
    written = nnef_grad.evaluate(strict, fed)
    assert any(
        array.shape != written[name].shape or not np.allclose(array, written[name])
        for name, array in wanted.items()
    )


def test_the_command_says_how(tmp_path: Path) -> None:
    converted(LSTM, tmp_path)
    out = str(tmp_path / "out.nnef")
    told = CliRunner().invoke(main, [str(tmp_path / "net"), "-q", "-o", out]).stderr
    assert "[1, 1, 1, 1]), or read it with --lenient\n" in told


def test_what_reads_alike_is_left_alone(tmp_path: Path) -> None:
    """Fragments of that name with another body, and other names with that body."""
    converted(LSTM, tmp_path)
    text = (tmp_path / "net/graph.nnef").read_text("utf-8")
    for old, new in (("lstm_step", "step"), ("[i, f, g, o]", "[i, o, f, g]")):
        graph = nnef_grad.loads(text.replace(old, new), lenient=True)
        assert graph.warnings == ()
