"""The fuzzer itself, and the first few of its inputs."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import fuzz, processes, sizes
from fuzz.broken import ACCEPTED, Broken, OverBudget
from fuzz.commands import REFUSED
from fuzz.inputs import Command, Input
from fuzz.kinds import KINDS, make_input
from fuzz.places import unpack
from fuzz.tars import END, Member, packed
from fuzz.worker import examine, request_of

MODEL = (
    b"version 1.0;\ngraph g( x ) -> ( y ) { x = external(shape = [2]); y = exp(x); }"
)


@pytest.mark.parametrize("kind", ["grammar", "network", "mutation"])
def test_the_first_inputs(kind: str) -> None:
    outcomes = {examine(make_input(f"tests:{i}", [kind])) for i in range(60)}
    assert len(outcomes) > 1


def test_some_networks_are_accepted() -> None:
    seeds = [f"tests:{i}" for i in range(30)]
    outcomes = [examine(make_input(seed, ["network"])) for seed in seeds]
    assert 0 < outcomes.count(ACCEPTED) < 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_stands_for_one_input(kind: str) -> None:
    assert make_input("tests:1", [kind]) == make_input("tests:1", [kind])
    assert make_input("tests:1", [kind]).data != make_input("tests:2", [kind]).data


@pytest.mark.parametrize("kind", ["text", "archive", "folder"])
def test_the_first_commands(kind: str) -> None:
    outcomes = [examine(make_input(f"tests:{i}", [kind])) for i in range(40)]
    assert set(outcomes) == {ACCEPTED, REFUSED}


def test_the_first_checks() -> None:
    """Those of networks may find bugs: how to differentiate is tested elsewhere."""
    outcomes = [examine(make_input(f"tests:{i}", ["check"])) for i in range(6)]
    assert ACCEPTED in outcomes


# Documents that are refused whatever their length.
REFUSED_SIZES = {
    *["axes", "pairs of padding", "brackets", "joined strings", "targets", "a string"],
    *["an undefined name", "an operation", "lines of errors", "escapes", "an integer"],
    *["an error at the end of a line", "a body of errors", "inputs that are one"],
    *["outputs that are one"],
}
LONG = [
    (make, table is sizes.ERRORS) for table in sizes.TABLES for make in table.items()
]


@pytest.mark.parametrize(
    ("make", "is_refused"), LONG, ids=[make[0] for make, _ in LONG]
)
def test_documents_with_much_of_one_thing(
    make: tuple[str, sizes.Make], is_refused: bool
) -> None:
    """They are what they are meant to be, also when they are short."""
    outcome = examine(Input(make[1](3).encode()))
    assert (outcome != ACCEPTED) == (is_refused or make[0] in REFUSED_SIZES)


@pytest.mark.parametrize("make", sizes.REPEATED.values(), ids=sizes.REPEATED)
def test_short_documents_for_long_lists(make: sizes.Make) -> None:
    examine(Input(make(3).encode()))


# ---- Commands that do what they must not ----


def command(output: str = "-", *arguments: list[str]) -> Input:
    made = Command("file", "m.nnef", output, "nothing", list(arguments), len(MODEL))
    return Input(MODEL, made.as_options())


def allocate(_: list[str]) -> None:
    bytearray(2**30)


def work(_: list[str]) -> None:
    while True:
        pass


def write_elsewhere(_: list[str]) -> None:
    Path("other").write_bytes(b"")


def write_and_fail(words: list[str]) -> None:
    Path(words[2]).write_bytes(b"")
    print("error: no", file=sys.stderr)
    sys.exit(2)


def change_the_model(_: list[str]) -> None:
    Path("m.nnef").write_bytes(b"")


def write_nonsense(words: list[str]) -> None:
    Path(words[2]).write_text("nonsense")


def raise_error(_: list[str]) -> None:
    raise KeyError("x")


WRONG: list[tuple[Callable[[list[str]], None], str]] = [
    (allocate, "MemoryError"),
    (work, "exit code"),
    (write_elsewhere, "a file is made"),
    (write_and_fail, "exit code 2 and a file is made"),
    (change_the_model, "a file is changed"),
    (write_nonsense, "the output is refused"),
    (raise_error, "KeyError"),
    (lambda _: sys.exit(1), "exit code 1"),
    (lambda _: sys.exit(2), "without a message"),
    (lambda _: print("y"), "bytes on stdout"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_a_command_must_not_do(
    wrong: Callable[[list[str]], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = command("out.nnef")
    assert examine(item) == ACCEPTED
    monkeypatch.setattr(processes, "main", wrong)
    seconds = 0.3 if wrong is work else 10.0
    monkeypatch.setattr(processes, "seconds_for", lambda *_, **__: seconds)
    with pytest.raises((Broken, OverBudget), match=message):
        examine(item)


@pytest.mark.parametrize("existing", ["text", "empty file", "other folder"])
@pytest.mark.parametrize("force", [[], [["--force"]]])
def test_what_a_command_must_not_replace(
    existing: str, force: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = "out.nnef" if existing != "other folder" else "out"
    made = Command("file", "m.nnef", out, existing, force, len(MODEL))
    item = Input(MODEL, made.as_options())
    is_replaced = bool(force) and out == "out.nnef"
    assert examine(item) == (ACCEPTED if is_replaced else REFUSED)
    if is_replaced:
        return
    monkeypatch.setattr(processes, "main", replace_everything)
    with pytest.raises(Broken, match="is replaced"):
        examine(item)


def replace_everything(words: list[str]) -> None:
    if Path(words[2]).is_dir():
        shutil.rmtree(words[2])
    Path(words[2]).write_bytes(MODEL)


def test_arguments_that_do_not_matter_are_left_out() -> None:
    item = command("-", ["--batch", "2"], ["--lenient"], ["-q"])

    def fails(item: Input) -> bool:
        return item.command is not None and ["--lenient"] in item.command.arguments

    smaller = fuzz.without_arguments(item, fails).command
    assert smaller is not None
    assert smaller.arguments == [["--lenient"]]


def test_a_folder_is_made_inside_only(tmp_path: Path) -> None:
    members = [
        *[Member("../a", b"x"), Member("/tmp/nnef-grad-fuzz-b", b"x")],
        *[Member("l", type=b"2", link=".."), Member("l/c", b"x"), Member("d/e", b"x")],
    ]
    unpack(packed(members) + END, tmp_path / "model")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
    assert [n for n in names if n != "model/l"] == ["model", "model/d", "model/d/e"]


def test_a_worker_outlives_its_process() -> None:
    worker = fuzz.Worker()
    request = request_of(Input(MODEL))
    assert worker.run(request)["outcome"] == ACCEPTED
    assert worker.process is not None
    worker.process.kill()
    failure = fuzz.failure_of(worker.run(request))
    assert failure is not None
    assert failure.outcome == "Crash"
    assert worker.run(request)["outcome"] == ACCEPTED
    worker.stop()


def test_a_failing_input_is_made_smaller() -> None:
    data = b"one\ntwo\nthree\nfour and more\nfive\n"

    def fails(some: bytes) -> bool:
        return b"t" in some and b"more" in some

    assert fuzz.minimise(data, fails, seconds=10.0) == b"tmore"


def test_what_takes_too_long_is_not_made_smaller() -> None:
    def fails(some: bytes) -> bool:
        time.sleep(0.01)
        return len(some) > 50_000

    assert len(fuzz.minimise(b"x" * 100_000, fails, seconds=0.02)) > 50_000


def test_a_saved_input_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "FAILURES", tmp_path / "failures")
    item = Input(b"\xff\n# fuzz \n", {"wrt": ["x"], "batch": 10**30})
    assert fuzz.read(fuzz.save(item)) == item
    plain = tmp_path / "plain.nnef"
    plain.write_bytes(MODEL)
    assert fuzz.read(plain) == Input(MODEL)


def test_a_short_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "FAILURES", tmp_path)
    options = ["--minutes", "0.02", "--jobs", "1", "--seed", "1", "--kinds", "network"]
    assert fuzz.main(options) == 0
    assert "seed 1" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
