"""Streams that fail, and several writers of one file: nothing is lost unnoticed, and
nothing is replaced that nobody asked to replace.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.processes import environment, shell
from support.stored_models import (
    DATA,
    MODEL,
    as_folder,
    files,
    names,
    run,
    write_archive,
    write_files,
)

import nnef_grad
from nnef_grad.storage import files as storage_files

COMMAND = f"{sys.executable} -m nnef_grad"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_files(tmp_path, {"m.nnef": MODEL.encode()})
    return tmp_path


# ---- Standard streams ----

STREAMS: dict[str, tuple[str, int, str]] = {
    "stdout full": ("m.nnef >/dev/full", 2, "cannot write to stdout: No space left"),
    "stdout over the quota": (
        "m.nnef >out.nnef",
        2,
        "cannot write to stdout: File too large",
    ),
    "stdout closed": ("m.nnef >&-", 2, "cannot write to stdout: it is closed"),
    "stdin closed": ("- <&-", 2, "cannot read stdin: it is closed"),
    "a reader that is gone": ("m.nnef | true; exit ${PIPESTATUS[0]}", 1, ""),
    "stderr full": ("m.nnef -o new.nnef 2>/dev/full", 0, ""),
    "stderr closed": ("m.nnef -o new.nnef 2>&-", 0, ""),
    "stderr full, a mistake": ("none.nnef 2>/dev/full", 2, ""),
    "stderr closed, a mistake": ("none.nnef 2>&-", 2, ""),
    "stderr full, a check": ("m.nnef --check -o new.nnef 2>/dev/full", 0, ""),
    "all closed": ("m.nnef -o new.nnef <&- >&- 2>&-", 0, ""),
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "code", "message"), STREAMS.values(), ids=STREAMS
)
def test_standard_streams(
    arguments: str, code: int, message: str, unbuffered: str, model: Path
) -> None:
    limit = "ulimit -f 1; " if "quota" in message or ">out" in arguments else ""
    done = shell(
        f"{limit}{COMMAND} --quiet {arguments}", model, PYTHONUNBUFFERED=unbuffered
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if "new.nnef" in arguments:
        assert nnef_grad.load(model / "new.nnef").name == "net_backward"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_streams_of_the_formatter(unbuffered: str, model: Path) -> None:
    for arguments, message in {
        "- <m.nnef >/dev/full": "cannot write to stdout: No space left",
        "- <m.nnef >&-": "cannot write to stdout: it is closed",
        "- <&-": "cannot read stdin: it is closed",
    }.items():
        command = f"{sys.executable} -c 'from nnef_grad.__main__ import format_files as f; f()'"
        done = shell(f"{command} {arguments}", model, PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


# ---- What would be lost ----


def test_out_is_a_file_of_the_model(tmp_path: Path) -> None:
    folder = as_folder(tmp_path)
    text = write_files(tmp_path, {"m.nnef": MODEL.encode(), "m.quant": b""}) / "m.nnef"
    (tmp_path / "link.nnef").symlink_to(text)
    (tmp_path / "to_graph.nnef").symlink_to(folder / "graph.nnef")
    before = names(tmp_path)
    contents = {name: (tmp_path / name).read_bytes() for name in before if "." in name}
    for source, out in [
        (text, text),
        (text, tmp_path / "link.nnef"),
        (tmp_path / "link.nnef", text),
        (text, tmp_path / "." / "m.nnef"),
        (text, tmp_path / "m.txt"),
        (folder, folder / "graph.nnef"),
        (folder, tmp_path / "to_graph.nnef"),
        (folder / "graph.nnef", folder / "graph.nnef"),
        (folder, folder / "graph.text"),
    ]:
        result = run(source, "-o", out, "--force")
        assert result.exit_code == 2, (source, out)
        assert "is the model itself, or where it is stored" in result.stderr
        assert names(tmp_path) == before
        for name, data in contents.items():
            assert (tmp_path / name).read_bytes() == data
    # A further text in the folder of a model replaces nothing of it.
    assert run(folder, "-o", folder / "backward.nnef", "-q").exit_code == 0
    assert run(folder, "-o", folder / "backward.nnef", "-q", "--force").exit_code == 0


def test_a_link_without_a_target_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out.nnef").symlink_to(tmp_path / "none")
    with pytest.raises(nnef_grad.UsageError, match="exists already"):
        nnef_grad.save(nnef_grad.loads(MODEL), tmp_path / "out.nnef")


# ---- Several writers ----

OUTS = ("out.nnef", "out.tar", "out.tgz", "out")
# Each takes seconds, and the others say much the same.
ONE_AND_ALL = [
    OUTS[0],
    *(pytest.param(out, marks=pytest.mark.thorough) for out in OUTS[1:]),
]


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("linking", [True, False], ids=["links", "no links"])
def test_what_appears_meanwhile_is_not_replaced(
    out: str, linking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer is done when ours has written its draft."""
    graph = nnef_grad.loads(MODEL)
    data = None if out == "out.nnef" else DATA
    step = "commit_folder" if out == "out" else "_commit"
    original = getattr(storage_files, step)
    other = nnef_grad.loads(MODEL.replace("graph net", "graph other"))

    def meanwhile(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(storage_files, step, original)
        nnef_grad.save(other, tmp_path / out, data=data)
        original(*arguments, **options)

    monkeypatch.setattr(storage_files, step, meanwhile)
    if not linking:
        monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(nnef_grad.UsageError, match="exists already"):
        nnef_grad.save(graph, tmp_path / out, data=data)
    assert nnef_grad.load(tmp_path / out).name == "other"
    assert [p.name for p in tmp_path.iterdir()] == [out]


def refuse(*_: object, **__: object) -> None:
    raise OSError(1, "Operation not permitted")


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("force", [False, True], ids=["once", "force"])
def test_many_writers_at_once(out: str, force: bool, tmp_path: Path) -> None:
    """One wins, or with --force the last one; nobody meets half of another's."""
    model = write_archive(tmp_path / "m.tar", files(quant=""), "w:")
    target = tmp_path / out
    program = (
        "import sys, nnef_grad\n"
        f"graph = nnef_grad.load({str(model)!r})\n"
        f"data = nnef_grad.load_data({str(model)!r}) if {out!r} != 'out.nnef' else None\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "for _ in range(20):\n"
        "    try:\n"
        f"        nnef_grad.save(graph, {str(target)!r}, data=data, overwrite={force})\n"
        "        print('written')\n"
        "    except nnef_grad.UsageError as error:\n"
        "        print(error)\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for _ in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    found = []
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        found += writer.communicate(timeout=60)[0].splitlines()
    written = found.count("written")
    assert written == (80 if force else 1), set(found)
    if not force:
        assert {line for line in found if line != "written"} == {
            f"'{target}' exists already: overwrite=True replaces it"
        }
    assert nnef_grad.load(target).name == "net"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["m.tar", out])


# ---- Signals ----


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes a moment to read, to compile and to write."""
    folder = tmp_path_factory.mktemp("slow")
    steps = "".join(f"    t{n + 1} = tanh(mul(t{n}, w));\n" for n in range(150))
    text = MODEL.replace("    y = add(scaled, offset);\n", "")
    text = text.replace("}\n", f"    w = copy(gain);\n    t0 = copy(scaled);\n{steps}")
    text += "    y = add(t150, offset);\n}\n"
    return write_files(folder / "m", files(text, quant=""))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("out", ONE_AND_ALL)
def test_a_signal_at_any_moment(
    number: signal.Signals, out: str, slow_model: Path, tmp_path: Path
) -> None:
    """The result is there whole or not at all; nothing else is left, but for what a kill
    leaves, and that the next run removes.
    """
    count = 9
    took = ends(number, slow_model, tmp_path / "first" / out, 1e9)
    for index in range(count):
        delay = took * 1.05 * (index + random.Random(index).random()) / count
        folder = tmp_path / str(index)
        ends(number, slow_model, folder / out, delay)
        left = [p.name for p in folder.iterdir()]
        if number != signal.SIGKILL:
            assert set(left) <= {out}
        if out in left:
            assert nnef_grad.load(folder / out).name == "net_backward"
        elif number == signal.SIGKILL:
            assert run(slow_model, "-o", folder / out, "-q").exit_code == 0
            assert [p.name for p in folder.iterdir()] == [out]


@pytest.mark.parametrize("out", ONE_AND_ALL)
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_a_signal_at_any_line(out: str, there: bool, tmp_path: Path) -> None:
    """Whatever line of storage/ is about to run: nothing is left but the whole output. In a
    process of its own, as not every library that other tests load outlives a fork.
    """
    arguments = out, there, tmp_path
    process = get_context("spawn").Process(target=end_at_any_line, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


def end_at_any_line(out: str, there: bool, tmp_path: Path) -> None:
    """Ends a process at each line, until one comes to its end."""
    graph, data = nnef_grad.loads(MODEL), None if out == "out.nnef" else DATA
    code, number = ENDED, 0
    while code == ENDED:
        folder = tmp_path / str(number)
        folder.mkdir()
        if there:
            nnef_grad.save(graph, folder / out, data=data)
        child = os.fork()
        if child == 0:
            try:
                end_at_line(number)
                nnef_grad.save(graph, folder / out, data=data, overwrite=True)
                code = 0
            except SystemExit:
                code = ENDED
            except BaseException:
                code = 1
            # By now the frames are gone, as they are when a program ends.
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        left = [path.name for path in folder.iterdir()]
        assert left in ([out], [] if not there else [out]), number
        if left:
            assert nnef_grad.load(folder / out).name == "net"
        # Most lines after the first hundred are those of loops, which run again.
        number += 1 if number < DENSE else 3
    assert code == 0
    assert number > DENSE


ENDED, DENSE = 143, 100


def end_at_line(number: int) -> None:
    """Ends the process by a signal before the line of storage/ that runs as the n-th."""
    here = str(Path(storage_files.__file__).parent)
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(here):
            return None
        if event == "line":
            if count == number:
                signal.raise_signal(signal.SIGTERM)
            count += 1
        return trace

    def end(*_: object) -> None:
        sys.settrace(None)
        raise SystemExit(ENDED)

    signal.signal(signal.SIGTERM, end)
    sys.settrace(trace)


def ends(number: signal.Signals, model: Path, out: Path, delay: float) -> float:
    """Runs the program, sends it a signal after some time, and looks at how it ended;
    returns the seconds that it took.
    """
    out.parent.mkdir()
    start = time.monotonic()
    program = subprocess.Popen(
        [sys.executable, "-m", "nnef_grad", str(model), "-o", str(out), "-q"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        program.wait(min(delay, 60))
    except subprocess.TimeoutExpired:
        program.send_signal(number)
    errors = program.communicate(timeout=60)[1]
    if program.returncode:
        interrupted = (130, "interrupted\n")
        wanted = {
            signal.SIGINT: {interrupted, (-2, "")},
            signal.SIGTERM: {(143, ""), (-15, "")},
            signal.SIGKILL: {(-9, "")},
        }
        # Python itself may still have been starting, and importing the package.
        is_ours = not errors or re.search(r"in _run\b|^interrupted", errors)
        assert not is_ours or (program.returncode, errors) in wanted[number]
    return time.monotonic() - start
