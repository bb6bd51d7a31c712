"""The work of the command line of training steps."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nnef_grad
from nnef_grad.base.errors import Problem, UsageError, listed
from nnef_grad.commandline import console
from nnef_grad.commandline.checking import Checking
from nnef_grad.commandline.command import (
    is_text,
    memory_limit,
    refuse,
    refuse_target,
    told_of,
    told_of_loops,
)
from nnef_grad.commandline.opening import (
    Reading,
    expecting,
    output_path,
    split,
    taken,
)
from nnef_grad.emit.rule_results import counted
from nnef_grad.emit.verifier import verify
from nnef_grad.frontends.onnx.model import InFile
from nnef_grad.language.types import SCALAR
from nnef_grad.model import declared_variables
from nnef_grad.opening import Opened
from nnef_grad.storage.files import refuse_existing, writing
from nnef_grad.storage.output import is_onnx, target_at
from nnef_grad.training.forms import Form, Step
from nnef_grad.training.saving import save_step

# The settings of a loss, in parentheses, have equals signs too.
_OF_OUTPUT = re.compile(r"(?P<output>[^=(]+)=(?P<loss>[^=].*)", re.DOTALL)


@console.command_line
def make_step(
    model: str,
    out: str,
    start: str | None,
    state: Form | None,
    target: str,
    **options: Any,
) -> None:
    """Compiles a model to a step, as the options say; see `nnef-grad-step --help`."""
    reading, checking = taken(Reading, options), taken(Checking, options)
    force, progress = checking.force, checking.progress
    out = output_path(out, model)
    refuse(out, model, force)
    _refuse_start(start, out, force)
    checking.refuse((model, out))
    with progress.stage("reading"):
        refuse_target(out, target)
        target = target_at(out, target)
        opened = reading.open(model, target)
    graph = opened.graph
    if is_onnx(out):
        # The form of the state follows from it.
        state = state or "inputs"
    with progress.stage("differentiating"):
        step = nnef_grad.training_step(
            opened.torch or graph,
            data={} if is_text(out) else opened.stored,
            state=state,
            target=target,
            rules=opened.rules,
            **_settings(options, opened),
        )
    parts = {folder or "step": part.graph for folder, part in step.parts.items()}
    checking.print_costs({"forward": graph, **parts})
    objective, backward = step.objective, step.backward
    with checking.examined(opened, objective, backward, shown=step.shown):
        _write(step, out, start, force, opened.in_file)
    warnings = [*told_of(graph, out), *map(Problem, step.warnings)]
    warnings += told_of_loops(step.graph, out, target)
    checking.tell(warnings, _summary(graph, step))


def _refuse_start(start: str | None, out: str, force: bool) -> None:
    """Refuses a START that cannot be written, before anything is computed."""
    if start is None:
        return
    if not is_onnx(out):
        raise UsageError("--start is for a step in an ONNX file: -o step.onnx")
    if os.path.realpath(start) == os.path.realpath(out):
        raise UsageError(f"START and OUT are both '{out}'")
    with writing(start):
        refuse_existing(Path(start), overwrite=force)


def _settings(options: dict[str, Any], opened: Opened) -> dict[str, Any]:
    """The settings of a training step, as the options say; others are as they are."""
    take = options.pop
    share, recompute = take("statistics_momentum"), take("recompute")
    train = take("train")
    return {
        "loss": _named(_losses(take("loss"), take("output")), opened),
        "l2": _penalties(take("l2")),
        "train": split(train) if train else None,
        "freeze": split(take("freeze")),
        "groups": dict(map(_group, take("group"))),
        "adapters": dict(map(_adapter, take("adapters"))),
        "padding_rows": dict(map(_padding, take("padding_row"))),
        "batch_statistics": share if take("batch_statistics") else None,
        "recompute": None if recompute is None else memory_limit(recompute),
        **options,
    }


def _write(
    step: Step, path: str, start: str | None, force: bool, in_file: InFile | None
) -> None:
    for part in step.parts.values():
        verify(part.graph)
    if path != console.PIPE:
        save_step(step, path, overwrite=force, in_file=in_file, start=start)
        return
    if step.apply is not None:
        message = "a step that accumulates gradients is two documents"
        raise UsageError(f"{message}: write a folder or an archive")
    console.print_result(nnef_grad.dumps(step.graph))


def _losses(losses: Sequence[str], output: str | None) -> str | dict[str, str]:
    """The loss, or those of several outputs."""
    named = [_OF_OUTPUT.fullmatch(text) for text in losses]
    pairs = {pair["output"]: pair["loss"] for pair in named if pair is not None}
    if len(pairs) < sum(pair is not None for pair in named):
        raise UsageError("--loss names an output twice: it has one loss")
    if len(losses) == 1 and not pairs:
        return losses[0] if output is None else {output: losses[0]}
    if output is not None or len(pairs) < len(losses):
        message = "--loss expects OUTPUT=LOSS for each of several outputs"
        raise UsageError(f"{message}, without --output")
    return pairs


def _named(losses: str | dict[str, str], opened: Opened) -> str | dict[str, str]:
    """The same, by the names that outputs have in the graph."""
    if isinstance(losses, str):
        return losses
    return dict(zip(opened.named([*losses]), losses.values(), strict=True))


def _group(text: str) -> tuple[str, str]:
    with expecting("--group", "PATTERN:SETTINGS", text):
        pattern, settings = text.split(":", 1)
        return pattern, settings


def _adapter(text: str) -> tuple[str, dict[str, float]]:
    pattern, _, settings = text.rpartition(":")
    with expecting("--adapters", "PATTERN:rank=N[,alpha=X]", text):
        pairs = (setting.split("=") for setting in settings.split(","))
        return pattern, {name.strip(): float(value) for name, value in pairs}


def _padding(text: str) -> tuple[str, int]:
    table, _, row = text.rpartition("=")
    with expecting("--padding-row", "TABLE=ROW", text):
        return table, int(row)


def _penalties(values: Sequence[str]) -> float | dict[str, float]:
    """The factor of all matrices, or those of patterns."""
    pairs = [value.rpartition("=")[::2] for value in values]
    with expecting("--l2", "X or PATTERN=X", ", ".join(values)):
        factors = {pattern: float(factor) for pattern, factor in pairs}
    if "" in factors and len(factors) > 1:
        raise UsageError("--l2 expects one X, or PATTERN=X for several patterns")
    return factors.get("", 0.0) if "" in factors else factors


def _summary(graph: nnef_grad.Graph, step: Step) -> str:
    """A summary in a line; the trained and the other variables in a second one."""
    count = sum(len(part.graph.operations) for part in step.parts.values())
    variables = declared_variables(graph)
    labels = dict.fromkeys(v.label for v in variables if v.dtype == SCALAR.dtype)
    others = [label for label in labels if label not in step.trained]
    return (
        f"{graph.name}: {len(graph.operations)} operations in, {count} operations out,"
        f" {counted(len(step.state), 'tensor')} updated\n"
        f"trained: {listed(step.trained)}; not trained: {listed(others)}"
    )
