"""Trained values back into the model that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.model import declared_variables, load
from nnef_grad.storage.containers import GRAPH, QUANTIZATION, Container, open_container
from nnef_grad.storage.data import Declared, VariableData, load_data, parts_of
from nnef_grad.storage.files import PathLike
from nnef_grad.storage.output import ModelFormat, format_of, write_archive, write_folder
from nnef_grad.storage.parts import Part, Text
from nnef_grad.storage.paths import Steps
from nnef_grad.storage.tensor_file import read_header
from nnef_grad.training.adapters import DOWN, SCALE, UP, folded

Array = Any


@public
def merge(
    model: PathLike,
    trained: Sequence[PathLike],
    path: PathLike,
    *,
    overwrite: bool = False,
) -> list[str]:
    """Writes a model with trained values. Everything else stays: its text, its other
    files, and the data types of its files.

    Args:
        model: a folder or an archive.
        trained: folders of steps, checkpoints, or folders with the files of some
            variables, named after their labels or after the inputs of a step. Later
            ones have priority. Adapters are added to their variables.
        path: the folder or the archive to write; its data may share the files of the model.
        overwrite: whether to replace what is there.

    Returns:
        The labels of the changed variables.

    Raises:
        NnefGradError: something cannot be read or written, no value belongs to the
            model, a value does not fit its variable, or a variable has no plain
            numbers.
    """
    if format_of(path) is ModelFormat.TEXT:
        message = f"'{path}' is a text, which cannot hold data"
        raise UsageError(f"{message}: write a folder or an archive")
    container = open_container(model)
    graph = load(model)
    stores = _Stores([load_data(place) for place in trained])
    own = VariableData(container)
    changed: dict[str, Array] = {}
    variables = {variable.label: variable for variable in declared_variables(graph)}
    is_found = False
    for name, label in graph.labels.items():
        part = own.find(label)
        found = stores.value(label, name, own if part is not None else None)
        if found is None or part is None:
            continue
        is_found = True
        items = read_header(part).items
        if items.is_quantized or items.is_blocks:
            message = (
                f"'{label}' is stored as codes, which no values can be merged into"
            )
            raise UsageError(f"{message}: keep the trained values separate")
        before = own[label]
        after = np.asarray(found).astype(before.dtype)
        if not np.array_equal(before, after, equal_nan=True):
            changed[label] = after
    if not is_found:
        places = " and ".join(f"'{place}'" for place in trained)
        raise UsageError(f"no values in {places} belong to a variable of '{model}'")
    declared = [variables[label] for label in changed]
    parts = {**_own_files(container), **_written(declared, changed, path)}
    is_folder = format_of(path) is ModelFormat.FOLDER
    (write_folder if is_folder else write_archive)(path, parts, overwrite=overwrite)
    return [*changed]


def _own_files(container: Container) -> dict[Steps, Part]:
    """The files of a model. Texts are written anew: two models share no text."""
    files = {steps: container.find(steps) for steps in container.files()}
    parts: dict[Steps, Part] = {
        n: part for n, part in files.items() if part is not None
    }
    texts = {GRAPH: container.graph(), QUANTIZATION: container.quantization()}
    return parts | {
        (n,): Text(text.text) for n, text in texts.items() if text is not None
    }


def _written(
    declared: Sequence[Declared], data: dict[str, Array], path: PathLike
) -> dict[Steps, Part]:
    return parts_of(declared, data, Path(path).parent)


class _Stores(NamedTuple):
    """Data of several places, of which the last goes first."""

    all: Sequence[VariableData]

    def find(self, label: str, name: str) -> Array | None:
        """The array of a label, or else of a name."""
        for store in reversed(self.all):
            for key in (label, name):
                if key in store:
                    return store[key]
        return None

    def value(self, label: str, name: str, own: VariableData | None) -> Array | None:
        """The trained value of a variable of the model, with its adapter, if it has one."""
        found = self.find(label, name)
        down, up = (self.find(label + end, _as_name(name + end)) for end in (DOWN, UP))
        if down is None or up is None or own is None:
            return found
        scale = self.find(label + SCALE, _as_name(name + SCALE))
        if scale is None:
            message = f"the scale of the adapter of '{label}' is missing"
            raise UsageError(f"{message}: name the folder of the step first")
        weight = own[label] if found is None else found
        return folded(weight, down, up, float(np.ravel(scale)[0]))


def _as_name(label: str) -> str:
    return label.replace(".", "_")
