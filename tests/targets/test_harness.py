"""The harness of the runtimes, and the patterns that all of them run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.checks import document
from support.operation_models import Model, models
from support.parts import PARTS, part_of
from support.runtimes import (
    CONSUMERS,
    Case,
    MissingError,
    Outcome,
    compare,
    harness,
    missing,
    needs,
    run,
)
from support.runtimes import __main__ as command
from support.runtimes.blame import blamed
from support.runtimes.cases import Array, Verdict, brief
from support.runtimes.matrix import backward, example, forward, matrix, verdicts
from support.runtimes.page import page, table
from support.runtimes.portable import Pattern, pattern_example, patterns

import nnef_grad

NUMERIC = tuple(name for name in CONSUMERS if name != "khronos")
# Inputs in another order than they are declared in, and every data type.
TEXT = document(
    "x = external(shape = [2, 3]);\nu = external(shape = [2, 3]);\nm = external<logical>(shape = [2, 3]);\n"
    "i = external<integer>(shape = [2, 3]);\nw = variable(shape = [2, 3], label = 'layer/weight');\n"
    "d = sub(x, u);\ns = select(m, d, w);\ny = mul(s, 2.0);\nj = copy(i);\nfile = copy(y);",
    "i, u, m, x",
    "y, file, j",
)
INPUTS: dict[str, Array] = {
    "x": np.arange(6.0).reshape(2, 3),
    "u": np.full((2, 3), 0.5),
    "m": np.array([[True, False, True], [False, True, False]]),
    "i": np.array([[3, 1, 2], [0, -1, 7]]),
}
WEIGHT = np.full((2, 3), -1.0)
RESULT = 2.0 * np.where(INPUTS["m"], INPUTS["x"] - INPUTS["u"], WEIGHT)
EXPECTED: dict[str, Array] = {"y": RESULT, "file": RESULT, "j": INPUTS["i"]}
RIGHT = Case(TEXT, INPUTS, {"layer/weight": WEIGHT})
# It reads past the end of the number.
CRASHING = Case(
    document(
        "x = external(shape = [2, 3]);\nm = external<logical>(shape = [2]);\ny = select(m, x, 0.0);",
        "x, m",
    ),
    {"x": INPUTS["x"], "m": np.array([True, False])},
)


def model(name: str) -> Model:
    return next(m for m in models() if m.name == name)


# ---- Consumers ----


@cache
def outcomes(consumer: str) -> list[Outcome]:
    """What a consumer makes of a graph that it does not know an operation of, and of
    one that is right.
    """
    needs(consumer)
    text = document("x = external(shape = [2]);\ny = frobnicate(x);")
    return run(consumer, [Case(text, {"x": np.zeros(2)}), RIGHT])


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_right_graph_is_right_in(consumer: str) -> None:
    outcome = outcomes(consumer)[1]
    assert compare(outcome, EXPECTED).word == "ok", outcome


@pytest.mark.parametrize("consumer", NUMERIC)
def test_a_wrong_expectation_is_wrong_in(consumer: str) -> None:
    expected = {**EXPECTED, "file": RESULT + 0.01}
    verdict = compare(outcomes(consumer)[1], expected)
    assert verdict.word == "wrong"
    assert verdict.detail == "file: relative error 0.0014"
    assert 0.001 < verdict.error < 0.002


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_wrong_shape_is_wrong_in(consumer: str) -> None:
    verdict = compare(outcomes(consumer)[1], {**EXPECTED, "y": RESULT.T})
    assert verdict == Verdict("wrong shape", "y: [2, 3], not [3, 2]")


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_refusal_tells_why(consumer: str) -> None:
    verdict = compare(outcomes(consumer)[0], {"y": np.zeros(2)})
    assert verdict.word == "refused"
    assert "frobnicate" in verdict.detail


def test_onnx_runtime_is_asked_without_optimisations_too() -> None:
    outcome = outcomes("onnx")[1]
    (setting,) = outcome.others
    assert setting == "without optimisations"
    wrong = replace(outcome, others={setting: outcomes("onnx")[0]})
    verdict = compare(wrong, EXPECTED)
    assert verdict.word == "refused"
    assert verdict.detail.startswith("without optimisations: ")


def test_what_the_converter_drops_is_lost() -> None:
    needs("converter")
    text = document(
        "x = external(shape = [2]);\ny = neg(x);\nz = variable(shape = [1], label = 'z');",
        outputs="y, z",
    )
    data = {"x": np.ones(2)}, {"z": np.ones(1)}
    (outcome,) = run("converter", [Case(text, *data)])
    verdict = compare(outcome, {"y": -np.ones(2), "z": np.ones(1)})
    assert verdict == Verdict("lost outputs", "z")


# ---- Processes ----


def test_after_a_crash_the_next_case_runs() -> None:
    needs("session")
    outcomes = run("session", [RIGHT, CRASHING, CRASHING, RIGHT])
    words = [compare(outcome, EXPECTED).word for outcome in outcomes]
    assert words == ["ok", "crashed", "crashed", "ok"]
    assert outcomes[1].message == "SIGSEGV"


def test_a_crash_tells_what_it_said() -> None:
    needs("tract")
    text = document(
        "x = external(shape = [1, 2, 5]);\ny = box(x, size = [1, 1, 3], border = 'reflect');"
    )
    (outcome,) = run("tract", [Case(text, {"x": np.zeros((1, 2, 5))})])
    assert outcome.failure == "crashed"
    assert outcome.message.startswith("SIGABRT\n")
    assert "assertion failed" in outcome.message


def test_after_a_hang_the_next_case_runs() -> None:
    needs("khronos")
    endless = (
        "version 1.0;\nextension KHR_enable_operator_expressions;\ngraph net( x ) -> ( y )\n"
        "{\nx = external(shape = [2]);\ny = transpose(x, axes = [0] * -1);\n}\n"
    )
    hanging = Case(endless, {"x": np.zeros(2)})
    late, right = run("khronos", [hanging, RIGHT], seconds=2.0)
    assert late == Outcome(failure="timed out", message="no answer in 2 seconds")
    assert compare(right, EXPECTED).word == "ok"


def test_a_process_that_has_died_in_between_is_started_again(tmp_path: Path) -> None:
    needs("session")
    worker = harness._Worker("session", tmp_path / "stderr")
    process = worker._started()
    process.kill()
    process.wait()
    outcome = worker.run(harness._written(RIGHT, tmp_path / "0"))
    worker.end()
    assert compare(outcome, EXPECTED).word == "ok"


def test_a_consumer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {**CONSUMERS, "tract": ("nnef", "no_such_package")}
    monkeypatch.setattr(harness, "CONSUMERS", packages)
    assert missing("tract") == "no_such_package: pip install --group runtimes"
    with pytest.raises(MissingError, match="tract wants no_such_package"):
        run("tract", [RIGHT])


def test_a_consumer_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(harness.CONSUMERS, "nobody", ())
    with pytest.raises(RuntimeError, match="'nobody' does not start: "):
        run("nobody", [RIGHT])


# ---- Comparison ----

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("actual", "expected", "word"),
    [
        ([1.0, 2.0], [1.0, 2.0001], "ok"),
        ([1.0, 2.0], [1.0, 2.001], "wrong"),
        ([1.0, 1000.0], [1.01, 1000.0], "ok"),
        ([0.0, 1e-7], [0.0, 0.0], "ok"),
        ([0.0, 1e-4], [0.0, 0.0], "wrong"),
        ([NAN, INF], [NAN, INF], "ok"),
        ([NAN, 1.0], [1.0, 1.0], "wrong"),
        ([1.0, 1.0], [1.0, NAN], "wrong"),
        ([-INF, 1.0], [INF, 1.0], "wrong"),
        ([], [], "ok"),
    ],
)
def test_numbers(actual: list[float], expected: list[float], word: str) -> None:
    array = np.array(actual, np.float32)
    outcome = Outcome({"y": array.shape}, {"y": array})
    assert compare(outcome, {"y": np.array(expected)}).word == word


def test_the_tolerance_is_the_callers() -> None:
    outcome = Outcome({"y": (1,)}, {"y": np.array([1.0])})
    expected = {"y": np.array([1.01])}
    assert compare(outcome, expected).word == "wrong"
    assert compare(outcome, expected, tolerance=0.1).word == "ok"


def test_long_messages_are_brief() -> None:
    assert brief("one\n  two") == "one two"
    line = brief("a" * 300 + "b" * 300)
    assert line == "a" * 200 + " [...] " + "b" * 200


# ---- The matrix ----


@pytest.mark.parametrize("make", [forward, backward])
@pytest.mark.parametrize("name", [m.name for m in models()])
def test_every_model_has_an_example(name: str, make: Any) -> None:
    case, expected = example(model(name), make)
    graph = nnef_grad.loads(case.text)
    assert set(case.inputs) == set(graph.input_names)
    assert tuple(expected) == graph.output_names
    assert all(np.isfinite(array).all() for array in expected.values())


def test_a_matrix_of_forward_and_backward_graphs() -> None:
    needs("khronos")
    needs("session")
    chosen = [model("select-1"), model("select-2")]
    consumers = ["khronos", "session"]
    forwards = matrix(chosen, forward, consumers=consumers)
    assert list(forwards) == ["select-1", "select-2"]
    assert {v.word for row in forwards.values() for v in row.values()} == {"ok"}
    found = matrix(chosen, backward, consumers=consumers)
    words = {n: [row[c].word for c in consumers] for n, row in found.items()}
    assert words == {"select-1": ["ok", "ok"], "select-2": ["ok", "crashed"]}


class Lowered(NamedTuple):
    graph: nnef_grad.Graph
    data: Mapping[str, Array]


def lowered(graph: nnef_grad.Graph) -> Lowered:
    """A variable for a constant, a scalar input for an integer one, a mistake, and an
    operation that cannot be expressed.
    """
    text = nnef_grad.dumps(graph)
    if "silu" in text:
        raise nnef_grad.UsageError("there is no 'silu'")
    for old, new in {
        "exp(x)": "sinh(x)",
        "constant(shape = [2], value = [0.25])": "variable(shape = [2], label = 'c')",
        "external<integer>": "external",
        "gather(x, i)": "mul(i, 0.0)",
    }.items():
        text = text.replace(old, new)
    data = {"c": np.full(2, 0.25)} if "label = 'c'" in text else {}
    return Lowered(nnef_grad.loads(text), data)


def test_a_lowered_graph_is_compared_with_the_graph_as_it_was() -> None:
    needs("onnx")
    names = ["exp-1", "silu-1", "sin-1", "constant-2"]
    chosen = [model(name) for name in names]
    found = matrix(chosen, forward, lower=lowered, consumers=["onnx"])
    words = [found[name]["onnx"].word for name in names]
    assert words == ["wrong", "not lowered", "ok", "ok"]
    assert found["silu-1"]["onnx"].detail == "there is no 'silu'"


def test_integers_are_numbers_where_they_have_become_scalars() -> None:
    inputs = example(model("gather-1"), forward, lowered).case.inputs
    assert inputs["i"].dtype == np.float64
    assert example(model("gather-1"), forward).case.inputs["i"].dtype == np.int64


def test_the_operations_to_blame() -> None:
    needs("session")
    case = example(model("select-2"), backward).case
    found = [str(blame) for blame in blamed("session", case)]
    assert found == [
        "grad_x = select(m, grad_y, 0.0) on [2], [2, 3]: crashed: SIGSEGV",
        "grad_u_full = select(m, 0.0, grad_y) on [2], [2, 3]: crashed: SIGSEGV",
    ]


def test_constants_are_to_blame_as_well() -> None:
    needs("tract")
    case = example(model("constant-1"), forward).case
    (found,) = blamed("tract", case)
    assert found.operation.name == "constant"
    assert found.verdict.word == "refused"


# ---- Command line and page ----


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    needs("session")
    command.main(
        ["--models", "^clamp-1", "--consumers", "khronos", "session", "--blame"]
    )
    assert capsys.readouterr().out.splitlines() == [
        "== forward graphs",
        "model                           khronos       session",
        "clamp-1                         ok            refused",
        "clamp-1, session: refused: ValueError: Runtime error: operation not implemented: clamp",
        "clamp-1, session, alone: y = clamp(x, -0.5, 0.5) on [2, 3]: refused: ValueError: Runtime error:"
        " operation not implemented: clamp",
        "khronos: 1 ok",
        "session: 1 refused",
        "== backward graphs",
        "model                           khronos       session",
        "clamp-1                         ok            ok",
        "khronos: 1 ok",
        "session: 1 ok",
    ]


def test_the_command_line_leaves_out_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(harness.CONSUMERS, "tract", ("no_such_package",))
    command.main(
        ["--models", "^exp-", "--consumers", "tract", "--directions", "forward"]
    )
    assert capsys.readouterr().out.splitlines() == [
        "tract is left out, for want of no_such_package: pip install --group runtimes",
        "== forward graphs",
        "model",
        "exp-1",
    ]


def row(**words: Any) -> dict[str, Verdict]:
    return {consumer: Verdict(word) for consumer, word in words.items()}


def test_the_page() -> None:
    plain = {
        "max_pool-1": row(session="refused", tract="refused"),
        "max_pool-2": row(session="refused", tract="ok"),
        "exp-1": row(session="ok", tract="ok"),
    }
    lowered = {
        "max_pool-1": row(session="ok", tract="ok"),
        "max_pool-2": row(session="crashed", tract="wrong"),
        "exp-1": row(session="ok", tract="ok"),
    }
    results = {"nnef": {"backward": plain}, "khronos": {"backward": lowered}}
    networks = {"resnet": {"session": Verdict("ok", error=2.6e-6)}}
    text = page(results, promised={"khronos": ["session"]}, networks=networks)
    assert text.startswith("# Where each operation runs\n")
    assert "| **S** | the Khronos C++ runtime, `nnef.Session` | 1 |  |\n" in text
    assert "| resnet | 3e-06 |\n" in text
    assert "- khronos: `max_pool` (graph 2), session: crashed\n" in text
    assert table(results) == (
        "operation,graph,nnef,khronos\n"
        "`max_pool`,backward,· ·,· ·\n`exp`,backward,S T,S T\n"
    )


def test_the_page_names_the_targets_with_which_all_graphs_run() -> None:
    plain, lowered = {"exp-1": row(tract="refused")}, {"exp-1": row(tract="ok")}
    results = {"nnef": {"backward": plain}, "tract": {"backward": lowered}}
    text = page(results, {}, networks={"resnet": {"tract": Verdict("ok", error=1e-6)}})
    assert "| **T** | tract | 0 | `tract` |\n" in text
    assert "fail on its graphs" not in text


# ---- Patterns ----


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_all_patterns_are_right_in(consumer: str, part: int) -> None:
    needs(consumer)
    chosen = part_of(list(patterns()), part)
    examples = {p.model.name: pattern_example(p) for p in chosen}
    found = verdicts(consumer, examples)
    assert {name: v for name, v in found.items() if v.word != "ok"} == {}


@pytest.mark.parametrize(
    "pattern", [pytest.param(p, id=p.model.name) for p in patterns() if p.original]
)
def test_a_pattern_computes_what_it_stands_for(pattern: Pattern) -> None:
    assert pattern.original is not None
    case, expected = pattern_example(pattern)
    graph = nnef_grad.loads(pattern.original)
    outputs = nnef_grad.evaluate(graph, case.inputs, case.variables)
    verdict = compare(_outcome(outputs), expected, tolerance=1e-9)
    assert verdict.word == "ok", verdict.detail


def _outcome(outputs: Mapping[str, Array]) -> Outcome:
    return Outcome({name: array.shape for name, array in outputs.items()}, outputs)
