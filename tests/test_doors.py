"""Every place where the command lines open a path, in all the ways in which users name one:
what a document names is read inside of its folder, and nothing is outside of it.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.storage.paths import file_beside

VALUES, SECRET = np.full(4, 2.0, np.float32), np.full(4, 9.0, np.float32)
TEXT = """version 1.0;
graph g( x ) -> ( y )
{
    x = external(shape = [4]);
    w = variable(shape = [4], label = 'LABEL');
    z = mul(x, w);
    y = exp(z);
}
"""
QUANT = '"z": linear_quantize(min = 0.0, max = 2.0, bits = 8);\n'
RULES = """fragment exp_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> )
-> ( dx: tensor<scalar> )
{
    dx = dy * y * 3.0;
}
"""


# ---- The ways ----

Way = Callable[[Path, pytest.MonkeyPatch], str]


def _bare(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.chdir(folder)
    return ""


def _dot(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.chdir(folder)
    return "./"


def _above(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.chdir(folder.parent)
    return f"{folder.name}/"


def _beside(folder: Path, patch: pytest.MonkeyPatch) -> str:
    (folder.parent / "beside").mkdir()
    patch.chdir(folder.parent / "beside")
    return f"../{folder.name}/"


def _absolute(folder: Path, _: pytest.MonkeyPatch) -> str:
    return f"{folder}/"


def _up_and_down(folder: Path, _: pytest.MonkeyPatch) -> str:
    return f"{folder}/../{folder.name}/./"


def _link(folder: Path, patch: pytest.MonkeyPatch) -> str:
    (folder.parent / "link").symlink_to(folder.name)
    patch.chdir(folder.parent)
    return "link/"


def _in_link(folder: Path, patch: pytest.MonkeyPatch) -> str:
    (folder.parent / "link").symlink_to(folder.name)
    patch.chdir(folder.parent / "link")
    return ""


WAYS: dict[str, Way] = {
    "bare": _bare,
    "dot": _dot,
    "above": _above,
    "beside": _beside,
    "absolute": _absolute,
    "up and down": _up_and_down,
    "link": _link,
    "in link": _in_link,
}


# ---- The doors ----


def tensor(values: np.ndarray[Any, Any]) -> bytes:
    head = b"\x4e\xef\x01\x00" + values.nbytes.to_bytes(4, "little")
    fields = [1, 4, *[0] * 7, 32, 0]
    return (head + b"".join(n.to_bytes(4, "little") for n in fields)).ljust(
        128, b"\0"
    ) + (values.tobytes())


def _text(folder: Path, *, evil: bool) -> None:
    (folder / "m.nnef").write_text(TEXT.replace("LABEL", "../secret" if evil else "w"))


def _text_with_link(folder: Path, *, evil: bool) -> None:
    _text(folder, evil=False)
    if evil:
        (folder / "w.dat").unlink()
        (folder / "w.dat").symlink_to("../secret.dat")


def _folder(folder: Path, *, evil: bool) -> None:
    (folder / "m").mkdir()
    _text_with_link(folder, evil=False)
    (folder / "m.nnef").rename(folder / "m" / "graph.nnef")
    if evil:
        (folder / "m" / "w.dat").symlink_to("../../secret.dat")
    else:
        (folder / "w.dat").rename(folder / "m" / "w.dat")


def _archive(folder: Path, *, evil: bool) -> None:
    names = {"graph.nnef": TEXT.replace("LABEL", "w").encode(), "w.dat": tensor(VALUES)}
    if evil:
        names["../secret.dat"] = b"overwritten"
    with tarfile.open(folder / "m.tgz", "w:gz") as archive:
        for name, data in names.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _quant(folder: Path, *, evil: bool) -> None:
    _text(folder, evil=False)
    (folder.parent / "secret.quant").write_text(QUANT)
    if evil:
        (folder / "m.quant").symlink_to("../secret.quant")
    else:
        (folder / "m.quant").write_text(QUANT)


def _onnx(folder: Path, *, evil: bool) -> None:
    onnx = pytest.importorskip("onnx")
    w = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=1)
    w.external_data.add(key="location", value="../secret.bin" if evil else "w.bin")
    values = [onnx.helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    nodes = [
        onnx.helper.make_node("Mul", ["x", "w"], ["z"]),
        onnx.helper.make_node("Exp", ["z"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", values[:1], values[1:], [w])
    model = onnx.helper.make_model(graph)
    (folder / "m.onnx").write_bytes(model.SerializeToString())


def _program(folder: Path, *, evil: bool) -> None:
    assert not evil, "it names no files"
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.from_numpy(VALUES.copy()))

        def forward(self, x: Any) -> Any:
            return torch.exp(x * self.w)

    program = torch.export.export(Model(), (torch.ones(4),))
    torch.export.save(program, folder / "m.pt2")


class Door(NamedTuple):
    """A way to store a model: how it is made, its name, and what is said of one that leads
    out, if that is possible.
    """

    make: Callable[..., None]
    name: str
    message: str = ""


DOORS = {
    "text": Door(_text, "m.nnef", "'../secret'"),
    "text with data beside it": Door(_text_with_link, "m.nnef", "is a symbolic link"),
    "folder": Door(_folder, "m", "is a symbolic link"),
    "archive": Door(_archive, "m.tgz", "leads out of the archive"),
    "quantization": Door(_quant, "m.nnef", "m.quant' is a symbolic link"),
    "onnx": Door(_onnx, "m.onnx", "names no file in the folder of the model"),
    "program": Door(_program, "m.pt2"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for place, values in ((folder / "w", VALUES), (tmp_path / "secret", SECRET)):
        place.with_suffix(".dat").write_bytes(tensor(values))
        place.with_suffix(".bin").write_bytes(values.tobytes())
    return folder


def run(*words: str) -> Any:
    return CliRunner().invoke(main, [*words, "--quiet"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("door", DOORS)
def test_what_is_inside_is_read(
    door: str, way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DOORS[door].make(folder, evil=False)
    prefix = WAYS[way](folder, monkeypatch)
    out, report = f"{prefix}out", f"{prefix}page.html"
    result = run(f"{prefix}{DOORS[door].name}", "-o", out, "--report", report)
    assert (result.exit_code, result.stderr) == (0, "")
    (values,) = nnef_grad.load_data(folder / "out").values()
    np.testing.assert_array_equal(values, VALUES)
    assert (folder / "page.html").is_file()
    assert (folder / "out" / "graph.quant").exists() == (door == "quantization")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("door", [name for name in DOORS if DOORS[name].message])
def test_what_leads_out_is_refused(
    door: str, way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DOORS[door].make(folder, evil=True)
    prefix = WAYS[way](folder, monkeypatch)
    result = run(f"{prefix}{DOORS[door].name}", "-o", f"{prefix}out")
    assert (result.exit_code, DOORS[door].message in result.stderr) == (2, True)
    assert not (folder / "out").exists()
    assert (folder.parent / "secret.bin").read_bytes() == SECRET.tobytes()
    assert (folder.parent / "secret.dat").read_bytes() == tensor(SECRET)


@pytest.mark.parametrize("way", WAYS)
def test_files_of_options(
    way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules, and inputs of a check."""
    _text(folder, evil=False)
    (folder / "r.nnef").write_text(RULES)
    np.savez(folder / "in.npz", x=VALUES)
    prefix = WAYS[way](folder, monkeypatch)
    model = f"{prefix}m.nnef"
    result = run(model, "--check", "--inputs", f"{prefix}in.npz", "-o", f"{prefix}out")
    assert result.exit_code == 0
    result = run(model, "--rules", f"{prefix}r.nnef")
    assert (result.exit_code, "3.0" in result.stdout) == (0, True)


def test_inputs_are_never_unpickled(folder: Path) -> None:
    class Written:
        def __reduce__(self) -> Any:
            return open, (str(folder / "marker"), "w")

    _text(folder, evil=False)
    np.savez(folder / "in.npz", x=np.array([Written()], object))
    result = run(str(folder / "m.nnef"), "--check", "--inputs", str(folder / "in.npz"))
    assert (result.exit_code, "allow_pickle" in result.stderr) == (2, True)
    assert not (folder / "marker").exists()


def test_the_root_is_a_folder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    place = Path(os.path.realpath(np.__file__)).relative_to("/")
    for model in ("/m.onnx", "m.onnx", "./m.onnx", "../m.onnx"):
        assert file_beside(Path(model), str(place)).size > 0
        with pytest.raises(nnef_grad.UsageError, match="names no file"):
            file_beside(Path(model), f"../{place}")
