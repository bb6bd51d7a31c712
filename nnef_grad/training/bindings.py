"""A step in ONNX files that any binding of ONNX Runtime can run: what it keeps is in inputs
that must be fed, and what it begins with is a graph of its own.

Python may leave out an input that has an initial value. JavaScript, Java and C# may not feed
one that has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.onnx.model import InFile
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.ops.registry import OpSet
from nnef_grad.storage.files import PathLike, refuse_existing
from nnef_grad.storage.output import is_onnx
from nnef_grad.targets.onnx.writing import write
from nnef_grad.targets.tensors import DTYPES
from nnef_grad.training.forms import Step
from nnef_grad.training.recipes import LEARNING_RATE, LOSS_SCALE

# The roles of inputs that are fed with more than data.
_RATES = (LEARNING_RATE, LOSS_SCALE)


def save_for_bindings(
    step: Step,
    path: PathLike,
    start: PathLike,
    *,
    in_file: InFile | None,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Writes a step, the graph of the values to begin with, and what the inputs and outputs
    of both are for, in a file of JSON beside the step.

    Raises:
        UsageError: a path is not that of an ONNX file, or there is a file already.
    """
    if not is_onnx(start):
        raise UsageError(
            f"'{start}' is the graph to begin with, and no ONNX file x.onnx"
        )
    told, own = Path(path).with_suffix(".json"), in_file or InFile()
    for place in (Path(path), Path(start), told):
        refuse_existing(place, overwrite=overwrite)
    data = {name: x for name, x in step.data.items() if name not in step.inputs}
    write(
        step.graph,
        path,
        data,
        overwrite=overwrite,
        in_file=own,
        trained=step.state,
        state=step.state,
        **settings,
    )
    graph = _beginning(step)
    values = {name: step.data[name] for name in step.state}
    appearance = own._replace(types={})
    write(graph, start, values, overwrite=overwrite, in_file=appearance, **settings)
    text = json.dumps(_description(step, own, path, start), indent=2)
    told.write_text(f"{text}\n", "utf-8")


def _beginning(step: Step) -> Graph:
    """A graph without inputs, whose outputs are the first values of the state."""
    emit, tensors = Emitter(OpSet()), step.graph.tensors
    outputs = []
    for name in step.state:
        x = tensors[name]
        value = emit("variable", shape=x.shape, label=name, dtype=x.dtype, hint="first")
        outputs.append(emit.emit_named(name, "copy", x=value))
    operations = tuple(emit.operations)
    names = emit.assigned_names(operations, reserved=step.state)
    return Graph("start", (), tuple(outputs), operations, names)


def _description(
    step: Step, own: InFile, path: PathLike, start: PathLike
) -> dict[str, Any]:
    """The roles of inputs and outputs, by their names in the file."""

    def called(name: str) -> str:
        return own.names.get(name, name)

    new = {name: own.after(old, name) for old, name in step.state.items()}
    ends = {*_RATES, *step.model.input_names, *step.state, *step.noise}
    roles = dict.fromkeys(step.model.input_names, "data")
    roles |= {name: name for name in _RATES}
    roles |= {
        **dict.fromkeys(step.state, "state"),
        **dict.fromkeys(step.noise, "noise"),
    }
    roles |= {name: "target" for name in step.inputs if name not in ends}
    tensors = step.graph.tensors
    kinds = {name: kind for name, kind in own.types.items() if name not in step.state}
    return {
        "step": Path(path).name,
        "start": Path(start).name,
        "inputs": {
            called(name): {
                "role": roles[name],
                "type": _type(tensors[name], kinds.get(name)),
                "shape": [
                    n if isinstance(n, int) else str(n)
                    for n in own.shapes.get(name, tensors[name].shape)
                ],
            }
            for name in step.inputs
        },
        "loss": step.outputs[0],
        "state": {called(old): new[name] for old, name in step.state.items()},
    }


def _type(tensor: Tensor, kind: int | None) -> str:
    """The type of the elements in the file, by numpy's name; of its number, if known."""
    if kind is None:
        return str(np.dtype(DTYPES[tensor.dtype]))
    from onnx.helper import tensor_dtype_to_np_dtype

    return str(np.dtype(tensor_dtype_to_np_dtype(kind)))
