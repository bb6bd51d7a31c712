"""Gradients of all parameters of a network for each example of a batch, in ONNX Runtime, by
torch.func and by Opacus: their times and their memory.

Programs take turns: a process runs one some times, and ends, which leaves the memory to the next
one. Results are compared by sums of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from bench.comparisons import TOLERANCE
from bench.processes import FailedError, ask
from bench.rows import Measured, Row, Skipped
from bench.settings import Settings
from bench.workers.torch_models import EXAMPLES

PART, BATCH = "examples", 16
# The most runs of a process, after the first one.
RUNS = 3
PEER = "torch.func"
# The programs, and the packages that these need.
PROGRAMS = {"onnxruntime": "onnxruntime", PEER: "torch", "opacus": "opacus"}


def measure(settings: Settings) -> Measured:
    for net in filter(settings.wants, EXAMPLES):
        try:
            yield from rows(net, settings)
        except FailedError as error:
            yield Skipped(PART, net, str(error))


def rows(net: str, settings: Settings) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        request = {"net": net, "batch": BATCH, "folder": folder}
        names = ask("example_gradients", {"kind": "write", **request})
        request |= {"kind": "measure", "names": names, "threads": settings.threads}
        found: dict[str, list[Any]] = {}
        for _ in range(-(-settings.runs // RUNS)):
            for program in [name for name, p in PROGRAMS.items() if find_spec(p)]:
                if found.get(program) == []:
                    continue
                own = {"program": program, "runs": min(settings.runs, RUNS)}
                found.setdefault(program, [])
                try:
                    found[program] += [ask("example_gradients", {**request, **own})]
                except FailedError as error:
                    yield Skipped(PART, f"{net}, {program}", str(error))
    apart = {
        name: difference(runs, found[PEER]) for name, runs in found.items() if runs
    }
    for name in [name for name, share in apart.items() if share > TOLERANCE]:
        if name != "onnxruntime":
            why = f"its results differ by {apart.pop(name):.2g}"
            yield Skipped(PART, f"{net}, {name}", why)
    yield Row(
        PART,
        net,
        BATCH,
        f"onnxruntime {version('onnxruntime')}, torch {version('torch')}",
        {name: [s for run in found[name] for s in run["seconds"]] for name in apart},
        {name: max(run["mebibytes"] for run in found[name]) for name in apart},
        difference=apart["onnxruntime"],
    )


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest error of a sum of a gradient of ours, relative to the norm of the peer's;
    or to a thousandth of the largest norm of all.
    """
    mine: Mapping[str, Any] = ours[0]["sums"]
    peer: Mapping[str, Any] = theirs[0]["sums"]
    floor = max(norm for *_, norm in peer.values()) / 1000
    errors = (
        np.abs(np.subtract(sums[:-1], peer[name][:-1])).max()
        / max(peer[name][-1], floor)
        for name, sums in mine.items()
    )
    return float(max(errors))
