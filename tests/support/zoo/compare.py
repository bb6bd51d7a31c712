"""The gradients of a file beside those of torch."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import torch

import nnef_grad
from nnef_grad import interop
from support.onnx_files import run
from support.zoo.evaluator import Evaluation
from support.zoo.members import Member

Gradients = Mapping[str, npt.NDArray[Any]]


class Found(NamedTuple):
    """Errors, relative to the largest number of each gradient.

    Attributes:
        gradients: how many were compared with torch's, of the file that torch evaluates.
        exact: the largest error, in double precision.
        single: in ONNX Runtime.
        parameters: how many were compared with those of the module itself.
        module: the largest error of these, in double precision.
    """

    gradients: int
    exact: float
    single: float
    parameters: int
    module: float


def compare(member: Member, path: Path, *, is_plain: bool) -> Found:
    """What the first command makes of a file, in ONNX Runtime, and the same in double precision.

    Args:
        is_plain: whether the file computes what the module does.
    """
    model = onnx.load(path)
    seed_name = f"grad_{model.graph.output[0].name}"
    y = member.module(*member.inputs.values())
    seed = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    feeds = {name: x.numpy() for name, x in member.inputs.items()}
    feeds[seed_name] = seed.numpy()
    exact, values = _in_double(path, feeds)
    evaluation = Evaluation(model, member.inputs, exact)
    y = evaluation.values[model.graph.output[0].name]
    wanted = _by_autograd(y, evaluation.leaves, seed)
    errors = _errors(exact, wanted)
    single = _errors(_in_runtime(path, feeds), wanted)
    own = _of_module(member, seed, exact, values) if is_plain else {}
    return Found(
        len(errors),
        max(errors.values()),
        max(single.values()),
        len(own),
        max(own.values(), default=0.0),
    )


def _fresh(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: x.double().clone().requires_grad_() if x.is_floating_point() else x
        for name, x in inputs.items()
    }


def _by_autograd(y: Any, leaves: Mapping[str, Any], seed: Any) -> Gradients:
    found = torch.autograd.grad(
        y, [*leaves.values()], seed.double(), allow_unused=True, materialize_grads=True
    )
    return {name: g.numpy() for name, g in zip(leaves, found, strict=True)}


def _in_double(path: Path, feeds: Gradients) -> tuple[Gradients, Gradients]:
    """Gradients, by the names of the file, and the variables."""
    model = interop.from_onnx(path)
    backward = nnef_grad.differentiate(model.graph)
    used = {n: x for n, x in feeds.items() if n in backward.graph.input_names}
    found = nnef_grad.evaluate(backward, used, model.data)
    called = model.in_file.names
    gradients = {called.get(n, n): found[g] for n, g in backward.gradients.items()}
    labels = {label: called.get(n, n) for n, label in model.graph.labels.items()}
    return gradients, {labels[n]: np.asarray(x) for n, x in model.data.items()}


def _in_runtime(path: Path, feeds: Gradients) -> Gradients:
    """By the first command of the README."""
    out = path.with_name("model_bwd.onnx")
    command = [
        sys.executable,
        "-m",
        "nnef_grad",
        str(path),
        "-o",
        str(out),
        "--force",
        "--quiet",
    ]
    subprocess.run(command, check=True, capture_output=True)
    properties = {p.key: p.value for p in onnx.load(out).metadata_props}
    found = run(out, feeds)
    pairs = json.loads(properties["nnef_grad.gradients"]).items()
    return {name: found[gradient] for name, gradient in pairs}


def _errors(found: Gradients, wanted: Gradients) -> dict[str, float]:
    """Of all that were found; what is missing in torch is an error of its own."""
    top = max(float(np.abs(wanted[name]).max(initial=0)) for name in found)
    return {name: _error(x, wanted[name], top) for name, x in found.items()}


def _error(found: Any, wanted: Any, top: float) -> float:
    """Relative to the largest number, which is not less than a thousandth of that of all: some
    gradients are only zero, as that of a bias before a softmax.
    """
    size = max(float(np.abs(wanted).max(initial=0)), 1e-3 * top)
    return float(np.abs(np.reshape(found, wanted.shape) - wanted).max(initial=0)) / size


def _of_module(
    member: Member, seed: Any, found: Gradients, values: Gradients
) -> dict[str, float]:
    """Errors beside the module itself: of its inputs, and of the parameters that files hold as they
    are, or transposed; values tell which these are.
    """
    module = copy.deepcopy(member.module).double()
    inputs = _fresh(member.inputs)
    leaves = {n: x for n, x in module.named_parameters() if x.requires_grad}
    leaves |= {name: x for name, x in inputs.items() if x.is_floating_point()}
    wanted = _by_autograd(module(*inputs.values()), leaves, seed)
    top = max(float(np.abs(x).max(initial=0)) for x in wanted.values())
    errors = {n: _error(found[n], wanted[n], top) for n in inputs if n in found}
    for name in wanted.keys() - inputs.keys():
        for label, array in values.items():
            turned = _turn_to(array, leaves[name].detach().numpy())
            if turned is not None and label in found:
                errors[name] = _error(turned(found[label]), wanted[name], top)
    return errors


def _turn_to(array: Any, parameter: Any) -> Any:
    """How an array becomes a parameter, if it does."""
    for turn in (np.asarray, np.transpose):
        if turn(array).shape == parameter.shape and np.array_equal(
            turn(array), parameter
        ):
            return turn
    return None
