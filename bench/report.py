"""The table in the terminal, and the file of what was measured."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import nnef_grad
from bench.comparisons import Outcome, outcomes, shown
from bench.rows import Row, Skipped
from bench.settings import Settings

CPUINFO = Path("/proc/cpuinfo")
DIGITS = 4


@dataclass(frozen=True)
class Report:
    """A whole run of the benchmark.

    Attributes:
        date: of the run, as in 2026-01-31.
        machine: the processor and its cores, in words.
        versions: of what is no runtime.
        threads: how many a program had.
        runs: how often each program was run, at most.
        rows: what was measured.
        skipped: what could not be measured.
    """

    date: str
    machine: str
    versions: dict[str, str]
    threads: int
    runs: int
    rows: list[Row]
    skipped: list[Skipped]


def report(
    settings: Settings, rows: Sequence[Row], skipped: Sequence[Skipped]
) -> Report:
    versions = {
        "nnef-grad": nnef_grad.__version__,
        "Python": platform.python_version(),
    }
    return Report(
        date=date.today().isoformat(),
        machine=machine(),
        versions=versions,
        threads=settings.threads,
        runs=settings.runs,
        rows=[*rows],
        skipped=[*skipped],
    )


def machine() -> str:
    cores = os.cpu_count()
    return f"{_processor()}, {cores} cores, {platform.system()}"


def _processor() -> str:
    if CPUINFO.exists():
        names = re.search(r"^model name\s*:\s*(.+)$", CPUINFO.read_text(), re.MULTILINE)
        if names:
            return names[1]
    return platform.processor() or platform.machine()


# ---- The file ----


def save(written: Report, path: Path) -> None:
    """Writes a report as JSON, a line for each row."""
    fields = asdict(written)
    rows, skipped = fields.pop("rows"), fields.pop("skipped")
    lines = [
        f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()
    ]
    lines += [_list("rows", [_rounded(row) for row in rows]), _list("skipped", skipped)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _list(name: str, items: list[Any]) -> str:
    listed = ",\n".join(json.dumps(item) for item in items)
    return f"{json.dumps(name)}: [\n{listed}\n]"


def _rounded(value: Any) -> Any:
    """Numbers with as many digits as they deserve."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def read(path: Path) -> Report:
    fields = json.loads(path.read_text("utf-8"))
    rows = [Row(**row) for row in fields.pop("rows")]
    skipped = [Skipped(**item) for item in fields.pop("skipped")]
    return Report(**fields, rows=rows, skipped=skipped)


# ---- The terminal ----


def lines(found: Row | Skipped) -> list[str]:
    """A line for each comparison of a row, or why it was left out."""
    if isinstance(found, Skipped):
        return [f"{found.part}: {found.what} left out: {found.why}"]
    return [line(outcome) for outcome in outcomes([found])]


def line(outcome: Outcome) -> str:
    row, goal = outcome.row, outcome.comparison.goal
    verdict = "" if goal is None else f"goal {goal:5,} {outcome.verdict}"
    return (
        f"{row.part:9} {row.net:27} {row.batch:2}  {row.runtime:38}"
        f" {outcome.comparison.name:50} {shown(outcome.median):>6}"
        f" (min {shown(outcome.least):>6})  {verdict}"
    ).rstrip()


def summary(rows: Sequence[Row]) -> str:
    verdicts = [outcome.verdict for outcome in outcomes(rows) if outcome.verdict]
    met = verdicts.count("met")
    return f"{met} of {len(verdicts)} goals met" if verdicts else ""


def brief(row: Row) -> str:
    """What one network shows, in a line."""
    (outcome,) = outcomes([row])
    return (
        f"{row.net} in {row.runtime}: the gradients of all variables take"
        f" {outcome.median:.1f} times as long as the forward graph"
    )
