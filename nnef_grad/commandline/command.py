"""The work of the command line: it reads, calls the library, writes, and turns errors into
exit codes.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from inspect import signature
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import nnef_grad
from nnef_grad.base.errors import Problem, UsageError
from nnef_grad.commandline import console
from nnef_grad.commandline.checking import Checking
from nnef_grad.commandline.opening import (
    Reading,
    expecting,
    output_path,
    split,
    taken,
)
from nnef_grad.emit.verifier import verify
from nnef_grad.graph.ir import WORDLESS
from nnef_grad.graph.loops import is_loop
from nnef_grad.language.labels import is_constant
from nnef_grad.model import as_stored, declared_variables
from nnef_grad.opening import Opened
from nnef_grad.storage.data import SinglePrecision
from nnef_grad.storage.files import refuse_existing, remove, writing
from nnef_grad.storage.output import (
    ONNX_TARGETS,
    ModelFormat,
    format_of,
    is_onnx,
    onnx_target,
    refuse_loss,
    refuse_output,
    target_at,
)


@console.command_line
def compile_model(
    model: str,
    out: str,
    forward: str | None,
    target: str,
    recompute: str | None,
    **options: Any,
) -> None:
    """Compiles a model, as the options say; see `nnef-grad --help`."""
    limit = None if recompute is None else memory_limit(recompute)
    reading, deriving = taken(Reading, options), taken(Deriving, options)
    checking = Checking(**options)
    if deriving.derivative == _FORWARD:
        _refuse_derivatives(deriving, checking, forward, recompute)
    force, progress = checking.force, checking.progress
    out = output_path(out, model)
    refuse(out, model, force)
    if forward is not None:
        forward = output_path(forward, model)
        _refuse_forward(forward, out, model, force)
    checking.refuse((model, out, forward or out))
    with progress.stage("reading"):
        opened = reading.open(model, target_at(out, target))
        graph, stored = opened.graph, opened.stored
    with progress.stage("differentiating"):
        whole, spared = deriving.backward(opened), None
    if limit is not None:
        with progress.stage("recomputing"):
            report = progress.update
            spared = nnef_grad.recompute(whole.graph, limit, report=report)
        told = (*whole.warnings, *spared.warnings)
        whole = replace(whole, graph=spared.graph, warnings=told)
    with progress.stage("lowering"):
        halves = None if forward is None else nnef_grad.split(graph, whole)
        first = whole.graph if halves is None else halves.backward
        last = _lower(first, target, out, stored)
        backward, documents = replace(whole, graph=last.graph), {out: last}
        if halves is not None and forward is not None:
            saving = _lower(halves.forward, target, forward, stored)
            halves = replace(halves, forward=saving.graph, backward=last.graph)
            documents = {forward: saving, **documents}
        else:
            whole = backward
    before = graph if halves is None else halves.forward
    checking.print_costs(
        {"forward": before, "backward": backward.graph}, halves, spared
    )
    is_untrained = _is_untrained(graph, stored)
    # The halves are checked and shown as the whole that they are halves of.
    constants = last.data if halves is None else {}
    with checking.examined(opened, graph, whole, constants=constants):
        _write_all(documents, backward, out, opened, is_untrained, force, target)
    warnings = _warnings(opened, backward, is_untrained, out, target)
    checking.tell(warnings, nnef_grad.summary(graph, backward))


@dataclass(frozen=True)
class Deriving:
    """The options under the heading "Derivatives"; see `nnef-grad --help`."""

    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    stop: tuple[str, ...]
    derivative: str | None
    per_example: bool
    example_axis: tuple[str, ...]
    seed: str
    with_outputs: bool
    also: tuple[str, ...]

    def backward(self, opened: Opened) -> nnef_grad.Backward:
        """The derivative of a model, or the model itself, of which nothing is asked."""
        if self.derivative == _FORWARD:
            return nnef_grad.Backward(opened.graph, {}, {}, (), 0, ())
        outputs = opened.named(split(self.outputs)) if self.outputs else None
        settings: dict[str, Any] = {
            "outputs": outputs,
            "stop": opened.named(split(self.stop)),
            "rules": opened.rules,
        }
        if self.wrt:
            # The name of a group cannot be in a list.
            names = opened.named(split(self.wrt))
            settings["wrt"] = names[0] if len(names) == 1 else names
        elif self.derivative is None:
            settings["wrt"] = opened.wrt
        further = {
            "with_outputs": self.with_outputs,
            "also": opened.named(split(self.also)),
            "per_example": self._examples(opened),
        }
        settings |= {name: value for name, value in further.items() if value}
        if self.derivative is None:
            settings["seed"] = self.seed
            return nnef_grad.differentiate(opened.graph, **settings)
        if self.seed != "input":
            raise UsageError(f"--{self.derivative} takes no seed: leave out --seed")
        function: Any = getattr(nnef_grad, self.derivative.replace("-", "_"))
        for name in further.keys() & settings.keys() - signature(function).parameters:
            is_each = name == "per_example"
            why = "is a mean over the batch" if is_each else "returns no other outputs"
            message = f"--{self.derivative} {why}"
            raise UsageError(f"{message}: leave out --{name.replace('_', '-')}")
        backward: nnef_grad.Backward = function(opened.graph, **settings)
        return backward

    def _examples(self, opened: Opened) -> bool | dict[str, int | None]:
        """Whether there are derivatives of each example, and by which axes."""
        pairs = [example_axis(text) for text in split(self.example_axis)]
        names = opened.named([name for name, _ in pairs])
        axes = dict(zip(names, (axis for _, axis in pairs), strict=True))
        return axes or self.per_example


def example_axis(text: str) -> tuple[str, int | None]:
    """A value of --example-axis: the name of a tensor, and its axis, if it has one."""
    with expecting("--example-axis", "x=1, or x=shared,", text):
        name, _, axis = text.rpartition("=")
        if not name:
            raise ValueError(text)
        return name, None if axis == "shared" else int(axis)


# The graph itself, in the place of a derivative.
_FORWARD = "forward"


def _refuse_derivatives(
    deriving: Deriving, checking: Checking, split: str | None, recompute: str | None
) -> None:
    """Refuses what only a derivative has, together with --forward."""
    seed = deriving.seed != "input"
    own = {**vars(deriving), **vars(checking), "seed": seed, "split": split}
    own["recompute"] = recompute
    words = [
        *(
            "wrt",
            "outputs",
            "stop",
            "per_example",
            "example_axis",
            "seed",
            "with_outputs",
            "split",
        ),
        "recompute",
        *("check", "inputs", "report"),
    ]
    given = ", ".join(f"--{word.replace('_', '-')}" for word in words if own[word])
    if given:
        message = "--forward writes the model, of which nothing is differentiated"
        raise UsageError(f"{message}: leave out {given}")


def refuse_target(out: str, target: str) -> None:
    """Refuses an ONNX file for what does not read such files."""
    if is_onnx(out) and target not in ("nnef", *ONNX_TARGETS):
        instead = ": use --target onnx-portable" if target == "portable" else ""
        what = f"'{out}' is for ONNX Runtime, and not for '{target}'"
        raise UsageError(f"{what}{instead}")


def refuse(out: str, model: str, force: bool) -> None:
    """Refuses an OUT that cannot be written, before anything is computed."""
    if out == console.PIPE:
        return
    if not is_onnx(out):
        if model != console.PIPE:
            refuse_loss(out, model)
        refuse_output(out, overwrite=force)
        return
    with writing(out):
        refuse_existing(Path(out), overwrite=force)
    if os.path.realpath(out) == os.path.realpath(model):
        raise UsageError(f"'{out}' is the model itself")


def _refuse_forward(forward: str, out: str, model: str, force: bool) -> None:
    """Refuses a FORWARD that cannot be written, before anything is computed."""
    if forward == console.PIPE:
        raise UsageError("--split writes FORWARD to a path, and not to stdout")
    refuse(forward, model, force)
    if os.path.realpath(forward) == os.path.realpath(out):
        raise UsageError(f"FORWARD and OUT are both '{forward}'")


class _Document(NamedTuple):
    """A graph to write, and data of what its target made of constants, by label."""

    graph: nnef_grad.Graph
    data: Mapping[str, Any]


def _lower(graph: nnef_grad.Graph, target: str, out: str, stored: Any) -> _Document:
    """A graph lowered for a target, in single precision: the one that runtimes have in
    common, which refuse operands of two. tract casts, so that files are shared.
    """
    refuse_target(out, target)
    if is_onnx(out):
        # What writes the file lowers the graph.
        return _Document(graph, {})
    constants: Mapping[str, Any] = {}
    is_wordless = any(op.name in WORDLESS for op in graph.operations)
    # Importing the lowerings, and numpy with them, takes longer than compiling.
    if target != "nnef" or is_wordless:
        lowered = nnef_grad.lower(graph, target)
        graph, constants = lowered.graph, lowered.data
    if constants and is_text(out):
        message = f"target '{target}' stores the constants of the graph as variables"
        raise UsageError(f"{message}: write a folder or an archive, which hold data")
    if target == "nnef" or stored is None:
        return _Document(graph, constants)
    if target == "tract":
        graph, kept = as_stored(graph, stored)
    else:
        kept = SinglePrecision(stored, declared_variables(graph))
    return _Document(graph, ChainMap({**constants}, kept))  # type: ignore[arg-type]


_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def memory_limit(text: str) -> float:
    """The value of --recompute: a share, or bytes."""
    expected = "a share such as 0.5, or bytes such as 512M,"
    with expecting("--recompute", expected, text):
        unit = _UNITS.get(text[-1:].upper(), 0)
        limit = float(text[:-1] if unit else text) * (unit or 1)
        if not 0 < limit < inf:
            raise ValueError(limit)
        return limit


def _is_untrained(graph: nnef_grad.Graph, stored: Any) -> bool:
    """Whether no variable has data, but for constants of an earlier lowering."""
    labels = (variable.label for variable in declared_variables(graph))
    data = stored if stored is not None else ()
    return not any(label in data for label in labels if not is_constant(label))


def _write_all(
    documents: Mapping[str, _Document],
    backward: nnef_grad.Backward,
    out: str,
    opened: Opened,
    is_untrained: bool,
    force: bool,
    target: str,
) -> None:
    """Writes all documents, or none."""
    for document in documents.values():
        verify(document.graph)
    with ExitStack() as undo:
        for path, document in documents.items():
            result = backward if path == out else document.graph
            if path == console.PIPE:
                console.print_result(nnef_grad.dumps(result))
            elif is_onnx(path):
                nnef_grad.interop.to_onnx(
                    result,
                    path,
                    opened.arrays,
                    overwrite=force,
                    in_file=opened.in_file,
                    target=onnx_target(target),
                )
            else:
                # The constants come first: an unused file of the model may have the same
                # label.
                both: Any = ChainMap(document.data, opened.stored or {})  # type: ignore[arg-type]
                data = None if is_text(path) else both
                nnef_grad.save(
                    result, path, data=data, partial=is_untrained, overwrite=force
                )
            if not force and path != console.PIPE:
                # It was not there before.
                undo.callback(remove, Path(path))
        undo.pop_all()


def is_text(out: str) -> bool:
    """Whether OUT is a text, which cannot hold data."""
    if is_onnx(out):
        return False
    return out == console.PIPE or format_of(out) is ModelFormat.TEXT


def told_of(graph: nnef_grad.Graph, out: str) -> list[Problem]:
    """The warnings of a graph that hold for OUT."""
    held = [w for w in graph.warnings if w.remedy != "onnx" or not is_onnx(out)]
    return [*map(console.with_advice, held)]


def told_of_loops(graph: nnef_grad.Graph, out: str, target: str) -> list[Problem]:
    """A warning about a graph to write, if its text has loops, which the standard lacks."""
    if target != "nnef" or is_onnx(out) or not any(map(is_loop, graph.operations)):
        return []
    what = "a loop of an open number of steps is in OUT as tract_core_scan"
    how = "write it for tract by --target tract, or as ONNX"
    return [Problem(f"{what}, which NNEF does not have: {how}")]


def _warnings(
    opened: Opened,
    backward: nnef_grad.Backward,
    untrained: bool,
    out: str,
    target: str,
) -> list[Problem]:
    graph, own = opened.graph, map(opened.in_words, backward.warnings)
    warnings = [*told_of(graph, out), *map(Problem, own)]
    warnings += told_of_loops(backward.graph, out, target)
    if untrained and declared_variables(graph) and not is_text(out):
        message = "the model has no data for its variables, so OUT has none either"
        warnings.append(Problem(message))
    return warnings
