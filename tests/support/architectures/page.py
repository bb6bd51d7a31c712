"""docs/models.md and its table, from the figures of the last run of each architecture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.architectures.catalog import ARRIVING, REFUSED
from support.tables import FOLDER, csv_of

PAGE, TABLE = FOLDER.parent / "models.md", FOLDER / "models.csv"
RESULTS = Path(__file__).parent / "results.json"

_HEAD = """\
# PyTorch architectures

{count} networks of `torch.nn`, torchvision, timm and transformers were read by `from_torch`, differentiated and run in ONNX Runtime. All
{gradients} gradients agree with torch's autograd of the same module in double precision. In nnef-grad's evaluator in double precision, the
largest error of a gradient, relative to its largest number, is {exact:.0e}; constants that a network computes have single precision.

Modules are in evaluation mode, with random weights, small images or texts, a batch of 2, and random gradients of all outputs. Those of
transformers have small configurations (`tests/support/architectures/`), and padding masks if they take any. `PYTHONPATH=tests python -m
support.architectures --write`, with the group `models`, makes this page.

In the table, **exact** is the error of the evaluator, and **error** that of ONNX Runtime in single precision, in multiples of torch's own.
Above 10, a decision (such as the sign at a ReLU) falls differently in single precision; then other random numbers are drawn.

[Operations, gradients and errors of each architecture](tables/models.csv)

torch's autograd itself was wrong in one case: `batch_norm` in evaluation mode for a batch of one, followed by `flatten` and `transpose`, in
double precision.

## Refused

The error names the line of the network; [PyTorch programs](pytorch.md#what-is-refused) lists the reasons.

| architecture | why, and what to write instead |
|---|---|
"""

_STRANGERS = """\

## Modules of other packages

837 modules of other packages were compared with autograd in evaluation and training mode.
Of 1,664 runs that torch 2.13 itself computes, 1,598 are right and 66 are refused; of 1,662 with torch 2.15, 1,594 are right and 68 are
refused. None is wrong. Refused are modules that need their inputs' values as numbers of Python, draw random numbers of Python, or write into
what carries gradients. `cd tests; python -m support.strangers` repeats them.
"""
_COLUMNS = ("architecture", "forward", "backward", "gradients", "exact", "error")


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of the page, without its table."""
    exact = max(found["exact"] for found in results.values())
    head = _HEAD.format(count=len(ARRIVING), gradients=_total(results), exact=exact)
    refused = "".join(f"| `{name}` | {why} |\n" for name, why in REFUSED.items())
    return head + refused + _STRANGERS


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The table: a row for each architecture."""
    return csv_of(_COLUMNS, _rows(results))


def _rows(results: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    for name in filter(results.__contains__, ARRIVING):
        found = results[name]
        counts = [str(found[key]) for key in ("forward", "backward", "gradients")]
        yield [f"`{name}`", *counts, f"{found['exact']:.0e}", f"{found['error']:.1f}"]


def _total(results: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(found["gradients"] for found in results.values())


def read_results() -> dict[str, Any]:
    """The figures of the last run of each architecture."""
    return dict(json.loads(RESULTS.read_text("utf-8"))) if RESULTS.exists() else {}


def write_results(results: Mapping[str, Any]) -> None:
    """Writes the figures, an architecture a line."""
    rows = [
        f"{json.dumps(name)}: {json.dumps(results[name])}" for name in sorted(results)
    ]
    RESULTS.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
