"""Measures, and prints the ratios. `make bench` runs all of it.

    python -m bench --only onnx --models 'resnet|vgg' --batch 1 --runs 5
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from bench.comparisons import ratios
from bench.parts import khronos, onnx, real, tract
from bench.peers import VARIABLE, training_python
from bench.rows import Measured, Row, Skipped
from bench.settings import Settings

PARTS: dict[str, Callable[[Settings], Measured]] = {
    "onnx": onnx.measure,
    "khronos": khronos.measure,
    "tract": tract.measure,
    "real": real.measure,
}


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    settings = settings_of(options)
    rows: list[Row] = []
    for part in options.only:
        for found in PARTS[part](settings):
            if isinstance(found, Skipped):
                print(f"{found.part}: {found.what} left out: {found.why}", flush=True)
            else:
                rows.append(found)
                show(found)


def show(row: Row) -> None:
    """Prints the ratios of a row as soon as it is measured."""
    for found in ratios([row]):
        goal = "" if found.comparison.goal is None else f"goal {found.comparison.goal}"
        print(
            f"{row.part:8} {row.net:12} {row.batch:3} {row.runtime:28}"
            f" {found.comparison.name:36} {found.median:5.2f} (min {found.least:5.2f})"
            f" {goal} {found.verdict}",
            flush=True,
        )
    if row.difference is not None:
        print(f"{'':8} gradients differ by {row.difference:.0e}", flush=True)


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
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
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
    return made


if __name__ == "__main__":
    main()
