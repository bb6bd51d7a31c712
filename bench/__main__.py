"""Measures, and prints the comparisons.

`make bench` measures everything, and writes a file of bench/results/, docs/speed.md and its
figures. With `--write`, a part of it replaces what was measured of these networks before;
without, it prints:

    python -m bench --only onnx --models 'resnet|vgg' --batch 1 --runs 5
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench import figures, report
from bench.page import page, table
from bench.parts import PARTS, measure
from bench.peers import VARIABLE, training_python
from bench.plot import draw
from bench.rows import Row, Skipped
from bench.settings import Settings

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE, FIGURE = ROOT / "docs" / "speed.md", ROOT / "docs" / "speed.svg"
TABLE = ROOT / "docs" / "tables" / "speed.csv"
PLOTS = ROOT / "docs" / "plots"
# One network, in seconds.
BRIEF = Settings(models="^mobilenet$", batches=(1,), runs=5)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if options.brief:
        print(brief())
        return
    if options.page:
        publish(report.read_all(RESULTS))
        return
    settings = settings_of(options)
    found = run(options.only, settings)
    if options.write:
        path = report.place(RESULTS, report.machine())
        report.save(report.read(path).updated(found, settings), path)
        publish(report.read_all(RESULTS))


def run(parts: Sequence[str], settings: Settings) -> report.Report:
    """Measures, and prints each row as soon as it is there."""
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for part in parts:
        for found in measure(part, settings):
            rows += [found] if isinstance(found, Row) else []
            skipped += [found] if isinstance(found, Skipped) else []
            print(*report.lines(found), sep="\n", flush=True)
    print(report.summary(rows))
    how = report.circumstances(settings)
    return report.Report(dict.fromkeys(parts, how), rows, skipped)


def brief() -> str:
    """One network in ONNX Runtime, or why not."""
    *_, found = measure("onnx", BRIEF)
    return report.brief(found) if isinstance(found, Row) else report.lines(found)[0]


def latest_whole(written: Sequence[report.Report]) -> report.Report:
    """The latest results that have every part, of which figures are; else the latest."""
    return next((r for r in written if r.parts.keys() >= PARTS.keys()), written[0])


def publish(written: Sequence[report.Report]) -> None:
    """Writes the page, its table and its figures."""
    latest = latest_whole(written)
    PAGE.write_text(page(written), "utf-8")
    TABLE.write_text(table(written), "utf-8")
    draw(latest, FIGURE)
    figures.draw(latest, PLOTS)


def settings_of(options: argparse.Namespace) -> Settings:
    return Settings(
        models=options.models,
        batches=tuple(options.batch),
        runs=options.runs,
        seconds=options.seconds,
        threads=options.threads,
        profile=options.profile,
        training=training_python(options.ort_training, install=options.install),
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    say = made.add_argument
    say("--only", nargs="+", choices=[*PARTS], default=[*PARTS], help="these parts")
    say("--models", default="", metavar="REGEX", help="networks with such a name")
    say("--batch", nargs="+", type=int, default=[1, 8], help="extents of the batch")
    say("--runs", type=int, default=7, help="runs of each program, at most")
    say("--seconds", type=float, default=20.0, help="for a row, after three runs")
    say("--threads", type=int, default=2, help="threads of a program")
    say("--profile", action="store_true", help="print what takes the time, by operator")
    say("--ort-training", metavar="PYTHON", help=f"or the variable {VARIABLE}")
    say("--install", action="store_true", help="onnxruntime-training, where it is not")
    say("--write", action="store_true", help="the results, the page and its figures")
    say("--page", action="store_true", help="write the page again, measure nothing")
    say("--brief", action="store_true", help="one network, in a line")
    return made


if __name__ == "__main__":
    main()
