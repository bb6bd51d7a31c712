"""Words of options that a shell completes: those of a choice, and names in the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import nnef_grad
from nnef_grad.base.choices import words

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from nnef_grad import Graph

# What is called by names in a model.
Find = Callable[["Graph"], Iterable[str]]


def with_completion(choice: Any) -> dict[str, Any]:
    """The settings of an option that has usual words, and takes others."""

    def complete(
        context: click.Context, option: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, equals, last = incomplete.rpartition("=")
        return _items(f"{before}{equals}", words(choice), last)

    return {"shell_complete": complete}


def named(find: Find, *groups: str, **settings: Any) -> dict[str, Any]:
    """The settings of an option that may be repeated, and takes names that a function finds in
    the model, several of them separated by commas, or a group alone.
    """

    def complete(
        context: click.Context, option: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        # MODEL is among the rest, as the option before the cursor has no value yet.
        model = context.params.get("model") or next(iter(context.args), "")
        try:
            found = _found(Path(model).expanduser(), find)
        except nnef_grad.NnefGradError:
            return []
        alone = groups if not comma else ()
        return _items(f"{before}{comma}", [*alone, *found], last)

    return {"multiple": True, "shell_complete": complete, **settings}


def _items(before: str, found: Iterable[str], last: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    matching = dict.fromkeys(word for word in found if word.startswith(last))
    return [CompletionItem(f"{before}{word}") for word in matching]


def _found(model: Path, find: Find) -> list[str]:
    """The names that a function finds in a model, as in its file."""
    if model.suffix != ".onnx":
        return [*find(nnef_grad.load(model))]
    read = nnef_grad.interop.from_onnx(model)
    return [read.in_file.names.get(name, name) for name in find(read.graph)]


# ---- What has names ----

tensors: Find = attrgetter("tensors")
inputs: Find = attrgetter("input_names")
outputs: Find = attrgetter("output_names")


def ends(graph: Graph) -> Iterable[str]:
    """Inputs and outputs."""
    return (*graph.input_names, *graph.output_names)


def variables(graph: Graph) -> Iterable[str]:
    """The labels of variables, and their names."""
    return (*graph.labels.values(), *graph.labels)


def open_sizes(graph: Graph) -> Iterable[str]:
    """The names of open sizes."""
    from nnef_grad.graph.symbols import symbols

    return symbols(graph)
