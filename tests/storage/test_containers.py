"""Models as they are exchanged: texts, folders and archives, with the data of their
variables.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import subprocess
import sys
import tarfile
import tracemalloc
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nnef
import numpy as np
import pytest
from support.processes import environment
from support.stored_models import (
    DATA,
    FORMS,
    MODEL,
    QUANT,
    USED,
    Array,
    as_folder,
    as_tar,
    as_text,
    as_tgz,
    files,
    names,
    run,
    tensor,
    write_archive,
    write_files,
)

import nnef_grad
from nnef_grad.storage import paths
from nnef_grad.storage.files import (
    UNFINISHED,
    unfinished_folder,
    write_texts,
)
from nnef_grad.storage.output import ModelFormat, format_of

OUTS = {"text": "out.nnef", "folder": "out", "tgz": "out.nnef.tgz", "tar": "out.tar"}


def contents(path: Path) -> dict[str, bytes]:
    """The files of a model, read by others."""
    if path.is_dir():
        found = (p for p in path.rglob("*") if p.is_file())
        return {str(p.relative_to(path)): p.read_bytes() for p in found}
    with tarfile.open(path) as archive:
        members = [(m.name, archive.extractfile(m)) for m in archive.getmembers()]
        return {name: file.read() for name, file in members if file is not None}


# ---- There and back ----


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("form", FORMS)
def test_from_every_form_to_every_form(form: str, out: str, tmp_path: Path) -> None:
    model = FORMS[form](tmp_path / "in")
    target = tmp_path / OUTS[out]
    before = names(tmp_path)
    result = run(model, "-o", target, "-q")
    assert (result.exit_code, result.stderr) == (0, "")
    backward = nnef_grad.differentiate(nnef_grad.loads(MODEL, quant=QUANT))
    written = nnef_grad.load(target)
    expected = nnef_grad.loads(nnef_grad.dumps(backward))
    assert nnef_grad.dumps(written) == nnef_grad.dumps(expected)
    assert list(written.quantization) == ["x", "conv"]
    if out == "text":
        assert set(names(tmp_path)) - set(before) == {"out.nnef", "out.quant"}
    else:
        check_contents(target, {label: DATA[label] for label in USED})


def check_contents(target: Path, data: Mapping[str, Array]) -> None:
    found = contents(target)
    texts = [name for name in found if not name.endswith(".dat")]
    assert sorted(texts) == ["graph.nnef", "graph.quant"]
    assert {n: d for n, d in found.items() if n not in texts} == {
        f"{label}.dat": tensor(array) for label, array in data.items()
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_data_are_read_by_label(form: str, tmp_path: Path) -> None:
    data = nnef_grad.load_data(FORMS[form](tmp_path))
    assert isinstance(data, nnef_grad.VariableData)
    assert set(data) == set(DATA)
    assert len(data) == 4
    for label, array in DATA.items():
        for written in (label, label.upper(), label.replace("/", "\\")):
            assert written in data
            np.testing.assert_array_equal(data[written], array, strict=True)
        assert data.header(label).shape == array.shape
    assert "missing" not in data
    assert ".." not in data
    with pytest.raises(KeyError, match="missing"):
        data["missing"]
    assert data.get("missing") is None


@pytest.mark.parametrize("name", ["out.zip", "out.nnef.gz", "OUT.7Z"])
def test_names_of_something_else(name: str, tmp_path: Path) -> None:
    out = tmp_path / name
    result = run(as_folder(tmp_path), "-o", out)
    assert result.exit_code == 2
    assert (
        "does not have the suffix of a text or an archive: .nnef, .tgz, .tar.gz, .tar"
        in result.stderr
    )
    assert not out.exists()
    out.mkdir()
    assert run(tmp_path / "model", "-o", out).exit_code == 0


@pytest.mark.parametrize("out", ["folder", "tgz", "tar"])
def test_arrays_are_written(out: str, tmp_path: Path) -> None:
    target = tmp_path / OUTS[out]
    graph = nnef_grad.loads(MODEL, quant=QUANT)
    extra = {"extra": np.zeros(3), "CONV/FILTER": DATA["conv/filter"]}
    data = {label: array for label, array in DATA.items() if label != "conv/filter"}
    nnef_grad.save(graph, target, data={**data, **extra})
    check_contents(target, DATA)


def test_the_khronos_tools_read_what_is_written(tmp_path: Path) -> None:
    graph = nnef_grad.loads(MODEL)
    nnef_grad.save(graph, tmp_path / "out", data=DATA)
    read = nnef.load_graph(str(tmp_path / "out"))
    np.testing.assert_array_equal(read.tensors["filter"].data, DATA["conv/filter"])
    nnef_grad.save(graph, tmp_path / "out.tgz", data=DATA)
    from nnef_tools.io.nnef.reader import Reader

    converted = Reader(infer_shapes=False)(str(tmp_path / "out.tgz"))
    (found,) = [t for t in converted.tensors if t.name == "filter"]
    np.testing.assert_array_equal(found.data, DATA["conv/filter"])


def test_data_of_several_sources(tmp_path: Path) -> None:
    stored = nnef_grad.load_data(as_folder(tmp_path))
    data = ChainMap({"gain": np.ones((1, 5))}, stored)  # type: ignore[arg-type]
    nnef_grad.save(nnef_grad.loads(MODEL, quant=QUANT), tmp_path / "out", data=data)
    check_contents(tmp_path / "out", {**DATA, "gain": np.ones((1, 5))})
    path = "conv/filter.dat"
    assert (tmp_path / "out" / path).samefile(tmp_path / "model" / path)


# ---- What is read ----


def test_what_a_file_is_counts_and_not_its_name(tmp_path: Path) -> None:
    archive = as_tgz(tmp_path).rename(tmp_path / "archive.nnef")
    assert nnef_grad.load(archive).name == "net"
    plain = as_tar(tmp_path).rename(tmp_path / "plain")
    assert nnef_grad.load(plain).name == "net"
    text = tmp_path / "text.tgz"
    text.write_text(MODEL)
    assert nnef_grad.load(text).name == "net"


@pytest.mark.parametrize("format", [0, 1, 2], ids=["ustar", "gnu", "pax"])
@pytest.mark.parametrize("prefix", ["", "./", ".//./"])
def test_archives_of_other_tools(format: int, prefix: str, tmp_path: Path) -> None:
    label = "/".join(["a_folder_with_a_long_name"] * 8) if format else "short"
    text = MODEL.replace("'gain'", f"'{label}'")
    stored = files(text, data={**DATA, label: DATA["gain"]})
    path = write_archive(
        tmp_path / "model.tgz",
        {prefix + name: data for name, data in stored.items()},
        format=format,
    )
    assert nnef_grad.load(path).name == "net"
    np.testing.assert_array_equal(nnef_grad.load_data(path)[label], DATA["gain"])


def test_an_archive_of_a_folder_and_things_of_others(tmp_path: Path) -> None:
    folder = as_folder(tmp_path)
    (folder / "vendor").mkdir()
    (folder / "vendor" / "kernel.bin").write_bytes(bytes(3000))
    (folder / "conv" / "filter.dat.q8").write_bytes(b"another version")
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.pax_headers = {"comment": "made by hand"}
        archive.add(folder, ".")
    data = nnef_grad.load_data(path)
    assert set(data) == set(DATA)
    np.testing.assert_array_equal(data["gain"], DATA["gain"])
    assert run(folder, "-o", tmp_path / "out", "-q").exit_code == 0
    check_contents(tmp_path / "out", {label: DATA[label] for label in USED})


def test_the_tar_command_packs_and_unpacks(tmp_path: Path) -> None:
    folder = as_folder(tmp_path)
    subprocess.run(
        ["tar", "-czf", "m.tgz", "-C", folder, "."], cwd=tmp_path, check=True
    )
    assert run(tmp_path / "m.tgz", "-o", tmp_path / "out.tgz", "-q").exit_code == 0
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xzf", "../out.tgz"], cwd=tmp_path / "out", check=True)
    check_contents(tmp_path / "out", {label: DATA[label] for label in USED})


def test_a_label_that_is_written_in_two_ways_is_one(tmp_path: Path) -> None:
    text = MODEL.replace("'deep/in/offset'", "'GAIN'")
    graph = nnef_grad.loads(text)
    nnef_grad.save(graph, tmp_path / "out", data=DATA)
    found = contents(tmp_path / "out")
    assert found["gain.dat"] == found["GAIN.dat"] == tensor(DATA["gain"])


def test_of_two_files_the_one_in_the_same_letters_is_meant(tmp_path: Path) -> None:
    folder = as_folder(tmp_path)
    (folder / "GAIN.dat").write_bytes(tensor(np.ones(3)))
    data = nnef_grad.load_data(folder)
    assert data["gain"].shape == (1, 5)
    assert data["GAIN"].shape == (3,)
    with pytest.raises(
        nnef_grad.UsageError, match=r"has both 'GAIN.dat' and 'gain.dat'"
    ):
        data["Gain"]
    archive = write_archive(tmp_path / "m.tgz", contents(folder))
    data = nnef_grad.load_data(archive)
    assert data["GAIN"].shape == (3,)
    with pytest.raises(nnef_grad.UsageError, match="which one is meant"):
        data["Gain"]


ARRAYS = [
    np.array([[1, 2], [3, 4]], np.float16),
    np.float32(3.5),
    np.array([0.1]),
    np.arange(6, dtype=">f4").reshape(2, 3),
    np.arange(6, dtype="f4").reshape(2, 3).T,
    np.arange(24, dtype="f8").reshape(2, 3, 4)[:, ::2],
    np.arange(6, dtype="i1"),
    np.arange(6, dtype="u1"),
    np.arange(6, dtype=">i2"),
    np.arange(6, dtype="u2"),
    np.arange(6, dtype="i4"),
    np.arange(6, dtype="u4"),
    np.arange(6, dtype="i8"),
    np.arange(6, dtype="u8"),
    np.array([[True, False, True]] * 7),
    np.array(True),
]
DTYPES = {"f": "scalar", "i": "integer", "u": "integer", "b": "logical"}


@pytest.mark.parametrize("out", ["out", "out.tar"])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.str}{list(a.shape)}")
def test_arrays_of_every_type(array: Any, out: str, tmp_path: Path) -> None:
    array = np.asarray(array)
    graph = declaring(DTYPES[array.dtype.kind], array.shape)
    nnef_grad.save(graph, tmp_path / out, data={"v": array})
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    stored = contents(tmp_path / out)["v.dat"]
    assert stored == tensor(native.reshape(array.shape))
    read = nnef_grad.load_data(tmp_path / out)["v"]
    np.testing.assert_array_equal(read, array)
    assert (read.dtype, read.flags.writeable) == (native.dtype, False)


def declaring(dtype: str, shape: tuple[int, ...]) -> nnef_grad.Graph:
    return nnef_grad.loads(
        "version 1.0;\ngraph net( x ) -> ( y )\n{\n    x = external(shape = [1]);\n"
        f"    v = variable<{dtype}>(shape = {list(shape)}, label = 'v');\n    y = copy(v);\n}}\n"
    )


def header(code: int, bits: int, shape: list[int], length: int) -> bytes:
    extents = [*shape, *[0] * (8 - len(shape))]
    fields = np.array([length, len(shape), *extents, bits, code], "<u4")
    return (b"\x4e\xef\x01\x00" + fields.tobytes()).ljust(128, b"\0")


def test_bools_of_eight_bits_are_read(tmp_path: Path) -> None:
    stored = header(5, 8, [2, 2], 4) + bytes([0, 1, 255, 0])
    write_files(tmp_path, {"v.dat": stored, "graph.nnef": MODEL.encode()})
    read = nnef_grad.load_data(tmp_path)["v"]
    np.testing.assert_array_equal(read, [[False, True], [True, False]], strict=True)


@pytest.mark.parametrize(
    ("code", "bits", "length", "message"),
    [
        (2, 8, 5, "contains quantized codes"),
        (3, 4, 3, "contains quantized codes"),
    ],
)
def test_codes_of_a_quantization_travel_but_are_no_values(
    code: int, bits: int, length: int, message: str, tmp_path: Path
) -> None:
    folder = as_folder(tmp_path)
    stored = header(code, bits, [1, 5], length) + bytes(range(length))
    (folder / "gain.dat").write_bytes(stored)
    with pytest.raises(nnef_grad.UsageError, match=message):
        nnef_grad.load_data(folder)["gain"]
    assert run(folder, "-o", tmp_path / "out", "-q", "--check").exit_code == 0
    assert (tmp_path / "out" / "gain.dat").read_bytes() == stored


def test_items_that_numpy_does_not_have(tmp_path: Path) -> None:
    stored = header(1, 4, [3], 2) + b"\x12\x30"
    write_files(tmp_path, {"v.dat": stored})
    with pytest.raises(
        nnef_grad.UsageError, match="numpy has no unsigned integer of 4 bits"
    ):
        nnef_grad.load_data(tmp_path)["v"]
    nnef_grad.save(
        declaring("integer", (3,)), tmp_path / "out", data=nnef_grad.load_data(tmp_path)
    )
    assert (tmp_path / "out" / "v.dat").read_bytes() == stored


# ---- Data and declarations ----


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("out", ["out", "out.tgz"])
def test_data_that_are_missing(form: str, out: str, tmp_path: Path) -> None:
    stored = {"gain": DATA["gain"], "deep/in/offset": DATA["deep/in/offset"]}
    folder = write_files(tmp_path / "model", files(data=stored))
    model = {
        "text": folder / "graph.nnef",
        "folder": folder,
        "tgz": write_archive(tmp_path / "m.tgz", contents(folder)),
        "tar": write_archive(tmp_path / "m.tar", contents(folder), "w:"),
    }[form]
    before = names(tmp_path)
    result = run(model, "-o", tmp_path / out)
    assert result.exit_code == 2
    place = "/graph.nnef" if form != "text" else ""
    assert result.stderr.splitlines()[::3] == [
        f"{model}{place}:6:14: error: variable 'conv/filter' of type scalar and shape [5, 3, 3, 3] has no data",
        f"{model}{place}:7:12: error: variable 'Conv/Bias' of type scalar and shape [1, 5] has no data",
    ]
    assert names(tmp_path) == before
    # What the backward graph does not declare is not missed.
    assert run(model, "-o", tmp_path / out, "--wrt", "offset").exit_code == 0


@pytest.mark.parametrize("out", ["out", "out.tgz", "out/"])
def test_a_model_without_any_data(out: str, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "model", files(data={}))
    assert run(folder, "-o", f"{tmp_path}/{out}", "-q").exit_code == 0
    assert sorted(contents(tmp_path / out)) == ["graph.nnef", "graph.quant"]


def test_a_model_from_stdin_has_no_data(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from nnef_grad.commandline.cli import main

    out = tmp_path / "out"
    assert CliRunner().invoke(main, ["-", "-o", str(out)], input=MODEL).exit_code == 0
    assert names(out) == ["graph.nnef"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((5, 1)), "is given data of shape [5, 1]"),
        (np.ones((1, 5), int), "is given data of type signed integer"),
        (np.ones((1, 5), bool), "is given data of type bool"),
        (np.ones((1, 5), complex), "is given data of type complex128"),
        (np.ones((1, 5), np.longdouble), "is given data of type float128"),
        (np.array([["a"] * 5]), "is given data of type <U1"),
        ([[1.0, 2.0], [3.0]], "are not an array: "),
    ],
)
def test_arrays_that_do_not_fit(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        nnef_grad.save(
            nnef_grad.loads(MODEL), tmp_path / "out", data={**DATA, "gain": given}
        )
    assert message in caught.value.message
    assert "variable 'gain' of type scalar and shape [1, 5]" in caught.value.message
    assert str(caught.value.span) == "<string>:8:12"
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((5, 1), "f4"), "has data in '{}' of shape [5, 1]"),
        (np.ones((1, 5), "i4"), "has data in '{}' of type signed integer"),
    ],
)
@pytest.mark.parametrize("arguments", [["-o", "out"], ["-o", "out.tgz"], ["--check"]])
def test_files_that_do_not_fit(
    given: Any, message: str, arguments: list[str], tmp_path: Path
) -> None:
    folder = write_files(tmp_path / "model", files(data={**DATA, "gain": given}))
    arguments = [a.replace("out", f"{tmp_path}/out") for a in arguments]
    result = run(folder, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{folder}/graph.nnef:8:12: error: ")
    assert message.format(folder / "gain.dat") in result.stderr
    assert names(tmp_path) == ["model", *(f"model/{n}" for n in names(folder))]


def test_two_arrays_for_one_label(tmp_path: Path) -> None:
    with pytest.raises(nnef_grad.UsageError, match="two variables with the label"):
        nnef_grad.save(
            nnef_grad.loads(MODEL), tmp_path / "out", data={**DATA, "Gain": 1.0}
        )


def test_too_much_for_a_tensor_file(tmp_path: Path) -> None:
    graph = declaring("scalar", (2**15, 2**15))
    array = np.broadcast_to(np.float32(0), (2**15, 2**15))
    with pytest.raises(nnef_grad.UsageError, match="4294967296 bytes: too much"):
        nnef_grad.save(graph, tmp_path / "out", data={"v": array})
    graph = declaring("scalar", (1,) * 9)
    with pytest.raises(nnef_grad.UsageError, match="of rank 9 and 8 bytes: too much"):
        nnef_grad.save(graph, tmp_path / "out", data={"v": np.ones((1,) * 9)})


def test_a_text_takes_no_data(tmp_path: Path) -> None:
    with pytest.raises(nnef_grad.UsageError, match="is a text, which cannot hold data"):
        nnef_grad.save(nnef_grad.loads(MODEL), tmp_path / "x.nnef", data=DATA)
    assert names(tmp_path) == []


def test_check_takes_the_values_of_the_model(tmp_path: Path) -> None:
    text = MODEL.replace("relu(conv)", "sqrt(bias)")
    values = {**DATA, "Conv/Bias": np.full((1, 5), -1.0)}
    folder = write_files(tmp_path / "model", files(text, data=values))
    result = run(folder, "--check", "--wrt", "gain")
    assert result.exit_code == 2
    assert "the outputs of 'net' are not finite" in result.stderr
    write_files(folder, {"Conv/Bias.dat": tensor(np.full((1, 5), 4.0))})
    result = run(folder, "--check", "--wrt", "gain", "-o", tmp_path / "out.tgz")
    assert result.exit_code == 0
    assert "1 gradient checked (seed 0): all agree" in result.stderr
    (folder / "Conv" / "Bias.dat").unlink()
    assert run(folder, "--check", "--wrt", "gain").exit_code == 0


# ---- What is written ----


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("model.nnef", ModelFormat.TEXT),
        ("model.txt", ModelFormat.TEXT),
        ("model.nnef.tgz", ModelFormat.ARCHIVE),
        ("model.tgz", ModelFormat.ARCHIVE),
        ("MODEL.TAR.GZ", ModelFormat.ARCHIVE),
        ("model.tar", ModelFormat.ARCHIVE),
        (".tar", ModelFormat.ARCHIVE),
        ("model", ModelFormat.FOLDER),
        ("model.v1/", ModelFormat.FOLDER),
        ("model.tgz/", ModelFormat.FOLDER),
        ("folder.v2", ModelFormat.FOLDER),
        (".", ModelFormat.FOLDER),
        ("..", ModelFormat.FOLDER),
        ("text", ModelFormat.TEXT),
        ("/dev/null", ModelFormat.TEXT),
    ],
)
def test_the_name_decides_what_is_written(
    path: str, form: ModelFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.v2").mkdir()
    Path("text").touch()
    assert format_of(path) is form


def test_files_of_a_folder_are_shared(tmp_path: Path) -> None:
    for model in (as_folder(tmp_path), as_text(tmp_path / "beside")):
        out = tmp_path / f"out_of_{model.parent.name}"
        assert run(model, "-o", out, "-q").exit_code == 0
        folder = model if model.is_dir() else model.parent
        for label in USED:
            path = f"{label}.dat"
            assert (folder / path).stat().st_ino == (out / path).stat().st_ino
        assert (folder / "deep" / "in" / "offset.dat").stat().st_nlink == 1


def test_files_are_copied_where_they_cannot_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def across(*arguments: object, **options: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", across)
    folder = as_folder(tmp_path)
    assert run(folder, "-o", tmp_path / "out", "-q").exit_code == 0
    check_contents(tmp_path / "out", {label: DATA[label] for label in USED})
    assert (folder / "gain.dat").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["out.tgz", "out.tar"])
def test_the_same_model_gives_the_same_archive(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nnef_grad.loads(MODEL, quant=QUANT)
    first, second = tmp_path / name, tmp_path / f"another_{name}"
    nnef_grad.save(graph, first, data=DATA)
    monkeypatch.setattr("time.time", lambda: 2e9)
    nnef_grad.save(graph, second, data=dict(reversed(DATA.items())))
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        members = archive.getmembers()
    expected = ["graph.nnef", "graph.quant", *sorted(f"{label}.dat" for label in DATA)]
    assert [m.name for m in members] == expected
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {
        (0, 0, 0, "", "", 0o644)
    }
    if name == "out.tgz":
        assert first.read_bytes()[4:8] == bytes(4)
        gzip.decompress(first.read_bytes())


def test_from_one_archive_to_another_the_order_stays(tmp_path: Path) -> None:
    stored = dict(reversed(files().items()))
    model = write_archive(tmp_path / "m.tgz", stored)
    assert run(model, "-o", tmp_path / "out.tgz", "-q").exit_code == 0
    found = list(contents(tmp_path / "out.tgz"))
    wanted = [f"{label}.dat" for label in reversed(USED)]
    assert found == ["graph.nnef", "graph.quant", *wanted]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_are_those_of_new_files(mask: int, tmp_path: Path) -> None:
    previous = os.umask(mask)
    try:
        for out in ("out", "out.tgz"):
            nnef_grad.save(nnef_grad.loads(MODEL), tmp_path / out, data=DATA)
    finally:
        os.umask(previous)

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(tmp_path / "out.tgz") == 0o666 & ~mask
    folder = tmp_path / "out"
    assert mode(folder) == mode(folder / "conv") == 0o777 & ~mask
    assert mode(folder / "graph.nnef") == mode(folder / "gain.dat") == 0o666 & ~mask


# ---- What is replaced ----


@pytest.mark.parametrize("out", ["out", "out.tgz"])
def test_a_model_is_replaced_with_force_only(out: str, tmp_path: Path) -> None:
    target = tmp_path / out
    graph = nnef_grad.loads(MODEL, quant=QUANT)
    nnef_grad.save(graph, target, data=DATA)
    target.chmod(0o750)
    before = contents(target)
    model = as_folder(tmp_path)
    result = run(model, "-o", target)
    assert result.exit_code == 2
    assert "exists already: use --force to replace it" in result.stderr
    with pytest.raises(nnef_grad.UsageError, match="exists already"):
        nnef_grad.save(graph, target, data=DATA)
    assert contents(target) == before
    assert run(model, "-o", target, "--force", "-q").exit_code == 0
    check_contents(target, {label: DATA[label] for label in USED})
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["model", out])


def test_an_empty_folder_is_filled_without_force(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o700)
    assert run(as_folder(tmp_path), "-o", tmp_path / "out", "-q").exit_code == 0
    check_contents(tmp_path / "out", {label: DATA[label] for label in USED})


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("real")
    model = as_folder(tmp_path)
    for _ in range(2):
        assert run(model, "-o", f"{tmp_path}/out/", "--force", "-q").exit_code == 0
        assert (tmp_path / "out").is_symlink()
        check_contents(tmp_path / "real", {label: DATA[label] for label in USED})


def a_file_of_others(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def a_nested_file_of_others(folder: Path) -> None:
    (folder / "conv" / "notes").write_text("mine")


def a_nested_model(folder: Path) -> None:
    write_files(folder / "inner", {"graph.nnef": b"mine"})


def a_link_in_it(folder: Path) -> None:
    (folder / "w.dat").symlink_to("gain.dat")


def no_graph(folder: Path) -> None:
    (folder / "graph.nnef").unlink()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (a_file_of_others, "it has 'notes.txt'"),
        (a_nested_file_of_others, "it has 'conv/notes'"),
        (a_nested_model, "it has 'inner/graph.nnef'"),
        (a_link_in_it, "it has 'w.dat'"),
        (no_graph, "it has no graph.nnef"),
    ],
)
def test_only_the_folder_of_a_model_is_replaced(
    change: Any, why: str, tmp_path: Path
) -> None:
    model = as_folder(tmp_path)
    out = write_files(tmp_path / "out", files())
    change(out)
    before = names(tmp_path)
    result = run(model, "-o", out, "--force")
    message = f"error: '{out}' is not replaced, because it is not the folder of a model: {why}\n"
    assert (result.exit_code, result.stderr) == (2, message)
    assert names(tmp_path) == before


def test_a_model_does_not_replace_itself(tmp_path: Path) -> None:
    folder, archive = as_folder(tmp_path), as_tgz(tmp_path)
    text = as_text(tmp_path / "beside")
    for model, out in [
        (folder, folder),
        (folder, f"{folder}/"),
        (folder, folder.parent),
        (folder / "graph.nnef", folder),
        (archive, archive),
        (text, text.parent),
    ]:
        before = names(tmp_path)
        result = run(model, "-o", out, "--force")
        assert result.exit_code == 2
        assert "is the model itself, or where it is stored" in result.stderr
        assert names(tmp_path) == before


def test_a_model_may_be_written_into_a_model(tmp_path: Path) -> None:
    folder = as_folder(tmp_path)
    assert run(folder, "-o", folder / "backward", "-q").exit_code == 0
    check_contents(folder / "backward", {label: DATA[label] for label in USED})
    # But not in the place of its data.
    result = run(folder, "-o", folder / "conv", "--force")
    assert (result.exit_code, "it has no graph.nnef" in result.stderr) == (2, True)


def test_a_text_in_the_folder_of_a_model_has_its_data(tmp_path: Path) -> None:
    folder = as_folder(tmp_path)
    assert run(folder, "-o", folder / "bwd.nnef", "-q").exit_code == 0
    assert run(folder / "bwd.nnef", "-o", tmp_path / "second.tgz", "-q").exit_code == 0
    assert set(nnef_grad.load_data(tmp_path / "second.tgz")) <= set(DATA)


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = as_folder(tmp_path)
    (tmp_path / "out" / "in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "out" / "in")
    for out in (".", "..", tmp_path / "out"):
        result = run(model, "-o", out, "--force")
        assert result.exit_code == 2
        assert "is the current folder, which cannot be replaced" in result.stderr


def test_a_program_may_write_where_it_reads(tmp_path: Path) -> None:
    graph = nnef_grad.loads(MODEL, quant=QUANT)
    for model in (as_folder(tmp_path), as_tgz(tmp_path), as_tar(tmp_path)):
        data = nnef_grad.load_data(model)
        nnef_grad.save(graph, model, data=data, overwrite=True)
        check_contents(model, DATA)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "model",
        "model.nnef.tgz",
        "model.tar",
    ]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("file/", "is a file, not a folder"),
        ("folder.tgz", "is not a file, and cannot be replaced by one"),
        ("/dev/null", "is not a file, and cannot be replaced by one"),
        ("no/such/out", "No such file or directory"),
        ("no/such/out.tgz", "No such file or directory"),
        ("file/out", "Not a directory"),
    ],
)
def test_places_that_nothing_can_be_written_to(
    out: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = as_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("folder.tgz").mkdir()
    Path("file").write_text("mine")
    before = names(tmp_path)
    result = run(model, "-o", out, "--force")
    assert result.exit_code == 2
    assert message in result.stderr
    assert names(tmp_path) == before


# ---- What is left after ----


@pytest.mark.parametrize("out", ["out", "out.tgz", "out.nnef"])
def test_what_a_killed_program_left_is_removed(out: str, tmp_path: Path) -> None:
    model = as_folder(tmp_path)
    write_files(tmp_path / f".{out}.abcd1234{UNFINISHED}", files())
    (tmp_path / f".{out}.defg1234{UNFINISHED}").write_text("half")
    if out == "out":
        write_files(tmp_path / f".{out}.ghij1234.nnef-grad-replaced", files())
    mine = [
        f".{out}.mine",
        f".other.abcd1234{UNFINISHED}",
        f"{out}.abcd1234{UNFINISHED}",
        f".{out}.v2.abcd1234.nnef-grad-replaced",
    ]
    for name in mine:
        (tmp_path / name).write_text("mine")
    assert run(model, "-o", tmp_path / out, "-q", "--wrt", "x").exit_code == 0
    beside = ["out.quant"] if out == "out.nnef" else []
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == sorted([*mine, "model", out, *beside])


def test_what_another_program_is_writing_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with unfinished_folder(path) as theirs, unfinished_folder(path) as folder:
        another = folder / path.name
        another.write_text("theirs")
        write_texts({path: "mine"}, overwrite=False)
        assert theirs.is_dir()
        assert another.is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


# ---- What is held in memory ----


MEGABYTE = 2**20
LARGE = np.zeros(4 * MEGABYTE, np.float32)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models with two tensors of 16 MB."""
    folder = tmp_path_factory.mktemp("large")
    text = (
        "version 1.0;\ngraph net( x ) -> ( z )\n{\n    x = external(shape = [4194304]);\n"
        "    v = variable(shape = [4194304], label = 'v');\n    w = variable(shape = [4194304], label = 'w');\n"
        "    y = mul(x, v);\n    z = mul(y, w);\n}\n"
    )
    stored = {
        "graph.nnef": text.encode(),
        "v.dat": tensor(LARGE),
        "w.dat": tensor(LARGE),
    }
    write_files(folder / "model", stored)
    write_archive(folder / "model.tar", stored, "w:")
    with tarfile.open(folder / "model.tgz", "w:gz", compresslevel=1) as archive:
        archive.add(folder / "model", ".")
    return folder


@pytest.mark.parametrize("model", ["model", "model.tar", "model.tgz"])
@pytest.mark.parametrize("out", ["out", "out.tar", "out.tgz"])
def test_data_are_streamed(
    model: str, out: str, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths.FileInFolder, "_link", lambda *arguments: False)
    graph = nnef_grad.load(large / model)
    with measured() as peak:
        nnef_grad.save(graph, tmp_path / out, data=nnef_grad.load_data(large / model))
    assert peak[0] < 8 * MEGABYTE
    assert len(nnef_grad.load_data(tmp_path / out)) == 2


@pytest.mark.parametrize("out", ["out", "out.tar"])
def test_arrays_are_not_copied(out: str, large: Path, tmp_path: Path) -> None:
    graph = nnef_grad.load(large / "model")
    with measured() as peak:
        nnef_grad.save(graph, tmp_path / out, data={"v": LARGE, "w": LARGE})
    assert peak[0] < 8 * MEGABYTE


@pytest.mark.parametrize("model", ["model", "model.tar", "model.tgz"])
def test_one_array_is_held_at_a_time(model: str, large: Path, tmp_path: Path) -> None:
    data = nnef_grad.load_data(large / model)
    with measured() as peak:
        for label in data:
            assert data[label].shape == LARGE.shape
        # A mapping of another kind is asked for one array after the other.
        graph = nnef_grad.load(large / "model")
        nnef_grad.save(graph, tmp_path / "out", data=_Plain(data))
    assert 16 * MEGABYTE <= peak[0] < 24 * MEGABYTE


class _Plain(Mapping[str, Array]):
    def __init__(self, data: Mapping[str, Array]) -> None:
        self.data = data

    def __getitem__(self, label: str) -> Array:
        return self.data[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


class measured:  # noqa: N801
    """The most that was allocated inside, in bytes."""

    def __enter__(self) -> list[int]:
        tracemalloc.start()
        self.peak: list[int] = []
        return self.peak

    def __exit__(self, *error: object) -> None:
        self.peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def test_copying_data_imports_nothing_heavy(tmp_path: Path) -> None:
    as_folder(tmp_path)
    program = (
        "import sys\nfrom nnef_grad.commandline.cli import main\n"
        "for out in ['out', 'out.tgz']:\n"
        "    main(['model', '-o', out, '-q'], standalone_mode=False)\n"
        "assert not {'numpy', 'nnef', 'torch'} & sys.modules.keys()"
    )
    command = [sys.executable, "-c", program]
    subprocess.run(command, check=True, env=environment(), cwd=tmp_path)
    check_contents(tmp_path / "out.tgz", {label: DATA[label] for label in USED})


def test_systems_without_descriptors_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "_BY_DESCRIPTOR", False)
    folder = as_folder(tmp_path)
    assert run(folder, "-o", tmp_path / "out", "-q").exit_code == 0
    check_contents(tmp_path / "out", {label: DATA[label] for label in USED})
    (folder / "gain.dat").unlink()
    (folder / "gain.dat").symlink_to(tmp_path / "out" / "gain.dat")
    assert "is a symbolic link" in run(folder, "-o", tmp_path / "new").stderr
