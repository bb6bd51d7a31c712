"""The table in the terminal, and the files of what was measured, one for each kind of processor."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
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
# What Linux calls the widest vectors of a processor, and what others do.
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON"}
DIGITS = 4


@dataclass(frozen=True)
class Circumstances:
    """How a part was measured.

    Attributes:
        date: of the run, as in 2026-01-31.
        machine: the processor and its cores, in words.
        versions: of what is no runtime.
        threads: how many a program had.
        runs: how often each program was run, at most.
    """

    date: str
    machine: str
    versions: dict[str, str]
    threads: int
    runs: int


@dataclass(frozen=True)
class Report:
    """What was measured, perhaps in several runs of the benchmark.

    Attributes:
        parts: how each part was measured.
        rows: what was measured.
        skipped: what could not be measured.
    """

    parts: dict[str, Circumstances]
    rows: list[Row]
    skipped: list[Skipped]

    @property
    def machine(self) -> str:
        """Where it was measured, which is the same for all parts."""
        return next((how.machine for how in self.parts.values()), machine())

    @property
    def date(self) -> str:
        """When the latest part was measured."""
        return max((how.date for how in self.parts.values()), default="")

    def updated(self, newer: Report, settings: Settings) -> Report:
        """This, with what another run measured in place of the same networks."""

        batches = {*settings.batches, *(row.batch for row in newer.rows)}

        def is_kept(row: Row) -> bool:
            again = settings.wants(row.net) and row.batch in batches
            return row.part not in newer.parts or not again

        return Report(
            {**self.parts, **newer.parts},
            [*filter(is_kept, self.rows), *newer.rows],
            [s for s in self.skipped if s.part not in newer.parts] + newer.skipped,
        )


def circumstances(settings: Settings) -> Circumstances:
    """Those of a run today, on this machine."""
    return Circumstances(
        date=date.today().isoformat(),
        machine=machine(),
        versions={
            "nnef-grad": nnef_grad.__version__,
            "Python": platform.python_version(),
        },
        threads=settings.threads,
        runs=settings.runs,
    )


def machine() -> str:
    """The processor, how wide its vectors are, and its cores: times of others differ."""
    known = CPUINFO.read_text() if CPUINFO.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", known, re.MULTILINE)
    processor = named[1] if named else platform.processor() or platform.machine()
    there = set(known.split())
    width = next((title for flag, title in VECTORS.items() if flag in there), "")
    parts = [processor, width, f"{os.cpu_count()} cores", platform.system()]
    return ", ".join(filter(None, parts))


# ---- The files ----


def place(folder: Path, machine: str) -> Path:
    """The file of what is measured on a machine."""
    words = re.findall("[a-z0-9]+", machine.lower())
    return folder / f"{'-'.join(words)}.json"


def save(written: Report, path: Path) -> None:
    """Writes a report as JSON, a line for each row."""
    fields = asdict(written)
    parts = (f'"{part}": {json.dumps(how)}' for part, how in fields["parts"].items())
    lines = [
        '"parts": {\n' + ",\n".join(parts) + "\n}",
        _list("rows", [_rounded(row) for row in fields["rows"]]),
        _list("skipped", fields["skipped"]),
    ]
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


def read_all(folder: Path) -> list[Report]:
    """What was measured on all machines, the latest first."""
    reports = map(read, sorted(folder.glob("*.json")))
    return sorted(reports, key=lambda report: report.date, reverse=True)


def read(path: Path) -> Report:
    """What was measured on a machine; nothing, without a file."""
    if not path.exists():
        return Report({}, [], [])
    fields = json.loads(path.read_text("utf-8"))
    return Report(
        {part: Circumstances(**how) for part, how in fields["parts"].items()},
        [Row(**row) for row in fields["rows"]],
        [Skipped(**item) for item in fields["skipped"]],
    )


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
    forward, backward = (
        statistics.median(row.seconds[program]) for program in ("forward", "backward")
    )
    return (
        f"{row.net}, batch {row.batch}, in {row.runtime}: the gradients of all variables in"
        f" {backward * 1e3:.0f} ms, {backward / forward:.1f} times the forward graph's"
        f" {forward * 1e3:.0f} ms (beside PyTorch: docs/speed.md)"
    )
