"""Models that mean harm, and systems that fail: each is refused, nothing outside of the
model is read or written, and nothing is left after.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.processes import environment, shell
from support.stored_models import (
    DATA,
    FORMS,
    MODEL,
    files,
    names,
    run,
    tensor,
    write_archive,
    write_files,
)

import nnef_grad
from nnef_grad.storage import archives, paths
from nnef_grad.storage import files as storage_files
from nnef_grad.storage.files import UNFINISHED
from nnef_grad.storage.paths import data_steps, label_of, member_steps

Make = Callable[[Path], Path]

# What stands outside, and would do as the data of any variable of the model.
SECRET = tensor(DATA["gain"] * 0 + 42)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a secret beside it, and one at the root of the file system too."""
    write_files(tmp_path, {"secret.dat": SECRET, "secret.quant": b"# mine"})
    return tmp_path / "inside"


def snapshot(folder: Path) -> dict[str, object]:
    """Everything there is, and what is in it."""
    return {
        name: (path.lstat().st_nlink, path.read_bytes())
        if path.is_file() and not path.is_symlink()
        else path.lstat().st_mode
        for name, path in ((n, folder / n) for n in names(folder))
    }


def refused(model: Path, root: Path, message: str) -> None:
    """The model is refused in the same way whatever is to come out, and leaves no trace."""
    before = snapshot(root)
    for out in ("out", "out.tgz"):
        result = run(model, "-o", root / out)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr, result.stderr
        assert "bug" not in result.stderr
        assert snapshot(root) == before


# ---- Labels ----

# They are below the folder, whatever stands elsewhere under their name.
INSIDE = [
    "/secret",
    "//secret",
    "/etc/passwd",
    "gain:stream",
    "C:secret",
    "~/secret",
    "$HOME",
    "gain ",
    "NUL",
    "x" * 300,
    "/".join("x" * 3000),
]
LABELS = [
    ("../secret", "leads out of the folder of the model"),
    ("a/../../secret", "leads out of the folder of the model"),
    ("a/../gain", "leads out of the folder of the model"),
    ("..", "leads out of the folder of the model"),
    ("../", "leads out of the folder of the model"),
    ("/../secret", "leads out of the folder of the model"),
    ("//../secret", "leads out of the folder of the model"),
    ("/\\secret", "leads out of the folder of the model"),
    ("..\\secret", "leads out of the folder of the model"),
    ("a\\..\\..\\secret", "leads out of the folder of the model"),
    ("a/..\\../secret", "leads out of the folder of the model"),
    ("\\secret", "leads out of the folder of the model"),
    ("\\\\server\\share\\secret", "leads out of the folder of the model"),
    ("C:\\secret", "leads out of the folder of the model"),
    ("C:/secret", "leads out of the folder of the model"),
    ("/C:/secret", "leads out of the folder of the model"),
    ("ga\u0131n", "a string must consist of printable ASCII characters"),
    ("gain\uff0f", "a string must consist of printable ASCII characters"),
    ("", "has a step without a name"),
    ("/", "has a step without a name"),
    ("gain\0", "contains a control character"),
    ("gain\n", "a string that does not end on its line"),
    ("a//gain", "has a step without a name"),
    ("gain/", "has a step without a name"),
    ("./gain", "has a step without a name"),
    ("a/./gain", "has a step without a name"),
    ("a\\\\gain", "has a step without a name"),
    (".", "has a step without a name"),
    *((label, "has no data") for label in INSIDE),
]


@pytest.mark.parametrize(
    ("label", "message"), LABELS, ids=[repr(n[:20]) for n, _ in LABELS]
)
@pytest.mark.parametrize("form", ["folder", "text", "archive"])
def test_labels(label: str, message: str, form: str, folder: Path) -> None:
    written = label.replace("\\", "\\\\")
    text = MODEL.replace("'gain'", f"'{written}'")
    contents = files(text)
    model = write_files(folder, contents)
    if form == "archive":
        model = write_archive(folder / "model.tgz", contents)
    elif form == "text":
        model = folder / "graph.nnef"
    refused(model, folder.parent, message)
    # The error stands where the variable is declared.
    assert ":8:" in run(model, "-o", folder / "out").stderr.splitlines()[0]


@pytest.mark.parametrize(
    "label", [n for n, m in LABELS if "no data" not in m and n.isascii()]
)
def test_labels_that_programs_ask_for(label: str, folder: Path) -> None:
    """No graph has been checked before."""
    data = nnef_grad.load_data(write_files(folder, files()))
    with pytest.raises(nnef_grad.UsageError, match=r"^label "):
        data[label]
    assert label not in data
    assert label_of(tuple(f"{label}.dat".split("/"))) is None


def test_labels_that_would_be_the_folders_of_others(folder: Path) -> None:
    graph = nnef_grad.loads(MODEL.replace("'gain'", "'conv/filter.dat/gain'"))
    data = {**DATA, "conv/filter.dat/gain": DATA["gain"]}
    with pytest.raises(nnef_grad.UsageError, match="cannot write"):
        nnef_grad.save(graph, folder, data=data)
    assert not folder.exists()


# Steps that lead out would come up too rarely among other characters.
ODD = (
    st.lists(st.sampled_from(["..", ".", "/", "\\", "a", "C:"])).map("".join)
    | st.text(st.sampled_from("ab./\\:~\0\u00e9 -_C"), max_size=12)
    | st.text(max_size=8)
)


@settings(deadline=None)
@given(ODD)
def test_whatever_a_label_is_it_stays_inside(label: str) -> None:
    try:
        steps = data_steps(label)
    except nnef_grad.UsageError:
        return
    check_inside(steps)
    found = label_of(steps)
    assert found == label.replace("\\", "/").lstrip("/")
    assert data_steps(found) == steps


@settings(deadline=None)
@given(ODD)
def test_whatever_a_member_is_called_it_stays_inside(name: str) -> None:
    try:
        steps = member_steps(name)
    except nnef_grad.UsageError:
        return
    check_inside(steps)
    label_of(steps)


def check_inside(steps: tuple[str, ...]) -> None:
    root = "/model/folder"
    path = os.path.normpath(os.path.join(root, *steps))  # noqa: PTH118
    assert path == "/".join([root, *steps]) if steps else path == root
    assert not {"", ".", ".."} & set(steps)
    assert not any(c in step for step in steps for c in "/\\\0")


# ---- Links and other things that are no files ----


def link(name: str, target: str) -> Make:
    def make(folder: Path) -> Path:
        write_files(folder, files())
        (folder / name).unlink()
        (folder / name).symlink_to(target)
        return folder

    return make


def linked_folder(target: str) -> Make:
    def make(folder: Path) -> Path:
        write_files(folder, files())
        (folder / "conv").rename(folder.parent / "elsewhere")
        (folder / "inner").mkdir()
        (folder / "conv").symlink_to(target)
        return folder

    return make


def other(make_it: Callable[[Path], object], name: str = "gain.dat") -> Make:
    def make(folder: Path) -> Path:
        write_files(folder, files())
        (folder / name).unlink()
        make_it(folder / name)
        return folder

    return make


def listening(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def quant_beside_a_text(folder: Path) -> Path:
    return link("graph.quant", "../secret.quant")(folder) / "graph.nnef"


LINKS: dict[str, tuple[Make, str]] = {
    "data outside": (link("gain.dat", "../secret.dat"), "gain.dat' is a symbolic link"),
    "data inside": (link("gain.dat", "Conv/Bias.dat"), "gain.dat' is a symbolic link"),
    "data nowhere": (link("gain.dat", "nowhere"), "gain.dat' is a symbolic link"),
    "data itself": (link("gain.dat", "gain.dat"), "gain.dat' is a symbolic link"),
    "graph": (link("graph.nnef", "../secret.quant"), "graph.nnef' is a symbolic link"),
    "quant": (
        link("graph.quant", "../secret.quant"),
        "graph.quant' is a symbolic link",
    ),
    "quant beside a text": (quant_beside_a_text, "graph.quant' is a symbolic link"),
    "folder outside": (linked_folder("../elsewhere"), "conv' is a symbolic link"),
    "folder inside": (linked_folder("inner"), "conv' is a symbolic link"),
    "folder nowhere": (linked_folder("nowhere"), "conv' is a symbolic link"),
    "pipe": (other(os.mkfifo), "gain.dat' is a pipe"),
    "pipe as graph": (other(os.mkfifo, "graph.nnef"), "graph.nnef' is a pipe"),
    "folder as data": (other(Path.mkdir), "gain.dat' is a folder"),
    "folder as graph": (other(Path.mkdir, "graph.nnef"), "graph.nnef' is a folder"),
    "socket": (other(listening), "gain.dat' is a socket"),
    "device": (other(device), "gain.dat' is a device"),
}


@pytest.mark.parametrize(("make", "message"), LINKS.values(), ids=LINKS)
def test_what_is_no_file(make: Make, message: str, folder: Path) -> None:
    refused(make(folder), folder.parent, message)


def test_a_link_that_appears_between_two_looks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(folder, files())
    look = os.stat

    def swapped(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        found = look(path, *arguments, **options)
        if path == "gain.dat":
            (folder / "gain.dat").unlink()
            (folder / "gain.dat").symlink_to("../secret.dat")
        return found

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(nnef_grad.UsageError, match="cannot read"):
        nnef_grad.load_data(folder)["gain"]


def test_a_file_that_is_exchanged_before_it_is_shared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(folder, files())
    share = os.link

    def swapped(*arguments: Any, **options: Any) -> None:
        if options["src"] == "gain.dat":
            (folder / "gain.dat").unlink()
            (folder / "gain.dat").symlink_to("../secret.dat")
        share(*arguments, **options)

    monkeypatch.setattr(os, "link", swapped)
    result = run(folder, "-o", folder.parent / "out")
    assert result.exit_code == 2
    assert "gain.dat' is a symbolic link" in result.stderr
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("path", ["x" * 300, "x" * 300 + ".tgz", "y/" * 3000, "loop"])
def test_paths_that_lead_nowhere(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    model = write_files(Path("model"), files())
    result = run(path)
    assert (result.exit_code, "cannot read" in result.stderr) == (2, True)
    result = run(model, "-o", path)
    assert (result.exit_code, "cannot write" in result.stderr) == (2, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_what_one_may_not_read(folder: Path) -> None:
    write_files(folder, files())
    for path in (folder / "gain.dat", folder / "conv", folder):
        path.chmod(0)
        for out in ("out", "out.tgz"):
            result = run(folder, "-o", folder.parent / out)
            assert (result.exit_code, "cannot read" in result.stderr) == (2, True)
            assert not (folder.parent / out).exists()
        path.chmod(0o700)


# ---- Tensor files ----


def header(
    magic: bytes = b"\x4e\xef",
    version: bytes = b"\x01\x00",
    length: int = 20,
    rank: int = 2,
    extents: tuple[int, ...] = (1, 5),
    bits: int = 32,
    code: int = 0,
) -> bytes:
    fields = [length, rank, *extents, *[0] * (8 - len(extents)), bits, code]
    return (magic + version + struct.pack("<12I", *fields)).ljust(128, b"\0")


BODY = bytes(20)
HUGE = (65536, 65536, 65536, 65536)
TENSORS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it has 0 bytes, but a header has 128"),
    "half a header": (header()[:127], "it has 127 bytes, but a header has 128"),
    "a text": (b"# " * 200, "it does not begin with the magic number"),
    "magic": (header(magic=b"NE") + BODY, "it does not begin with the magic number"),
    "version 2": (
        header(version=b"\x02\x00") + BODY,
        "its version is 2.0, not 1.0",
    ),
    "version 1.1": (header(version=b"\x01\x01") + BODY, "its version is 1.1"),
    "rank 9": (header(rank=9) + BODY, "its rank is 9, but must be at most 8"),
    "rank 2**32-1": (header(rank=2**32 - 1) + BODY, "its rank is 4294967295"),
    "extents of 65536^4": (
        header(rank=4, extents=HUGE, length=0),
        "32 bits per item in shape [65536, 65536, 65536, 65536] are 73786976294838206464",
    ),
    "huge and honest": (
        header(rank=2, extents=(2**15, 2**15 - 1), length=2**32 - 2**17),
        "its header promises 4294836224 bytes of data, but it has 0",
    ),
    "extent 0": (header(extents=(0, 5), length=0), "extents are [0, 5], but must be"),
    "length 0": (header(length=0) + BODY, "its header promises 0 bytes of data"),
    "length too large": (header(length=24) + BODY, "its header promises 24 bytes"),
    "truncated": (
        header() + BODY[:-1],
        "its header promises 20 bytes of data, but it has 19",
    ),
    "trailing": (
        header() + BODY + b"\0",
        "its header promises 20 bytes of data, but it has 21",
    ),
    "no type": (header(code=6) + BODY, "the type of its items, 0x6, is unknown"),
    "a vendor's type": (header(code=1 << 16) + BODY, "type of its items, 0x10000"),
    "no bits": (header(bits=0, length=0), "of type float, but have 0 bits"),
    "float of 8 bits": (header(bits=8, length=5) + bytes(5), "have 8 bits"),
    "float of 1 bit": (header(bits=1, length=1) + bytes(1), "have 1 bits"),
    "65 bits": (header(code=4, bits=65, length=41) + bytes(41), "have 65 bits"),
    "bool of 2 bits": (header(code=5, bits=2, length=2) + bytes(2), "have 2 bits"),
    "integers": (header(code=4) + BODY, "has data in"),
    "bools": (header(code=5, bits=1, length=1) + bytes(1), "of type bool"),
    "another shape": (header(extents=(5, 1)) + BODY, "of shape [5, 1]"),
    "another rank": (header(rank=1, extents=(5,)) + BODY, "of shape [5]"),
}


@pytest.mark.parametrize(("stored", "message"), TENSORS.values(), ids=TENSORS)
@pytest.mark.parametrize("form", ["folder", "archive"])
def test_tensor_files(stored: bytes, message: str, form: str, folder: Path) -> None:
    contents = {**files(), "gain.dat": stored}
    model = write_files(folder, contents)
    if form == "archive":
        model = write_archive(folder.parent / "model.tgz", contents)
    tracemalloc.start()
    refused(model, folder.parent, message)
    result = run(model, "--check")
    assert (result.exit_code, message in result.stderr) == (2, True)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_a_file_with_holes_is_not_larger_than_its_variable(folder: Path) -> None:
    """Its size is right, and no disk holds it."""
    write_files(folder, files())
    with (folder / "gain.dat").open("wb") as file:
        file.write(header(extents=(2**15, 2**15 - 1), length=2**32 - 2**17))
        file.truncate(128 + 2**32 - 2**17)
    for arguments in (["-o", folder.parent / "out"], ["--check"]):
        result = run(folder, *arguments)
        assert result.exit_code == 2
        assert "of shape [32768, 32767]" in result.stderr


# ---- Archives ----


def member(name: str, data: bytes = b"", **fields: Any) -> bytes:
    """A member, with a header that says what it is told to."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


def extended(records: bytes, kind: bytes = b"x") -> bytes:
    return member("header", records, type=kind)


def record(key: str, value: str) -> bytes:
    rest = f" {key}={value}\n".encode()
    length = len(rest) + 1
    while len(f"{length}") + len(rest) != length:
        length += 1
    return f"{length}".encode() + rest


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    """A header in which other bytes stand, with the checksum that they have."""
    block = bytearray(data)
    block[offset : offset + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block)


END = bytes(1024)
STORED = b"".join(member(name, data) for name, data in files().items())
ZEROS = b"\0" * 512

ARCHIVES: dict[str, tuple[bytes, str]] = {
    "out of it": (member("../evil.dat", SECRET), "leads out of the archive"),
    "out of it below": (member("a/../../evil.dat", SECRET), "leads out of the archive"),
    "absolute": (member("/tmp/evil.dat", SECRET), "leads out of the archive"),
    "with backslashes": (member("a\\..\\..\\evil", SECRET), "leads out of the archive"),
    "with a drive": (member("C:\\evil", SECRET), "leads out of the archive"),
    "of a server": (member("\\\\server\\evil", SECRET), "leads out of the archive"),
    "a folder out of it": (member("../evil", type=b"5"), "leads out of the archive"),
    "a long name out of it": (
        extended(b"../evil.dat\0", b"L") + member("fine.dat", SECRET),
        "'../evil.dat' leads out",
    ),
    "an extended name out of it": (
        extended(record("path", "../evil.dat")) + member("fine.dat", SECRET),
        "'../evil.dat' leads out",
    ),
    "a name with NUL": (
        extended(record("path", "a\0b")) + member("fine.dat", SECRET),
        "leads out of the archive",
    ),
    "a symbolic link": (
        member("w.dat", type=b"2", linkname="../secret.dat"),
        "'w.dat' is a symbolic link",
    ),
    "a hard link": (
        member("w.dat", type=b"1", linkname="../secret.dat"),
        "'w.dat' is a link",
    ),
    "a device": (member("w.dat", type=b"3"), "'w.dat' is a device"),
    "a block device": (member("w.dat", type=b"4"), "'w.dat' is a device"),
    "a pipe": (member("w.dat", type=b"6"), "'w.dat' is a pipe"),
    "a sparse file": (member("w.dat", type=b"S"), "'w.dat' is a sparse file"),
    "a sparse file of the new kind": (
        extended(record("GNU.sparse.major", "1")) + member("w.dat", b"1\n"),
        "it contains a sparse file",
    ),
    "an unknown type": (member("w.dat", type=b"Z"), "of the unknown type b'Z'"),
    "one name twice": (member("gain.dat", SECRET), "it contains two files 'gain.dat'"),
    "one name in two ways": (member(".//gain.dat", SECRET), "two files 'gain.dat'"),
    "two graphs": (member("./graph.nnef", b"mine"), "two files 'graph.nnef'"),
    "a negative size": (
        patched(member("w.dat"), 124, b"\xff" * 12),
        "the archive is damaged",
    ),
    "a size that is none": (
        patched(member("w.dat"), 124, b"x" * 11),
        "the archive is damaged",
    ),
    "more than there is": (
        patched(member("w.dat"), 124, b"00000100000\0"),
        "the archive ends too early",
    ),
    "far more than there is": (
        patched(member("w.dat"), 124, b"\x80" + b"\x7f" * 11),
        "a file in it has 154135671558081661678616447 bytes according to its header",
    ),
    "an extended size": (
        extended(record("size", "9" * 20)) + member("w.dat"),
        "a file in it has 99999999999999999999 bytes according to its header",
    ),
    "a negative extended size": (
        extended(record("size", "-512")) + member("w.dat"),
        "a size is given as '-512'",
    ),
    "an extended size that is none": (
        extended(record("size", "1e9")) + member("w.dat"),
        "a size is given as '1e9'",
    ),
    "a record without end": (extended(b"99 path=a\n"), "a header is damaged"),
    "a record without length": (extended(b"0 path=a\n"), "a header is damaged"),
    "a record of garbage": (extended(b"\xff" * 40), "a header is damaged"),
    "a record without key": (extended(b"5 =a\n"), "a header is damaged"),
    "records behind the last": (
        patched(extended(record("a", "b") + b"99"), 124, b"00000000010\0"),
        "a header is damaged",
    ),
    "a size that leads back": (
        extended(record("size", "-1024")) + member("w.dat"),
        "a size is given as '-1024'",
    ),
    "one name for all": (
        extended(record("path", "gain.dat"), b"g"),
        "gives all members the same name or size",
    ),
    "a header that is too large": (
        patched(extended(b"x"), 124, b"17777777777\0"),
        "a header is longer than 1048576 bytes",
    ),
    "too many headers of one member": (
        extended(b"fine.dat\0", b"L") * 2000 + member("w.dat"),
        "the archive is damaged",
    ),
    "digits without end": (
        extended(record("path", "1" * 2**19)) + member("w.dat"),
        "a name in a header has too many digits",
    ),
    "short records without end": (
        extended(b"1 " * 2**18 + b"=\n") + member("w.dat"),
        "a header is damaged",
    ),
    "a header without a member": (extended(record("a", "b")), "the archive is damaged"),
    "a name that is too long": (
        extended(b"x" * 2000, b"L") + member("w.dat"),
        "a name is longer than 1024 characters",
    ),
    "a checksum that is wrong": (
        member("w.dat")[:100] + b"x" + member("w.dat")[101:],
        "the archive is damaged",
    ),
}


@pytest.mark.parametrize(("evil", "message"), ARCHIVES.values(), ids=ARCHIVES)
@pytest.mark.parametrize("name", ["model.tgz", "model.tar"])
def test_archives(evil: bytes, message: str, name: str, folder: Path) -> None:
    stored = STORED + evil + END
    stored = gzip.compress(stored) if name == "model.tgz" else stored
    refused(write_files(folder, {name: stored}) / name, folder.parent, message)


WHOLE = STORED + END
PACKED = gzip.compress(WHOLE, mtime=0)
DAMAGED: dict[str, tuple[bytes, str]] = {
    "no end": (STORED, "the archive ends too early"),
    "no end, compressed": (gzip.compress(STORED), "the archive ends too early"),
    "half a block": (WHOLE[: len(STORED) - 700], "the archive ends too early"),
    "in a member": (WHOLE[: len(STORED) - 1024], "the archive ends too early"),
    "truncated": (PACKED[: len(PACKED) // 2], "the archive ends too early"),
    "without the checksum": (PACKED[:-8], "the archive ends too early"),
    "another checksum": (PACKED[:-8] + b"1234" + PACKED[-4:], "CRC check failed"),
    "another length": (PACKED[:-4] + b"1234", "Incorrect length"),
    "other bytes": (
        PACKED[:200] + b"\xff" * 20 + PACKED[220:],
        "the archive is damaged",
    ),
    "only the beginning": (PACKED[:5], "the archive ends too early"),
    "another method": (b"\x1f\x8b\x00" + PACKED[3:], "the archive is damaged"),
    "garbage after": (PACKED + b"garbage", "the archive is damaged"),
    "more after": (gzip.compress(WHOLE + bytes(2**22)), "it continues after its end"),
    "a text": (gzip.compress(MODEL.encode()), "it does not contain a tar archive"),
    "nothing": (gzip.compress(b""), "it does not contain a tar archive"),
    "nothing but an end": (gzip.compress(END), "there is no graph.nnef in"),
    "within itself": (gzip.compress(PACKED), "it does not contain a tar archive"),
    "zip": (
        b"PK\x03\x04" + bytes(600),
        "is a zip archive: a model is a text, a folder",
    ),
    "bzip2": (bz2.compress(WHOLE), "is compressed by bzip2: a model is"),
    "xz": (lzma.compress(WHOLE), "is compressed by xz: a model is"),
    "zeros": (bytes(2000), "it contains a control character"),
    "empty": (b"", "the text ends too early"),
    "a text that is none": (b"\xff" * 2000, "it is not UTF-8"),
}


@pytest.mark.parametrize(("stored", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_archives(stored: bytes, message: str, folder: Path) -> None:
    refused(write_files(folder, {"m.tgz": stored}) / "m.tgz", folder.parent, message)


def test_wherever_an_archive_ends_too_early_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for whole, step in ((WHOLE, 256), (PACKED, 23)):
        for length in range(step, min(len(whole), len(STORED) + 1), step):
            path.write_bytes(whole[:length])
            with pytest.raises(nnef_grad.NnefGradError):
                nnef_grad.load(path)


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        ({}, "it is empty"),
        ({"net.nnef": b""}, "it has net.nnef"),
        ({"Graph.nnef": b""}, "it has Graph.nnef"),
        (
            {f"model/{n}": d for n, d in files().items()},
            "it has model/Conv/Bias.dat, model/conv/filter.dat, model/deep/in/offset.dat, model/gain.dat and 2 more",
        ),
    ],
)
def test_no_graph(contents: dict[str, bytes], found: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "m.tar", contents, "w:")
    if not contents:
        archive = write_archive(tmp_path / "m.tgz", contents)
    result = run(archive)
    message = f"error: there is no graph.nnef in '{archive}': {found}\n"
    assert (result.exit_code, result.stderr) == (2, message)
    folder = write_files(tmp_path / "folder", contents)
    folder.mkdir(exist_ok=True)
    result = run(folder)
    found = "it has model" if "model/" in found else found
    message = f"error: there is no graph.nnef in '{folder}': {found}\n"
    assert (result.exit_code, result.stderr) == (2, message)


# ---- Bombs ----


@pytest.fixture
def bounded() -> Iterator[None]:
    """What happens in between takes little memory."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


def bomb(path: Path, first: bytes, size: int = 2**28) -> Path:
    """An archive that is small and, unpacked, goes on with a lot of zeros."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(first)
        for _ in range(size >> 20):
            file.write(bytes(2**20))
    return path


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("first", "message"),
    [
        (patched(extended(b""), 124, b"02000000000\0"), "a header is longer than"),
        (
            patched(extended(b"", b"L"), 124, b"02000000000\0"),
            "a header is longer than",
        ),
        (patched(member("w.dat"), 124, b"02000000000\0"), "archive ends too early"),
        (patched(member("w.dat"), 124, b"01777776000\0"), "there is no graph.nnef"),
        (
            patched(member("zeros.bin"), 124, b"02000000000\0"),
            "it contains more than 67108864 bytes that no model has",
        ),
        (WHOLE, "it continues after its end"),
    ],
)
def test_bombs(first: bytes, message: str, tmp_path: Path) -> None:
    model = bomb(tmp_path / "m.tgz", first)
    result = run(model, "-o", tmp_path / "out")
    assert (result.exit_code, message in result.stderr) == (2, True)
    assert names(tmp_path) == ["m.tgz"]


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", ["graph.nnef", "graph.quant"])
def test_texts_that_are_too_long(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnef_grad.storage.files.MAX_TEXT", 2**21)
    first = patched(member(name), 124, b"02000000000\0")
    archive = bomb(tmp_path / "m.tgz", first)
    folder = write_files(tmp_path / "m", files())
    with (folder / name).open("wb") as file:
        file.truncate(2**34)
    for model in (archive, folder, folder / "graph.nnef"):
        result = run(model, "-o", tmp_path / "out")
        assert result.exit_code == 2
        assert f"{name}' is too long for a text: more than 2097152" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("bounded")
def test_a_text_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnef_grad.storage.files.MAX_TEXT", 2**21)
    result = run("/dev/zero")
    assert result.exit_code == 2
    assert "'/dev/zero' is too long for a text" in result.stderr


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILES", 10)
    monkeypatch.setattr(paths, "MAX_FILES", 10)
    contents = {f"{i}.dat": SECRET for i in range(11)}
    for kind, more in (("files", b""), ("folders", b""), ("headers", b"")):
        members = {
            "files": [member(n, d) for n, d in contents.items()],
            "folders": [member(n, type=b"5") for n in contents],
            "headers": [extended(b"fine.dat\0", b"L") for _ in contents],
        }[kind]
        archive = tmp_path / "m.tar"
        archive.write_bytes(b"".join(members) + STORED + more + END)
        result = run(archive)
        assert result.exit_code == 2
        assert "it contains more than 10 files" in result.stderr
    folder = write_files(tmp_path / "m", contents)
    with pytest.raises(nnef_grad.UsageError, match="contains more than 10 files"):
        list(nnef_grad.load_data(folder))
    # Who asks for one does not look at all.
    assert nnef_grad.load_data(folder)["3"].shape == (1, 5)
    # Nor does a text whose folder has many other files.
    text = write_files(folder, {"m.nnef": MODEL.encode()}) / "m.nnef"
    assert run(text, "-o", folder / "bwd.nnef", "-q").exit_code == 0
    assert run(text, "-o", folder / "out", "-q").exit_code == 0


def test_an_archive_in_a_pipe(tmp_path: Path) -> None:
    model = write_archive(tmp_path / "m.tgz", files())
    text = write_files(tmp_path, {"m.nnef": MODEL.encode()}) / "m.nnef"
    command = f"{sys.executable} -m nnef_grad"
    done = shell(f"{command} <(cat {model}) -q; {command} <(cat {text}) -q", tmp_path)
    assert "is an archive in a pipe: save it to a file" in done.stderr
    assert done.stdout.startswith("version 1.0;")


# ---- Random damage ----


def test_random_damage_to_archives(tmp_path: Path) -> None:
    """Whatever is wrong with an archive is told, and is no bug."""
    draw = random.Random(0)
    path = tmp_path / "m"
    for _ in range(400):
        data = bytearray(draw.choice([WHOLE, PACKED]))
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        with suppress(nnef_grad.NnefGradError):
            nnef_grad.load(path)
            list(nnef_grad.load_data(path).values())


def test_random_damage_to_tensor_files(tmp_path: Path) -> None:
    draw = random.Random(0)
    whole = tensor(DATA["gain"])
    for _ in range(1000):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(64)] = draw.choice([0, 1, 2, 4, 8, 255])
        write_files(tmp_path, {"v.dat": bytes(data[: draw.choice([9999, 130, 138])])})
        with suppress(nnef_grad.NnefGradError):
            assert nnef_grad.load_data(tmp_path)["v"].nbytes < 100


# ---- A system that fails ----


FULL = 28
# What fails, and at which call.
FAILURES: dict[str, tuple[str, int]] = {
    "the third tensor": ("nnef_grad.storage.files.StoredPart.write", 2),
    "a member": ("nnef_grad.storage.output.write_member", 3),
    "the end of an archive": ("nnef_grad.storage.output.write_end", 0),
    "a folder": ("pathlib.Path.mkdir", 0),
    "the permissions": ("pathlib.Path.chmod", 0),
    "the last step": ("pathlib.Path.replace", 0),
    "the step after the last": ("pathlib.Path.replace", 1),
    "the very last step": ("pathlib.Path.replace", 2),
    "a new folder": ("tempfile.mkdtemp", 0),
    "a new file": ("pathlib.Path.open", 2),
}


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.parametrize("out", ["out", "out.tgz"])
@pytest.mark.parametrize("there", [False, True])
def test_a_failure_in_the_middle(
    error: Any, what: str, out: str, there: bool, tmp_path: Path
) -> None:
    target, at = FAILURES[what]
    model = write_archive(tmp_path / "m.tgz", files())
    if there:
        nnef_grad.save(nnef_grad.loads(MODEL), tmp_path / out, data=DATA)
    before = snapshot(tmp_path)
    raised = OSError(FULL, "No space left on device") if error == FULL else error
    with pytest.MonkeyPatch.context() as patch:
        has_failed = fail_at(patch, target, at, raised)
        result = run(model, "-o", tmp_path / out, "--force")
    if not has_failed:
        assert result.exit_code == 0
        return
    assert result.exit_code == (1 if error is KeyboardInterrupt else 2)
    if error == FULL:
        message = f"error: cannot write '{tmp_path / out}': No space left on device\n"
        assert result.stderr == message
    assert snapshot(tmp_path) == before


def fail_at(
    patch: pytest.MonkeyPatch, target: str, at: int, error: Any
) -> list[object]:
    """Lets a call of a function fail; what is returned is empty until that happens."""
    module, _, name = target.rpartition(".")
    original = getattr(resolve_name(module), name)
    calls = iter(range(10**6))
    failed: list[object] = []

    def function(*arguments: Any, **options: Any) -> Any:
        if next(calls) == at:
            failed.append(error)
            raise error
        return original(*arguments, **options)

    patch.setattr(target, function)
    return failed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("out", ["out", "out.tgz", "out.tar"])
def test_a_disk_that_is_full(form: str, out: str, tmp_path: Path) -> None:
    """No file can be longer than some bytes: then the real calls fail."""
    model = FORMS[form](tmp_path / "in")
    before = snapshot(tmp_path)
    done = limited(
        512,
        "from nnef_grad.storage.paths import FileInFolder\nfrom nnef_grad.commandline.cli import main\n"
        "FileInFolder._link = lambda *arguments: False\n"
        f"main([{str(model)!r}, '-o', {str(tmp_path / out)!r}])",
    )
    assert done.returncode == 2
    assert done.stderr == f"error: cannot write '{tmp_path / out}': File too large\n"
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("out", ["out", "out.tgz", "out.tar"])
@pytest.mark.parametrize("limit", [100, 2000, 4128, 8190])
def test_a_disk_that_is_full_of_arrays(out: str, limit: int, tmp_path: Path) -> None:
    """The file has 8192 bytes, the last of which may be in a buffer of the C
    library's.
    """
    body = "x = external(shape = [1]); v = variable(shape = [2016], label = 'v'); y = mul(x, v);"
    text = f"version 1.0; graph g( x ) -> ( y ) {{ {body} }}"
    done = limited(
        limit,
        "import numpy as np, nnef_grad\n"
        f"graph, data = nnef_grad.loads({text!r}), {{'v': np.frombuffer(np.random.bytes(8064), 'f4')}}\n"
        "try:\n"
        f"    nnef_grad.save(graph, {str(tmp_path / out)!r}, data=data)\n"
        "except nnef_grad.UsageError as error:\n"
        "    print(error)",
    )
    assert done.stdout.startswith(f"cannot write '{tmp_path / out}': ")
    assert names(tmp_path) == []


def limited(size: int, program: str) -> subprocess.CompletedProcess[str]:
    """A program that cannot make a file any longer than so many bytes."""
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
    return subprocess.run(
        [sys.executable, "-B", "-c", limit + program],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )


# ---- Programs that are ended ----

SLOW = """
import sys, time
import nnef_grad.storage.output as output
import nnef_grad.storage.files as files
from nnef_grad.commandline.cli import main

copy = files.StoredPart.write

def slow(*arguments):
    copy(*arguments)
    print("half", flush=True)
    time.sleep(60)

def slow_member(*arguments):
    write(*arguments)
    print("half", flush=True)
    time.sleep(60)

write, output.write_member = output.write_member, slow_member
files.StoredPart.write = slow
main(sys.argv[1:])
"""


def started(*arguments: object) -> subprocess.Popen[str]:
    """A program that is half finished."""
    program = subprocess.Popen(
        [sys.executable, "-c", SLOW, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "half\n"
    return program


@pytest.mark.parametrize("out", ["out", "out.tgz"])
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130)],
    ids=["TERM", "INT"],
)
def test_a_program_that_is_told_to_end(
    out: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    model = write_archive(tmp_path / "m.tgz", files())
    program = started(model, "-o", tmp_path / out)
    assert len(list(tmp_path.iterdir())) == 2
    program.send_signal(number)
    _, errors = program.communicate(timeout=30)
    wanted = "interrupted\n" if number == signal.SIGINT else ""
    assert (program.returncode, errors) == (code, wanted)
    assert names(tmp_path) == ["m.tgz"]


@pytest.mark.parametrize("out", ["out", "out.tgz"])
def test_a_program_that_is_killed(out: str, tmp_path: Path) -> None:
    model = write_archive(tmp_path / "m.tgz", files())
    program = started(model, "-o", tmp_path / out)
    program.kill()
    program.communicate(timeout=30)
    (left,) = [p.name for p in tmp_path.iterdir() if p != model]
    assert left.startswith(f".{out}.")
    assert left.endswith(UNFINISHED)
    assert run(model, "-o", tmp_path / out, "-q").exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["m.tgz", out])


def test_two_programs_at_once(tmp_path: Path) -> None:
    """What the other one writes is left alone; who comes last finds a model there."""
    model = write_archive(tmp_path / "m.tgz", files())
    program = started(model, "-o", tmp_path / "out")
    assert run(model, "-o", tmp_path / "out", "-q").exit_code == 0
    assert len(list(tmp_path.iterdir())) == 3
    program.terminate()
    program.communicate(timeout=30)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.tgz", "out"]


def test_a_folder_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nnef_grad.loads(MODEL)
    place = storage_files.Part.place

    def meanwhile(self: Any, path: Path) -> None:
        place(self, path)
        write_files(tmp_path / "out", {"notes.txt": b"mine"})

    monkeypatch.setattr(storage_files.Part, "place", meanwhile)
    for overwrite in (False, True):
        with pytest.raises(nnef_grad.UsageError):
            nnef_grad.save(graph, tmp_path / "out", overwrite=overwrite)
        assert names(tmp_path) == ["out", "out/notes.txt"]
        (tmp_path / "out" / "notes.txt").unlink()
        (tmp_path / "out").rmdir()


@pytest.mark.parametrize("name", ["a\0b", "a\0b/", "a\0b.nnef", "a\0b.tgz"])
def test_no_path_has_a_null_character(name: str) -> None:
    graph, place = nnef_grad.loads(MODEL), name.replace("\0", r"\\x00")
    for read in (nnef_grad.load, nnef_grad.load_data, nnef_grad.load_rules):
        with pytest.raises(nnef_grad.UsageError, match=f"cannot read '{place}'"):
            read(name)
    with pytest.raises(nnef_grad.UsageError, match=f"cannot write '{place}'"):
        nnef_grad.save(graph, name)
    with pytest.raises(nnef_grad.UsageError, match="cannot write"):
        nnef_grad.report(graph, nnef_grad.differentiate(graph), "a\0b.html")
