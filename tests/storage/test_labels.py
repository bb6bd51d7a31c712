"""Labels of any text, and names of members of any length: what we write finds its data
again, by us, by the parser of Khronos, and by tract; as does what they write.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import nnef
import numpy as np
import pytest
from support.stored_models import run, tensor, write_archive, write_files

import nnef_grad
from nnef_grad.language.labels import label_key
from nnef_grad.storage import paths
from nnef_grad.storage.paths import data_steps, label_of

TEXT = """version 1.0;

graph net( x ) -> ( y )
{{
    x = external(shape = [2, 3]);
    w = variable(shape = [2, 3], label = '{label}');
    y = mul(x, w);
}}
"""
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)

LABELS = [
    "/encoder/GRU.w",
    "//encoder/w.0",
    "W:0",
    "conv2d_5/kernel:0.0",
    "a b/c;d@e",
    "model.layers[0]~w?",
    "beta_c.dat",
    "C:w",
    "nul",
    "a./b ",
    "/".join(["a"] * 115),
    "n" * 228,
]


def stored(label: str, file: str | None = None) -> dict[str, bytes]:
    """The files of a model with a variable of one label."""
    path = "/".join(data_steps(label)) if file is None else file
    return {"graph.nnef": TEXT.format(label=label).encode(), path: tensor(VALUES)}


def loads_in_tract(path: Path) -> np.ndarray[Any, Any]:
    """The result of a model in tract for ones."""
    tract = pytest.importorskip("tract")
    model = tract.nnef().with_tract_extra().load(str(path))
    result = model.into_runnable().run([np.ones((2, 3), np.float32)])
    return np.asarray(result[0].to_numpy())


@pytest.mark.parametrize("label", LABELS, ids=[label[:20] for label in LABELS])
@pytest.mark.parametrize("out", ["out", "out.tgz", "out.tar"])
def test_labels_of_any_text(label: str, out: str, tmp_path: Path) -> None:
    model = write_files(tmp_path / "model", stored(label))
    archive = write_archive(tmp_path / "model.tgz", stored(label))
    for source in (model, archive):
        graph, data = nnef_grad.load(source), nnef_grad.load_data(source)
        assert list(graph.labels.values()) == [label]
        assert [label_key(n) for n in data] == [label_key(label)]
        np.testing.assert_array_equal(data[label], VALUES)
    assert run(model, "-o", tmp_path / out, "--with-outputs", "-q").exit_code == 0
    assert run(archive, "--check", "-q").exit_code == 0
    written = nnef_grad.load_data(tmp_path / out)
    assert list(nnef_grad.load(tmp_path / out).labels.values()) == [label]
    np.testing.assert_array_equal(written[label], VALUES)
    # As arrays, too, whether they have the label or the path of the file.
    for given in ({label: VALUES}, dict(written)):
        nnef_grad.save(
            nnef_grad.load(model), tmp_path / f"a{out}", data=given, overwrite=True
        )
        np.testing.assert_array_equal(
            nnef_grad.load_data(tmp_path / f"a{out}")[label], VALUES
        )
    np.testing.assert_array_equal(loads_in_tract(tmp_path / f"a{out}"), VALUES)
    # The parser leaves out one slash only.
    if out == "out" and not label.startswith("//"):
        khronos = nnef.load_graph(str(tmp_path / "aout"))
        np.testing.assert_array_equal(khronos.tensors["w"].data, VALUES)


@pytest.mark.parametrize("label", ["\u5377\u79ef/\u6838", "e\u0301/\u00e9"])
def test_labels_in_other_scripts(label: str, tmp_path: Path) -> None:
    assert label_of(data_steps(label)) == label
    for model in (
        write_files(tmp_path / "m", stored(label)),
        write_archive(tmp_path / "m.tgz", stored(label)),
    ):
        data = nnef_grad.load_data(model)
        assert list(data) == [label]
        np.testing.assert_array_equal(data[label], VALUES)


@pytest.mark.parametrize(
    "label", ["a\tb", "a\nb", "a\0b", "a\x7fb", "a\x85b", "a\ud800b"]
)
def test_labels_with_control_characters(label: str, tmp_path: Path) -> None:
    data = nnef_grad.load_data(write_files(tmp_path, stored("w")))
    with pytest.raises(nnef_grad.UsageError, match="contains a control character"):
        data[label]
    assert label not in data


def test_a_slash_at_the_beginning_is_no_other_file(tmp_path: Path) -> None:
    """Both labels are those of one file, so of one variable."""
    text = TEXT.format(label="/w").replace(
        "y = mul(x, w);",
        "v = variable(shape = [2, 3], label = 'w');\n    y = add(mul(x, w), v);",
    )
    model = write_files(tmp_path / "m", {**stored("w"), "graph.nnef": text.encode()})
    result = run(model, "--check")
    assert result.exit_code == 0, result.stderr
    other = text.replace("[2, 3], label = 'w'", "[1, 3], label = 'w'")
    with pytest.raises(nnef_grad.InvalidGraphError, match="label 'w' is that of 'w'"):
        nnef_grad.loads(other)


# ---- Names that are one on some systems ----


def twins(data: dict[str, bytes]) -> dict[str, bytes]:
    text = TEXT.format(label="W").replace(
        "y = mul(x, w);",
        "v = variable(shape = [2, 3], label = 'w');\n    y = add(mul(x, w), v);",
    )
    return {"graph.nnef": text.encode(), **data}


def test_labels_that_differ_in_case_alone(tmp_path: Path) -> None:
    different = twins({"W.dat": tensor(VALUES), "w.dat": tensor(VALUES + 1)})
    message = "labels 'W' and 'w' differ in case alone"
    for model in (
        write_archive(tmp_path / "m.tar", different, "w:"),
        write_files(tmp_path / "m", different),
    ):
        with pytest.raises(nnef_grad.UsageError, match=message):
            nnef_grad.load(model)
    for name, data in {
        "one": {"w.dat": tensor(VALUES)},
        "equal": {"W.dat": tensor(VALUES), "w.dat": tensor(VALUES)},
    }.items():
        model = write_files(tmp_path / name, twins(data))
        assert run(model, "-o", tmp_path / f"{name}.tgz", "-q").exit_code == 0
        assert run(model, "--check", "-q").exit_code == 0


def test_a_file_system_that_ignores_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another file has taken the place of is not left out in silence."""
    graph = nnef_grad.loads(twins({})["graph.nnef"].decode().replace("'w'", "'v'"))
    data = {"W": VALUES, "v": VALUES + 1}
    join = Path.joinpath

    def joined(self: Path, *steps: str) -> Path:
        return join(self, *("W.dat" if step == "v.dat" else step for step in steps))

    monkeypatch.setattr(Path, "joinpath", joined)
    with pytest.raises(nnef_grad.UsageError, match="is the file of another"):
        nnef_grad.save(graph, tmp_path / "out", data=data)
    assert not (tmp_path / "out").exists()
    nnef_grad.save(graph, tmp_path / "out", data={"W": VALUES, "v": VALUES})
    nnef_grad.save(graph, tmp_path / "out.tgz", data=data)
    assert sorted(nnef_grad.load_data(tmp_path / "out.tgz")) == ["W", "v"]


@pytest.mark.parametrize(
    "label",
    [
        "W:0",
        "C:w",
        "a/nul/w",
        "CON.w/x",
        "com1/w",
        "a./b",
        "a /b",
        "a?",
        'a"',
        "a|b",
        "lpt9 .x/w",
    ],
)
def test_names_of_something_else_on_windows(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nnef_grad.loads(TEXT.format(label=label))
    monkeypatch.setattr(paths, "_IS_WINDOWS", True)
    with pytest.raises(nnef_grad.UsageError, match="Windows has no file with the name"):
        nnef_grad.save(graph, tmp_path / "out", data={label: VALUES})
    with pytest.raises(nnef_grad.UsageError, match="Windows has no file with the name"):
        paths.file_beside(tmp_path / "model.onnx", label)
    nnef_grad.save(graph, tmp_path / "out.tgz", data={label: VALUES})
    np.testing.assert_array_equal(
        nnef_grad.load_data(tmp_path / "out.tgz")[label], VALUES
    )
    for usual in ("console/w", "a.b/nulls", "com/w", ".hidden/w"):
        nnef_grad.save(
            nnef_grad.loads(TEXT.format(label=usual)),
            tmp_path / "usual",
            data={usual: VALUES},
            overwrite=True,
        )


# ---- Long names, as others write them ----

LONG = {
    "a slash in the middle": "/".join(["a"] * 115),
    "no slash": "n" * 228,
    "longer than a block": "/".join(["long_name"] * 60),
}


def as_tract_writes(contents: dict[str, bytes]) -> bytes:
    """An archive with headers of the GNU format, whose type of a file is NUL."""
    archive = b""
    for name, data in contents.items():
        info = tarfile.TarInfo(name)
        info.size, info.type = len(data), tarfile.AREGTYPE
        archive += info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)
    return archive + bytes(1024)


@pytest.mark.parametrize("label", LONG.values(), ids=LONG)
@pytest.mark.parametrize("form", ["tract", "gnu", "pax", "tar"])
def test_long_names(label: str, form: str, tmp_path: Path) -> None:
    """Members after the long name are read, too."""
    contents = {**stored(label), "last.dat": tensor(VALUES)}
    path = tmp_path / "m.tar"
    if form == "tract":
        path.write_bytes(as_tract_writes(contents))
    elif form == "tar":
        folder = write_files(tmp_path / "m", contents)
        subprocess.run(["tar", "-cf", path, "-C", folder, "."], check=True)
    else:
        kind = {"gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}[form]
        with tarfile.open(path, "w:", format=kind) as archive:
            for name, data in contents.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    packed = tmp_path / "m.tgz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for model in (path, packed):
        assert sorted(nnef_grad.load_data(model)) == sorted([label, "last"])
        np.testing.assert_array_equal(nnef_grad.load_data(model)[label], VALUES)
        assert run(model, "--check", "-q").exit_code == 0


def test_what_tract_writes(tmp_path: Path) -> None:
    """tract names variables after nodes; its archive has them without the first slash."""
    tract = pytest.importorskip("tract")
    label = "/encoder/" + "/".join(["a"] * 110)
    model = write_files(tmp_path / "model", stored(label))
    dumped = tract.nnef().with_tract_extra().load(str(model))
    writer = tract.nnef().with_tract_extra()
    writer.write_model_to_tar(dumped, str(tmp_path / "m.tar"))
    writer.write_model_to_tar_gz(dumped, str(tmp_path / "m.tgz"))
    writer.write_model_to_dir(dumped, str(tmp_path / "m"))
    for name in ("m.tar", "m.tgz", "m"):
        out = tmp_path / f"out_{name}"
        result = run(tmp_path / name, "-o", out, "--target", "tract", "--with-outputs")
        assert result.exit_code == 0, result.stderr
        (own,) = nnef_grad.load(out).labels.values()
        np.testing.assert_array_equal(nnef_grad.load_data(out)[own], VALUES)
        assert tract.nnef().with_tract_extra().load(str(out)).into_runnable()
