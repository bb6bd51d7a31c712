"""ONNX files that strangers wrote: their external data are files in the folder of the model.
Onnx itself opens none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad import interop
from nnef_grad.commandline.cli import main

pytest.importorskip("onnx")

import onnx
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

VALUES = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
SECRET = np.array([9.0, 9.0, 9.0, 9.0], np.float32)


def outside(location: str, name: str = "w", size: int = 4, **entries: object) -> Any:
    """A tensor whose data are in a file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[size])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write(path: Path, *nodes: Any, initializers: Any = (), **settings: Any) -> Path:
    """A file with some nodes, the last of which has the result y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        initializers,
    )
    settings.setdefault("opset_imports", [helper.make_opsetid("", 18)])
    model = helper.make_model(graph, **settings)
    path.write_bytes(model.SerializeToString())
    return path


PRODUCT = helper.make_node("Mul", ["x", "w"], ["y"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model, with data, a secret outside, and odd files."""
    folder = tmp_path / "model"
    (folder / "in").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    for place in (folder / "w.bin", folder / "in" / "w.bin"):
        place.write_bytes(VALUES.tobytes())
    (folder / "link.bin").symlink_to("../secret.bin")
    (folder / "near.bin").symlink_to("w.bin")
    (folder / "way").symlink_to("..")
    os.mkfifo(folder / "pipe.bin")
    monkeypatch.chdir(folder)
    return folder


PLACES: dict[str, tuple[str, dict[str, Any], str]] = {
    "above": ("../secret.bin", {}, "names no file in the folder of the model"),
    "far above": (f"{'../' * 40}etc/passwd", {}, "names no file"),
    "down and up": ("in/../../secret.bin", {}, "names no file"),
    "down and back": ("in/../w.bin", {}, "names no file"),
    "absolute": ("/etc/passwd", {}, "names no file"),
    "a drive": ("C:\\secret.bin", {}, "names no file"),
    "backward": ("..\\secret.bin", {}, "names no file"),
    "nothing": ("", {}, "names no file"),
    "itself": (".", {}, "names no file"),
    "null": ("w.bin\0", {}, "names no file"),
    "a link": ("link.bin", {}, "link.bin' is a symbolic link, but must be a file"),
    "a link inside": ("near.bin", {}, "near.bin' is a symbolic link"),
    "a way": ("way/secret.bin", {}, "way' is a symbolic link, but must be a folder"),
    "a pipe": ("pipe.bin", {}, "pipe.bin' is a pipe, but must be a file"),
    "a folder": ("in", {}, "in' is a folder, but must be a file"),
    "missing": (
        "v.bin",
        {},
        "m.onnx' needs the file 'v.bin', with the data of 'w': there is no '/.*v.bin'",
    ),
    "too short": ("w.bin", {"length": 12}, "have 16 bytes, and not 12"),
    "too long": ("w.bin", {"length": 20}, "have 16 bytes, and not 20"),
    "before": ("w.bin", {"offset": -4}, "are truncated"),
    "after": ("w.bin", {"offset": 4}, "are truncated"),
    "far after": ("w.bin", {"offset": 10**30}, "are truncated"),
    "no number": ("w.bin", {"offset": "x"}, "invalid literal"),
    "huge": ("w.bin", {"size": 10**15}, "are truncated"),
    "negative": ("w.bin", {"size": -4}, "are truncated|is negative"),
}


@pytest.mark.parametrize("what", PLACES)
def test_places_that_are_refused(what: str, folder: Path) -> None:
    location, entries, message = PLACES[what]
    write(folder / "m.onnx", PRODUCT, initializers=[outside(location, **entries)])
    for path in ("m.onnx", "./m.onnx", "../model/m.onnx", folder / "m.onnx"):
        with pytest.raises(nnef_grad.UsageError, match=message):
            interop.from_onnx(path)


@pytest.mark.parametrize(
    ("location", "entries"),
    [
        ("w.bin", {}),
        ("./w.bin", {}),
        ("in/w.bin", {"offset": 0, "length": 16}),
        ("in//w.bin", {}),
        ("in\\w.bin", {}),
    ],
)
def test_places_that_are_read(
    location: str, entries: dict[str, Any], folder: Path
) -> None:
    write(folder / "m.onnx", PRODUCT, initializers=[outside(location, **entries)])
    for path in ("m.onnx", "./m.onnx", "../model/m.onnx", folder / "m.onnx"):
        np.testing.assert_array_equal(interop.from_onnx(path).data["w"], VALUES)


def test_a_part_of_a_large_file(folder: Path) -> None:
    """More bytes than those of initializers that stay in the message."""
    values = np.arange(2**16, dtype=np.float32)
    (folder / "w.bin").write_bytes(bytes(8) + values.tobytes() + bytes(8))
    tensor = outside("w.bin", size=2**16, offset=8, length=2**18)
    graph = helper.make_graph(
        [PRODUCT],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2**16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2**16])],
        [tensor],
    )
    onnx.save(helper.make_model(graph), "m.onnx")
    np.testing.assert_array_equal(interop.from_onnx("m.onnx").data["w"], values)


# ---- Models that hubs keep as links ----


def hub(place: Path, data: str) -> Path:
    """A model and its data as links into one folder; `data` is where one of them leads."""
    blobs, snapshot = place / "blobs", place / "snapshots" / "main" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write(blobs / "0a1b", PRODUCT, initializers=[outside("m.onnx_data")])
    (blobs / "2c3d").write_bytes(VALUES.tobytes())
    (snapshot / "m.onnx").symlink_to("../../../blobs/0a1b")
    (snapshot / "m.onnx_data").symlink_to(data)
    return snapshot


@pytest.mark.usefixtures("folder")
def test_a_model_and_its_data_are_links_into_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hub(tmp_path, "../../../blobs/2c3d")
    monkeypatch.chdir(snapshot)
    for path in ("m.onnx", "./m.onnx", "../onnx/m.onnx", snapshot / "m.onnx"):
        np.testing.assert_array_equal(interop.from_onnx(path).data["w"], VALUES)


@pytest.mark.parametrize("data", ["../../../secret.bin", "../../../blobs/in/w.bin"])
@pytest.mark.usefixtures("folder")
def test_links_that_lead_elsewhere(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hub(tmp_path, data)
    (tmp_path / "blobs" / "in").mkdir()
    (tmp_path / "blobs" / "in" / "w.bin").write_bytes(SECRET.tobytes())
    monkeypatch.chdir(snapshot)
    for path in ("m.onnx", snapshot / "m.onnx"):
        with pytest.raises(nnef_grad.UsageError, match="is a symbolic link"):
            interop.from_onnx(path)
    # A copy of the model is no link: whatever is beside it must be a file.
    (snapshot / "copy.onnx").write_bytes((snapshot / "m.onnx").read_bytes())
    with pytest.raises(nnef_grad.UsageError, match="is a symbolic link"):
        interop.from_onnx("copy.onnx")


# ---- Tensors anywhere in a file ----


def constant(tensor: Any, name: str = "w") -> Any:
    return helper.make_node("Constant", [], [name], value=tensor)


def in_branch(tensor: Any, *, as_initializer: bool) -> list[Any]:
    """A condition whose branch has the tensor."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["z"])]
    if not as_initializer:
        nodes.insert(0, constant(tensor))
    result = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4])]
    own = [tensor] if as_initializer else []
    branch = helper.make_graph(nodes, "branch", [], result, own)
    true = numpy_helper.from_array(np.array(True))
    return [
        constant(true, "c"),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]


def as_fill(tensor: Any) -> list[Any]:
    tensor.dims[:] = [1]
    four = numpy_helper.from_array(np.array([4]))
    return [
        constant(four, "four"),
        helper.make_node("ConstantOfShape", ["four"], ["w"], value=tensor),
        PRODUCT,
    ]


def in_function(tensor: Any) -> dict[str, Any]:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    nodes = [constant(tensor), helper.make_node("Mul", ["x", "w"], ["y"])]
    function = helper.make_function("own", "F", ["x"], ["y"], nodes, opsets[:1])
    return {"functions": [function], "opset_imports": opsets}


def sparse(tensor: Any) -> Any:
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    tensor.name, tensor.data_type = "", TensorProto.INT64
    return helper.make_node(
        "Constant", [], ["w"], sparse_value=onnx.SparseTensorProto(
            values=values, indices=tensor, dims=[4]
        )
    )  # fmt: skip


OWN = helper.make_node("F", ["x"], ["y"], domain="own")
# How a file with a tensor is written, and whether its data are read then.
ANYWHERE: dict[str, Callable[[Path, Any], Path]] = {
    "a constant": lambda path, tensor: write(path, constant(tensor), PRODUCT),
    "a fill": lambda path, tensor: write(path, *as_fill(tensor)),
    "a branch": lambda path, tensor: write(
        path, *in_branch(tensor, as_initializer=False)
    ),
    "an initializer of a branch": lambda path, tensor: write(
        path, *in_branch(tensor, as_initializer=True)
    ),
    "a function": lambda path, tensor: write(path, OWN, **in_function(tensor)),
    "a sparse constant": lambda path, tensor: write(path, sparse(tensor), PRODUCT),
}


@pytest.mark.parametrize("what", ANYWHERE)
def test_tensors_anywhere_are_read_from_the_folder_of_the_model(
    what: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not from the current one, where another file may have the same name."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "w.bin").write_bytes(SECRET.tobytes())
    (here / "only_here.bin").write_bytes(SECRET.tobytes())
    monkeypatch.chdir(here)
    for location, message in (
        ("only_here.bin", "there is no '.*/model/only_here.bin'"),
        ("../secret.bin", "names no file"),
        ("link.bin", "is a symbolic link"),
    ):
        ANYWHERE[what](folder / "m.onnx", outside(location))
        with pytest.raises(nnef_grad.UsageError, match=message):
            interop.from_onnx("../model/m.onnx")
    if what == "a sparse constant":
        return
    ANYWHERE[what](folder / "m.onnx", outside("w.bin"))
    graph, data = (lambda m: (m.graph, m.data))(interop.from_onnx("../model/m.onnx"))
    factors = nnef_grad.evaluate(graph, {"x": np.ones(4, np.float32)}, data)["y"]
    filled = np.full(4, VALUES[0]) if what == "a fill" else VALUES
    np.testing.assert_array_equal(factors, filled)


# ---- Models that are no files ----


@pytest.mark.parametrize("ending", [".onnx", ".pt2", ".npz"])
@pytest.mark.usefixtures("folder")
def test_pipes_folders_and_devices(ending: str, tmp_path: Path) -> None:
    if ending == ".pt2":
        pytest.importorskip("torch")
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / f"device{ending}").symlink_to("/dev/zero")
    (tmp_path / "m.nnef").write_text(
        "version 1.0; graph g( x ) -> ( y ) { x = external(shape = [2]); y = exp(x); }"
    )
    for name, kind in {
        "pipe": "a pipe",
        "folder": "a folder",
        "device": "a device",
    }.items():
        path = str(tmp_path / f"{name}{ending}")
        checked = [str(tmp_path / "m.nnef"), "--check", "--inputs", path]
        words = checked if ending == ".npz" else [path]
        result = CliRunner().invoke(main, [*words, "-o", str(tmp_path / "out")])
        assert result.stderr == f"error: '{path}' is {kind}, but must be a file\n"
        assert (result.exit_code, (tmp_path / "out").exists()) == (2, False)
