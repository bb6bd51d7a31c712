"""The machinery of the benchmark, on small runs. No time is judged here."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnef_grad
from bench import __main__ as bench
from bench import figures, nets, recomputation, report
from bench.comparisons import COMPARISONS, PACKAGES, outcomes
from bench.page import page, table
from bench.parts import PARTS, onnx
from bench.processes import FailedError, ask, shortened
from bench.report import Report
from bench.rows import Row, Skipped
from bench.settings import Settings
from bench.timing import LEAST_RUNS, interleaved
from bench.workers.results import difference
from nnef_grad.ops.traits import FED

ONE = Settings(models="^lstm$", batches=(1,), runs=1)


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"for want of {missing}")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that take no time."""
    monkeypatch.setitem(nets.NETS, "lstm", partial(nets.lstm, steps=2, width=8))
    monkeypatch.setitem(nets.NETS, "mobilenet", partial(nets.mobilenet, image=32))


# ---- Networks ----


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("net", ["mobilenet", "unet", "transformer", "lstm"])
def test_a_network_has_gradients_of_all_variables(net: str, batch: int) -> None:
    graph = nets.NETS[net](batch)
    assert {tensor.shape[0] for tensor in (*graph.inputs, *graph.outputs)} == {batch}
    assert len(nnef_grad.differentiate(graph, wrt="variables").gradients) > 3
    assert not graph.warnings


def test_the_chain_is_flat_and_has_variables_of_its_own() -> None:
    graph = nnef_grad.loads(nets.chain(2))
    names = [op.name for op in graph.operations if op.name not in FED]
    assert names == ["copy", *["matmul", "add", "tanh", "mul", "add"] * 2, "copy"]
    assert len(graph.variables) == 6


def test_the_peer_gets_explicit_padding_and_the_formula_of_normalizations() -> None:
    given = onnx.explicit(nets.mobilenet(1, image=32))
    assert all(op.attributes["padding"] for op in given.operations if op.name == "conv")
    assert "batch_normalization" not in {op.name for op in given.operations}
    graph = nets.mobilenet(1, image=32)
    data = nets.random_data(graph)
    feeds = {"x": np.ones((1, 3, 32, 32))}
    (exact,) = nnef_grad.evaluate(graph, feeds, data).values()
    (found,) = nnef_grad.evaluate(given, feeds, data).values()
    assert np.allclose(exact, found)


# ---- Runs ----


def test_programs_take_turns() -> None:
    called: list[str] = []
    programs = {name: lambda name=name: called.append(name) for name in "ab"}
    times = interleaved(programs, 2, 60.0)
    assert called == ["a", "b", "a", "b"]
    assert [len(taken) for taken in times.values()] == [2, 2]


def test_no_run_begins_after_the_time_is_over() -> None:
    assert len(interleaved({"a": lambda: None}, 100, 0.0)["a"]) == LEAST_RUNS


@needs("onnx", "onnxruntime", "torch", "tract")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("part", ["onnx", "khronos", "tract"])
def test_a_row_of_each_part(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = bench.run([part], ONE)
    goals = [c for c in COMPARISONS if c.part == part and c.peer != onnx.PEER]
    assert [outcome.comparison for outcome in outcomes(found.rows)] == goals
    assert all((row.difference or 0) < 1e-4 for row in found.rows)
    assert f"{part:9} lstm" in capsys.readouterr().out


@needs("onnx", "onnxruntime")
@pytest.mark.usefixtures("small")
def test_one_network_in_a_line() -> None:
    line = bench.brief()
    assert line.startswith("mobilenet, batch 1, in onnxruntime")
    assert re.search(r" in \d+ ms, \d+\.\d times the forward graph's \d+ ms", line)


@needs("onnx", "onnxruntime")
@pytest.mark.usefixtures("small")
def test_the_operators_that_take_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--only onnx --models ^lstm$ --batch 1 --runs 1 --profile"
    bench.main(options.split())
    assert "% Gemm (" in capsys.readouterr().out


def test_a_worker_that_fails_says_why() -> None:
    with pytest.raises(FailedError, match="KeyError: 'arguments'"):
        ask("compiler", {})


def test_a_long_message_keeps_its_end() -> None:
    assert shortened("x" * 1000 + "why").endswith("xwhy")
    assert len(shortened("x" * 1000)) < 200


# ---- Results ----


def test_the_difference_is_relative_to_each_gradient() -> None:
    theirs = [np.array([[2.0, 4.0]]), np.array([1e-9])]
    ours = [np.array([2.0, 4.4]), np.array([0.0])]
    assert difference(ours, theirs) == pytest.approx(0.1)


def row(**changes: object) -> Row:
    fields = {
        "part": "khronos",
        "net": "lstm",
        "batch": 1,
        "runtime": "torch",
        "seconds": {"backward": [1.0, 3.0, 2.0], "autograd": [4.0, 4.0, 5.0]},
        "mebibytes": {"backward": 30.0, "autograd": 20.0},
    }
    return Row(**{**fields, **changes})  # type: ignore[arg-type]


def test_ratios_and_their_goals() -> None:
    time, memory = outcomes([row()])
    assert (time.median, time.least, time.verdict) == (0.5, 0.25, "met")
    assert (memory.median, memory.verdict) == (1.5, "missed")


def test_differences_and_their_goals() -> None:
    start = {"nnef-grad --help": [0.25, 0.5, 0.25], PACKAGES: [0.125, 0.25, 0.125]}
    counts = {"forward": 5_002, "backward": 15_000}
    time, operations = outcomes(
        [row(part="compiler", seconds=start, mebibytes={}, operations=counts)]
    )
    assert (time.median, time.least, time.verdict) == (0.125, 0.125, "missed")
    assert (operations.median, operations.verdict) == (9_998, "missed")
    assert time.comparison.name == f"nnef-grad --help - {PACKAGES}"
    assert "operations of backward - forward" in report.line(operations)
    assert " 9,998 " in report.line(operations)


def test_programs_with_other_results_are_not_compared() -> None:
    verdicts = [outcome.verdict for outcome in outcomes([row(difference=0.5)])]
    assert verdicts == ["other results"] * 2


def report_of(rows: list[Row]) -> Report:
    how = report.circumstances(Settings())
    skipped = Skipped("real", "the whole part", "not installed: timm")
    return Report({"khronos": how, "real": how}, rows, [skipped])


def test_what_is_measured_again_replaces_what_it_was() -> None:
    first, other = report_of([row()]), row(part="tract")
    again = Report({"tract": first.parts["real"]}, [other], [])
    both = first.updated(again, Settings())
    assert (both.rows, both.skipped) == ([row(), other], first.skipped)
    assert both.updated(report_of([]), Settings()).rows == [other]
    for some in (Settings(models="^another$"), Settings(batches=(row().batch + 1,))):
        assert both.updated(report_of([]), some).rows == [row(), other]


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = report_of([row()])
    report.save(written, tmp_path / "results.json")
    assert report.read(tmp_path / "results.json") == written


def test_the_page_says_what_was_missed_and_left_out() -> None:
    written = page([report_of([row()])])
    assert f"1 of 2 goals are met on {report.machine()}." in written
    assert "| backward / autograd | 1.0 | 0.50 (0.50 to 0.50); 1 of 1 |" in written
    assert ",backward / autograd,0.50,1.0,2000 and 4000 ms" in table(
        [report_of([row()])]
    )
    assert "- real: the whole part: not installed: timm" in written


def test_each_kind_of_processor_has_a_column() -> None:
    how = report.circumstances(Settings())
    others = [
        replace(how, machine=f"M{n}, {n} cores", date=f"2031-01-0{n}") for n in (1, 2)
    ]
    slow = row(seconds={"backward": [6.0], "autograd": [4.0]})
    reports = [
        Report({"khronos": other}, [found], [])
        for other, found in zip(others, (row(), slow), strict=True)
    ]
    written = page(reports)
    assert "| in | compared | goal | M1, 1 cores | M2, 2 cores |" in written
    cells = "1.0 | 0.50 (0.50 to 0.50); 1 of 1 | 1.50 (1.50 to 1.50); 0 of 1 |"
    assert f"| torch | backward / autograd | {cells}" in written
    assert "are met on M1, 1 cores. 0 of 2 goals are met on M2, 2 cores." in written
    assert table(reports).count(",M2") == 0
    assert table(reports).count(',"M2, 2 cores"') == 2


def test_no_processor_overwrites_the_results_of_another(tmp_path: Path) -> None:
    how = report.circumstances(Settings())
    for name, day in (("A (R) Z @ 2.1GHz, 2 cores", 2), ("B", 3)):
        one = replace(how, machine=name, date=f"2031-01-0{day}")
        report.save(Report({"tract": one}, [], []), report.place(tmp_path, name))
    assert {p.name for p in tmp_path.iterdir()} == {
        "a-r-z-2-1ghz-2-cores.json",
        "b.json",
    }
    assert [r.machine[0] for r in report.read_all(tmp_path)] == ["B", "A"]
    assert report.read(tmp_path / "none.json") == Report({}, [], [])


def test_what_was_measured_in_part_takes_no_figure_away() -> None:
    how = report.circumstances(Settings())
    part = report.Report({"tract": replace(how, machine="New")}, [], [])
    whole = report.Report(dict.fromkeys(PARTS, how), [], [])
    assert bench.latest_whole([part, whole]) == whole
    assert bench.latest_whole([part]) == part


def test_the_figures_are_of_the_results_that_are_kept() -> None:
    kept = bench.latest_whole(report.read_all(bench.RESULTS))
    *times, khronos = figures.times(kept)
    assert [(found.title.split()[0], found.peer) for found in times] == [
        ("onnxruntime-training", "onnxruntime-training"),
        ("onnxruntime", "torch"),
        ("openvino", "torch"),
    ]
    (memory,) = figures.memories(kept)
    assert memory.nets == khronos.nets
    assert all(
        len(panel.nets) == len(panel.ours) == len(panel.peers) > 1
        for panel in (*times, khronos, memory)
    )
    assert all(0 < few < many for few, many in figures.growth(kept).values())


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_figure_is_on_the_page_and_of_the_newest_results(name: str) -> None:
    assert f"(plots/{name}.svg)" in bench.PAGE.read_text("utf-8")
    part, _ = figures.FIGURES[name]
    kept = bench.latest_whole(report.read_all(bench.RESULTS))
    drawn = (bench.PLOTS / f"{name}.svg").read_text("utf-8")
    assert kept.parts[part].date in drawn
    assert kept.parts[part].machine in drawn
    if part != "compiler":
        assert all(
            f">{row.net}<" in drawn
            for row in figures.rows_of(kept, part)
            if len(row.seconds) > 2
        )


def test_the_page_shows_the_results_that_are_kept() -> None:
    kept = report.read_all(bench.RESULTS)
    assert bench.PAGE.read_text("utf-8") == page(kept)
    assert bench.TABLE.read_text("utf-8") == table(kept)


# ---- Computing again, and saving ----

# Tensors of 4 bytes. The second half reads x and y, of which the first one saves y.
SQUARE = """version 1.0; graph net( x ) -> ( y )
{ x = external(shape = [1, 1]); h = matmul(x, x); y = tanh(h); }"""


def test_saving_holds_memory_between_the_passes_and_computes_less() -> None:
    graph = nnef_grad.loads(SQUARE)
    backward = nnef_grad.differentiate(graph)
    assert recomputation.computed_again(graph, backward.graph) == (
        [0, 4, 8, *(0, 0, 4, 8), *(8, 8, 8), *(8, 12, 12)],
        3,
        4,
    )
    assert recomputation.saved(nnef_grad.split(graph, backward)) == (
        [0, 4, 8, *(4, 4, 4), *(8, 8, 8), *(8, 12, 12)],
        3,
        3,
    )


def test_the_figure_of_memory_is_on_its_page() -> None:
    page = (bench.ROOT / "docs" / "memory.md").read_text("utf-8")
    assert "(plots/recomputation.svg)" in page
    drawn = recomputation.FIGURE.read_text("utf-8")
    assert all(f">{name}<" in drawn for name in recomputation.DRAWN)
    for way, found in recomputation.passes("transformer").items():
        assert f">{recomputation.label(way, found)}<" in drawn, (
            "the costs have changed: python -m bench.recomputation"
        )


# ---- Gradients for each example ----


@pytest.fixture
def examples() -> Any:
    pytest.importorskip("torch")
    return importlib.import_module("bench.parts.examples")


def test_gradients_for_each_example_are_compared_by_sums(examples: Any) -> None:
    def of(scale: float) -> list[dict[str, Any]]:
        return [{"sums": {"w": [1.0 * scale, -2.0, 4.0], "b": [0.5, 0.5, 1.0]}}]

    assert examples.difference(of(1.0), of(1.0)) == 0.0
    assert examples.difference(of(1.2), of(1.0)) == pytest.approx(0.05)


def test_programs_that_fail_or_differ_are_left_out(
    examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second round goes on without what failed in the first."""
    asked: list[str] = []

    def answered(worker: str, request: dict[str, Any]) -> Any:
        program = request.get("program", "write")
        asked.append(program)
        if program == "opacus":
            raise FailedError("it is not installed right")
        sums = {"w": [1.0, 2.0, 3.0]}
        found = {"sums": sums, "seconds": [0.5, 0.4], "mebibytes": 7.0}
        return ["w"] if program == "write" else found

    monkeypatch.setattr(examples, "ask", answered)
    monkeypatch.setattr(examples, "find_spec", lambda name: True)
    (left, row) = examples.rows("resnet18", Settings(runs=6))
    assert asked == [
        "write",
        "onnxruntime",
        "torch.func",
        "opacus",
        "onnxruntime",
        "torch.func",
    ]
    assert isinstance(left, Skipped)
    assert isinstance(row, Row)
    assert row.seconds == {n: [0.5, 0.4] * 2 for n in ("onnxruntime", "torch.func")}
    ratios = {o.comparison.name: o.median for o in outcomes([row])}
    assert ratios == {
        "onnxruntime / torch.func": 1.0,
        "memory of onnxruntime / torch.func": 1.0,
    }
