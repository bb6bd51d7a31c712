"""The work of the command line: it reads, calls the library, writes, and turns errors into
exit codes.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import nnef_grad
from nnef_grad.autodiff.backward import Wrt
from nnef_grad.base.errors import NnefGradError, Problem, UsageError
from nnef_grad.commandline import console
from nnef_grad.commandline.checking import Checking
from nnef_grad.commandline.opening import Opened, Reading, split, taken
from nnef_grad.commandline.progress import Progress
from nnef_grad.graph.loops import is_loop
from nnef_grad.language.labels import is_constant
from nnef_grad.model import as_stored, declared_variables
from nnef_grad.storage.data import SinglePrecision
from nnef_grad.storage.files import refuse_existing, remove, writing
from nnef_grad.storage.output import (
    ModelFormat,
    format_of,
    is_onnx,
    refuse_loss,
    refuse_output,
)


def render(error: NnefGradError, *, format: str, **_: object) -> str:
    """The message of an error, in a format of messages."""
    error.problems = tuple(map(_with_advice, error.problems))
    if format == "text":
        return str(error)
    return console.as_json(errors=[p.as_data() for p in error.problems])


# The option that helps against a problem, by its remedy.
_ADVICE = {
    "lenient": ", or read it with --lenient",
    "overwrite": ": use --force to replace it",
    "symbol": ": give it one with --symbol, or by --batch or --input-shape",
    "unroll": ": read it with --unroll N, for so many steps",
    "smaller": ": try a smaller --batch or --input-shape, or allow it by --check-memory",
}


def _with_advice(problem: Problem) -> Problem:
    """The problem, with the option that would help."""
    advice = "" if problem.remedy is None else _ADVICE[problem.remedy]
    return problem._replace(message=f"{problem.message}{advice}")


@console.command_line(render)
def compile_model(
    model: str,
    out: str,
    forward: str | None,
    target: str,
    format: str,
    force: bool,
    quiet: bool,
    recompute: str | None,
    **options: Any,
) -> None:
    """Compiles a model, as the options say; see `nnef-grad --help`."""
    limit = None if recompute is None else memory_limit(recompute)
    reading, deriving = taken(Reading, options), taken(Deriving, options)
    checking = Checking(**options)
    refuse(out, model, force)
    if forward is not None:
        _refuse_forward(forward, out, model, force)
    checking.refuse((model, out, forward or out), force)
    as_json = format == "json"
    progress = Progress(shown=not quiet and not as_json)
    with progress.stage("reading"):
        opened = reading.open(model, target)
        graph, stored = opened.graph, opened.stored
    with progress.stage("differentiating"):
        whole = deriving.backward(opened)
        spared = None if limit is None else nnef_grad.recompute(whole.graph, limit)
        if spared is not None:
            told = (*whole.warnings, *spared.warnings)
            whole = replace(whole, graph=spared.graph, warnings=told)
    with progress.stage("lowering"):
        halves = None if forward is None else nnef_grad.split(graph, whole)
        first = whole.graph if halves is None else halves.backward
        last = _lower(first, target, out, stored)
        made, documents = replace(whole, graph=last.graph), {out: last}
        if halves is not None and forward is not None:
            saving = _lower(halves.forward, target, forward, stored)
            halves = replace(halves, forward=saving.graph, backward=last.graph)
            documents = {forward: saving, **documents}
        else:
            whole = made
    checking.print_costs(
        {
            "forward": graph if halves is None else halves.forward,
            "backward": made.graph,
        },
        as_json=as_json,
        halves=halves,
        spared=spared,
    )
    is_untrained = _is_untrained(graph, stored)
    # The halves are checked and shown as the whole that they are halves of.
    with checking.examined(
        opened,
        graph,
        whole,
        progress,
        constants=last.data if halves is None else {},
        as_json=as_json,
        force=force,
    ):
        _write_all(documents, made, out, opened, is_untrained, force)
    warnings = _warnings(graph, made, is_untrained, out)
    summary = "" if quiet else nnef_grad.summary(graph, made)
    print_messages(warnings, summary, format)


@dataclass(frozen=True)
class Deriving:
    """The options under the heading "Derivatives"; see `nnef-grad --help`."""

    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    stop: tuple[str, ...]
    derivative: str | None
    seed: str
    with_outputs: bool

    def backward(self, opened: Opened) -> nnef_grad.Backward:
        """The derivative of a model."""
        chosen: dict[str, Any] = {}
        if self.wrt:
            chosen = {"wrt": _wrt(opened.named(split(self.wrt)))}
        elif self.derivative is None:
            chosen = {"wrt": opened.wrt}
        return self._call(
            opened.graph,
            outputs=opened.named(split(self.outputs)) or None,
            stop=opened.named(split(self.stop)),
            rules=opened.rules,
            **chosen,
        )

    @property
    def _call(self) -> Callable[..., nnef_grad.Backward]:
        """The call that computes the derivative, with its own settings."""
        settings: Any = {"with_outputs": True} if self.with_outputs else {}
        if self.derivative is None:
            settings["seed"] = self.seed
            return partial(nnef_grad.differentiate, **settings)
        if self.seed != "input":
            raise UsageError(f"--{self.derivative} takes no seed: leave out --seed")
        function = getattr(nnef_grad, self.derivative.replace("-", "_"))
        if settings and "with_outputs" not in signature(function).parameters:
            message = f"--{self.derivative} returns no other outputs"
            raise UsageError(f"{message}: leave out --with-outputs")
        return partial(function, **settings)


def refuse_target(out: str, target: str) -> None:
    """Refuses an ONNX file for what does not read such files."""
    if is_onnx(out) and target not in ("nnef", "onnx"):
        raise UsageError(f"'{out}' is for ONNX Runtime, and not for '{target}'")


def refuse(out: str, model: str, force: bool) -> None:
    """Refuses an OUT that cannot be written, before anything is computed."""
    if out == console.PIPE:
        return
    if is_onnx(out):
        _refuse_onnx(out, model, force)
        return
    if model != console.PIPE:
        refuse_loss(out, model)
    refuse_output(out, overwrite=force)


def _refuse_forward(forward: str, out: str, model: str, force: bool) -> None:
    """Refuses a FORWARD that cannot be written, before anything is computed."""
    if forward == console.PIPE:
        raise UsageError("--split writes FORWARD to a path, and not to stdout")
    refuse(forward, model, force)
    if os.path.realpath(forward) == os.path.realpath(out):
        raise UsageError(f"FORWARD and OUT are both '{forward}'")


def _refuse_onnx(out: str, model: str, force: bool) -> None:
    with writing(out):
        refuse_existing(Path(out), overwrite=force)
    if os.path.realpath(out) == os.path.realpath(model):
        raise UsageError(f"'{out}' is the model itself")


class _Document(NamedTuple):
    """A graph that is written, and the data of what a target made of its constants and
    variables, by label.
    """

    graph: nnef_grad.Graph
    data: Mapping[str, Any]


def _lower(graph: nnef_grad.Graph, target: str, out: str, stored: Any) -> _Document:
    """A graph lowered for a target, in single precision: the one that runtimes have in
    common, which refuse operands of two. tract casts, so that files are shared.
    """
    lowered = _lowered(graph, target, out)
    if target == "nnef" or stored is None or is_onnx(out):
        return lowered
    made = lowered.graph
    if target == "tract":
        made, kept = as_stored(made, stored)
    else:
        kept = SinglePrecision(stored, declared_variables(made))
    return _Document(made, ChainMap({**lowered.data}, kept))  # type: ignore[arg-type]


def _lowered(graph: nnef_grad.Graph, target: str, out: str) -> _Document:
    refuse_target(out, target)
    if is_onnx(out):
        # What writes the file lowers the graph.
        return _Document(graph, {})
    if target == "nnef" and not any(map(is_loop, graph.operations)):
        # Importing the lowerings, and numpy with them, takes longer than compiling.
        return _Document(graph, {})
    lowered = nnef_grad.lower(graph, target)
    if lowered.data and is_text(out):
        message = f"target '{target}' stores the constants of the graph as variables"
        raise UsageError(f"{message}: write a folder or an archive, which hold data")
    return _Document(lowered.graph, lowered.data)


_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def memory_limit(text: str) -> float:
    """The value of --recompute: a share, or bytes."""
    unit = _UNITS.get(text[-1:].upper(), 0)
    try:
        limit = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        limit = 0.0
    if not 0 < limit < inf:
        message = "--recompute expects a share such as 0.5, or bytes such as 512M"
        raise UsageError(f"{message}, and got '{text}'")
    return limit


def _is_untrained(graph: nnef_grad.Graph, stored: Any) -> bool:
    """Whether no variable has data, but for constants that an earlier lowering made
    variables.
    """
    labels = (variable.label for variable in declared_variables(graph))
    known = stored if stored is not None else ()
    return not any(label in known for label in labels if not is_constant(label))


def _write_all(
    documents: Mapping[str, _Document],
    made: nnef_grad.Backward,
    out: str,
    opened: Opened,
    is_untrained: bool,
    force: bool,
) -> None:
    """Writes all documents, or none."""
    with ExitStack() as undo:
        for path, document in documents.items():
            result = made if path == out else document.graph
            if path == console.PIPE:
                console.print_result(nnef_grad.dumps(result))
            elif is_onnx(path):
                nnef_grad.interop.to_onnx(
                    result,
                    path,
                    opened.arrays,
                    overwrite=force,
                    in_file=opened.in_file,
                )
            else:
                # The constants come first: an unused file of the model may have the same
                # label.
                found: Any = ChainMap(document.data, opened.stored or {})  # type: ignore[arg-type]
                data = None if is_text(path) else found
                nnef_grad.save(
                    result, path, data=data, partial=is_untrained, overwrite=force
                )
            if not force and path != console.PIPE:
                # It was not there before.
                undo.callback(remove, Path(path))
        undo.pop_all()


def is_text(out: str) -> bool:
    """Whether OUT is a text, which cannot hold data."""
    if out == console.PIPE or is_onnx(out):
        return out == console.PIPE
    return format_of(out) is ModelFormat.TEXT


def _warnings(
    graph: nnef_grad.Graph,
    backward: nnef_grad.Backward,
    untrained: bool,
    out: str,
) -> list[Problem]:
    found = [*graph.warnings, *map(Problem, backward.warnings)]
    if untrained and declared_variables(graph) and not is_text(out):
        message = "the model has no data for its variables, so OUT has none either"
        found.append(Problem(message))
    return found


def print_messages(warnings: Sequence[Problem], summary: str, format: str) -> None:
    """Writes warnings and a summary to stderr, in a format of messages."""
    if format == "json":
        told = [warning.as_data() for warning in warnings]
        console.print_message(console.as_json(warnings=told, summary=summary))
        return
    for warning in warnings:
        console.print_message(warning.render("warning"))
    if summary:
        console.print_message(summary)


def _wrt(names: list[str]) -> Wrt:
    """The name of a group, or a list of tensors; a group cannot be in the list."""
    return names[0] if len(names) == 1 else names
