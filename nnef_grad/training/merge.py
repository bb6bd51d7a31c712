"""Trained values back into the model that they came from."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.language.labels import is_constant
from nnef_grad.model import declared_variables, load
from nnef_grad.storage.containers import GRAPH, QUANTIZATION, Container, open_container
from nnef_grad.storage.data import VariableData, load_data, tensor_files
from nnef_grad.storage.files import Part, PathLike, Text
from nnef_grad.storage.output import refuse_text, write_stored
from nnef_grad.storage.paths import Steps
from nnef_grad.storage.tensor_file import read_header
from nnef_grad.training.adapters import DOWN, SCALE, UP, folded


@public
def merge(
    model: PathLike,
    trained: PathLike | Sequence[PathLike],
    path: PathLike,
    *,
    overwrite: bool = False,
) -> list[str]:
    """Writes a model with trained values. Everything else stays: its text, its other
    files, and the data types of its files.

    Args:
        model: a folder or an archive.
        trained: one or several folders of steps, checkpoints, or folders with the files
            of some variables, named after their labels or after the inputs of a step. Later
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
    refuse_text(path)
    container = open_container(model)
    graph = load(model)
    own = VariableData(container).of(graph)
    trained = [trained] if isinstance(trained, (str, os.PathLike)) else trained
    stores = [load_data(place) for place in trained]
    changed: dict[str, Array] = {}
    is_merged = False
    for name, label in graph.labels.items():
        part = None if is_constant(label) else own.find(label)
        value = None if part is None else _trained(stores, label, name, own)
        if value is None or part is None:
            continue
        items = read_header(part).items
        has_codes = items.is_quantized and graph.tensors[name].dtype == "scalar"
        if has_codes or items.is_blocks:
            message = f"'{label}' is stored as codes, which no values can be merged"
            raise UsageError(f"{message} into: keep the trained values separate")
        before, is_merged = own[label], True
        after = np.asarray(value).astype(before.dtype)
        if not np.array_equal(before, after, equal_nan=True):
            changed[label] = after
    if not is_merged:
        if not any(own.find(label) for label in graph.labels.values()):
            message = f"'{model}' has no data for its variables"
            raise UsageError(f"{message}: trained values take the place of others")
        places = " and ".join(f"'{place}'" for place in trained)
        raise UsageError(f"no values in {places} belong to a variable of '{model}'")
    variables = {variable.label: variable for variable in declared_variables(graph)}
    declared = [variables[label] for label in changed]
    written = tensor_files(declared, changed)
    write_stored(path, {**_own_files(container), **written}, overwrite=overwrite)
    return [*changed]


def _own_files(container: Container) -> dict[Steps, Part]:
    """The files of a model. Texts are written anew: two models share no text."""
    files = {steps: container.find(steps) for steps in container.files()}
    parts: dict[Steps, Part] = {n: part for n, part in files.items() if part}
    texts = {GRAPH: container.graph(), QUANTIZATION: container.quantization()}
    return parts | {(n,): Text(text.text) for n, text in texts.items() if text}


def _trained(
    stores: Sequence[VariableData], label: str, name: str, own: VariableData
) -> Array | None:
    """The trained value of a variable of the model, with its adapter, if it has one: under
    its label, or else its name, in the last place that has it.
    """
    values: dict[str, Array] = {}
    for end in ("", DOWN, UP, SCALE):
        keys = (label + end, (name + end).replace(".", "_"))
        places = (s[key] for s in reversed(stores) for key in keys if key in s)
        if (value := next(places, None)) is not None:
            values[label + end] = value
    if not {label + DOWN, label + UP} <= {*values}:
        return values.get(label)
    if label + SCALE not in values:
        message = f"the scale of the adapter of '{label}' is missing"
        raise UsageError(f"{message}: name the folder of the step first")
    return folded({label: own[label]} | values, label)
