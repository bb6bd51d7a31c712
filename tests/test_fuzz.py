"""The fuzzer itself, and the first few of its inputs."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import nnef_grad
from fuzz import changed, fuzz, processes, sizes
from fuzz.broken import ACCEPTED, Broken, OverBudget
from fuzz.commands import REFUSED
from fuzz.figures import Figures
from fuzz.inputs import Command, Input
from fuzz.kinds import KINDS, make_input
from fuzz.places import unpack
from fuzz.tars import END, Member, packed
from fuzz.worker import examine, request_of
from nnef_grad.graph.ir import Graph

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


@pytest.mark.parametrize("kind", ["text", "archive", "folder", "external"])
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


@pytest.mark.parametrize("kind", ["step", "loop", "mutated"])
def test_the_first_inputs_that_are_more_than_texts(kind: str) -> None:
    outcomes = [examine(make_input(f"tests:{i}", [kind])) for i in range(30)]
    assert 0 < outcomes.count(ACCEPTED) < 30


# ---- Steps, loops and changes, where the compiler is wrong ----

STEP = b"""version 1.0;
graph g0( t0 ) -> ( t2 )
{
    t0 = external(shape = [4, 3]);
    t1 = variable(shape = [5, 3], label = 'p0');
    t2 = linear(t0, t1, 0.0);
}
"""
LOOP = b"""version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
extension tract_symbol T;
fragment cell( xs: tensor<scalar>, h: tensor<scalar> ) -> ( new_h: tensor<scalar> )
{
    new_h = tanh(h + squeeze(xs, axes = [0]));
}
graph net( x, h ) -> ( y )
{
    x = tract_core_external(shape = [T, B, 2], datum_type = 'f32');
    h = tract_core_external(shape = [B, 2], datum_type = 'f32');
    y = tract_core_scan(body = 'cell', scan = [('xs', x, 0, 1)], full = [],
        state = [('h', h, 'new_h')], output = [('new_h', 'last', 0, 1)]);
}
"""


def planted_step(names: dict[str, str], **settings: Any) -> Input:
    given = {"loss": "huber", "optimizer": "adam", "target": "nnef", **settings}
    how = {"quant": None, "data": "all", "rate": 0.1, "scale": 1.0}
    return Input(STEP, {"step": {"settings": given, "names": names, **how}})


def planted_loop() -> Input:
    numbers = [{"B": 1, "T": 2}, {"B": 2, "T": 3}]
    return Input(LOOP, {"loop": {"numbers": numbers, "wrt": "all"}})


Settings = dict[str, Any]


def forget_the_optimizer(graph: Graph, settings: Settings) -> Settings:
    return (
        {**settings, "optimizer": "sgd"} if "correction1" in graph.tensors else settings
    )


def know_no_plain_name(graph: Graph, settings: Settings) -> Settings:
    return settings if "correction1" in graph.tensors else {**settings, "loss": ""}


def look_up_a_name(graph: Graph, settings: Settings) -> Settings:
    return {**settings, "target": {"t1": "nnef"}[graph.names[graph.variables[0]]]}


WRONG_STEPS = [
    (forget_the_optimizer, Broken, "other losses under other names"),
    (know_no_plain_name, Broken, "refused under plain names alone"),
    (look_up_a_name, KeyError, "correction1"),
]


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG_STEPS)
def test_a_step_that_depends_on_names(
    wrong: Callable[[Graph, Settings], Settings],
    error: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item, right = planted_step({"t1": "correction1"}), nnef_grad.training_step
    assert examine(item) == ACCEPTED

    def planted(graph: Graph, **settings: Any) -> Any:
        return right(graph, **wrong(graph, settings))

    monkeypatch.setattr(nnef_grad, "training_step", planted)
    with pytest.raises(error, match=message):
        examine(item)


def test_a_step_that_cannot_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnef_grad, "dumps", lambda made: DUMPS(made).replace("}", ""))
    with pytest.raises(Broken, match="the written text is refused"):
        examine(planted_step({}))


def test_a_label_of_a_constant_is_not_trained() -> None:
    label = {"p0": "nnef-grad/constants/1"}
    assert examine(planted_step(label)) == "UsageError"
    assert examine(planted_step(label, train=["p0"])) == "UsageError"


def derived(graph: Graph, **options: Any) -> nnef_grad.Backward:
    """The derivative, where that of tanh is wrong."""
    backward = DIFFERENTIATE(graph, **options)
    text = nnef_grad.dumps(backward).replace("sub(1.0", "sub(1.1")
    return replace(backward, graph=nnef_grad.loads(text, unroll=0))


def derived_if(loops: bool) -> Callable[..., nnef_grad.Backward]:
    def differentiate(graph: Graph, **options: Any) -> nnef_grad.Backward:
        is_wrong = ("tract_core_scan" in nnef_grad.dumps(graph)) == loops
        return (derived if is_wrong else DIFFERENTIATE)(graph, **options)

    return differentiate


DIFFERENTIATE, DUMPS = nnef_grad.differentiate, nnef_grad.dumps
WRONG_LOOPS = [
    ("differentiate", derived_if(loops=True), "the steps have other gradients"),
    ("differentiate", derived_if(loops=False), "not that of differences"),
    ("dumps", lambda made: DUMPS(made).replace("2]", "22]"), "as another graph"),
    ("dumps", lambda made: DUMPS(made).replace("}", "", 1), "written text is refused"),
]


@pytest.mark.parametrize(("name", "wrong", "message"), WRONG_LOOPS)
def test_a_loop_that_is_wrong(
    name: str,
    wrong: Callable[..., Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert examine(planted_loop()) == ACCEPTED
    monkeypatch.setattr(nnef_grad, name, wrong)
    with pytest.raises(Broken, match=message):
        examine(planted_loop())


def test_a_number_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = nnef_grad.loads

    def planted(text: str, **options: Any) -> Graph:
        if options.get("symbols") == {"B": 2, "T": 3}:
            raise nnef_grad.UsageError("no")
        return loads(text, **options)

    monkeypatch.setattr(nnef_grad, "loads", planted)
    with pytest.raises(Broken, match="refused with numbers for its symbols"):
        examine(planted_loop())


def with_dictionaries(graph: Graph) -> Graph:
    """The graph, with attributes that can be changed."""
    for operation in graph.operations:
        object.__setattr__(operation, "attributes", {**operation.attributes})
    return graph


@pytest.mark.parametrize("what", changed.MADE)
def test_results_that_are_shared(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is the same one each time; all is as before after the changes."""
    shared, text = with_dictionaries(nnef_grad.loads(STEP.decode())), STEP.decode()
    before, loads = nnef_grad.dumps(shared), nnef_grad.loads
    options = {"what": list(dict.fromkeys(["graph", what])), "seed": 1}
    item = Input(STEP, {"changed": options})
    assert examine(item) == ACCEPTED
    monkeypatch.setattr(
        nnef_grad, "loads", lambda t, **o: shared if t == text else loads(t, **o)
    )
    with pytest.raises(Broken, match="after changes of a result"):
        examine(item)
    assert nnef_grad.dumps(shared) == before


THINGS: list[Any] = [
    *[[1, 2], {"a": 1}, {1, 2}, np.ones(2), np.ones(()), Figures()],
]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: type(thing).__name__)
def test_changes_are_taken_back(thing: Any) -> None:
    before, seen = changed.shown(thing), set()
    for seed in range(40):
        changes = changed.Changes(Random(seed))
        changes.of(thing)
        seen.add(changed.shown(thing))
        changes.undo()
        assert changed.shown(thing) == before
    assert seen != {before}


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
