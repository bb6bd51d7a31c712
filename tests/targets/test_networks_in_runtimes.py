"""Real networks with weights: a model folder in, a folder and an archive out, and what
the runtimes make of them.
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.networks import network_verdicts, stored_network
from support.runtimes import consumers_of, needs
from support.stored_models import run


def compile_to(output: Path, model: Path, target: str) -> Path:
    result = run(model, "-o", output, "--target", target)
    assert result.exit_code == 0, result.output
    return output


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder


def contents(folder: Path) -> Mapping[str, bytes]:
    """The files in a folder and its subfolders."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["resnet", "alexnet", "vgg"])
def test_a_stored_network_runs_everywhere(name: str, tmp_path: Path) -> None:
    runtimes = consumers_of("portable")
    needs(*runtimes)
    network = stored_network(name, tmp_path / "model")
    folder = compile_to(tmp_path / "backward", network.folder, "portable")
    archive = compile_to(tmp_path / "backward.tar", network.folder, "portable")
    assert contents(unpacked(archive, tmp_path / "unpacked")) == contents(folder)

    found = network_verdicts(network, folder, runtimes)
    assert {runtime: v.word for runtime, v in found.items()} == dict.fromkeys(
        runtimes, "ok"
    ), found


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["khronos", "tract", "onnx"])
def test_a_stored_network_runs_where_it_is_meant_to(
    target: str, tmp_path: Path
) -> None:
    runtimes = consumers_of(target)
    needs(*runtimes)
    network = stored_network("resnet", tmp_path / "model")
    archive = compile_to(tmp_path / "backward.nnef.tgz", network.folder, target)
    folder = unpacked(archive, tmp_path / "unpacked")
    found = network_verdicts(network, folder, runtimes)
    assert {runtime: v.word for runtime, v in found.items()} == dict.fromkeys(
        runtimes, "ok"
    ), found
