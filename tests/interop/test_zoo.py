"""A few files of `python -m support.zoo`, whose gradients are those of torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from support.zoo.compare import compare
from support.zoo.files import export, optimize, quantize
from support.zoo.members import make

# Of the packages, which these files need.
PACKAGES = "torchvision", "transformers"
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not all(map(find_spec, PACKAGES)),
        reason="needs pip install --group models",
    ),
]


# That of PyTorch which is slow to record what it does in a test is left to the script.
@pytest.mark.parametrize(
    ("network", "level", "how"),
    [
        # Tables of codes.
        ("distilbert", "O2", "dynamic"),
        # The logarithm of zero becomes a code, and then an integer.
        ("t5 encoder", "", "QDQ"),
    ],
)
def test_gradients_of_a_file(
    network: str, level: str, how: str, tmp_path: Path
) -> None:
    member, path = make(network), tmp_path / "plain.onnx"
    export(member, path, "dynamo=False")
    if level:
        plain, path = path, tmp_path / "fused.onnx"
        optimize(member, plain, path, level)
    if how:
        plain, path = path, tmp_path / "codes.onnx"
        quantize(member, plain, path, how)
    found = compare(member, path, is_plain=False)
    assert found.gradients > 15
    assert found.exact < 1e-5
