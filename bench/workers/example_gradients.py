"""Gradients of all parameters of a network for each example of a batch: in ONNX Runtime, and by
torch.func and Opacus. A process measures one of them, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.processes import answer_by_kind
from bench.timing import timed
from bench.workers.memory import peak

# The gradient of each parameter, with an item for each example, by torch's name.
Compute = Callable[[], Mapping[str, Any]]


def write(net: str, batch: int, folder: str) -> list[str]:
    """Writes the file, and what all programs are fed with. Returns the names of the
    parameters, in the order of the results.
    """
    import nnef_grad
    from bench.workers.torch_models import inputs, module
    from bench.workers.torch_to_onnx import first_names
    from nnef_grad.interop import from_torch, to_onnx

    x = inputs(net, batch)
    model = from_torch(module(net), (x,))
    found = {n: v for n, v in model.parameters.items() if v in model.trainable}
    wrt = [*dict.fromkeys(found.values())]
    made = nnef_grad.differentiate(model.graph, wrt=wrt, per_example=True)
    to_onnx(made.graph, Path(folder, "each.onnx"), model.data, overwrite=True)
    ((output, seed),) = made.seeds.items()
    shape = model.graph.tensors[output].shape
    random = np.random.default_rng(0).standard_normal(shape, np.float32)
    (name,) = model.graph.input_names
    np.savez(Path(folder, "fed.npz"), **{name: x.numpy(), seed: random})
    return first_names(found)


def onnxruntime(folder: str, names: list[str], threads: int, **_: Any) -> Compute:
    from bench.workers.onnx_runtime import session

    made = session(f"{folder}/each.onnx", threads, spare=True)
    fed = dict(np.load(f"{folder}/fed.npz"))
    return lambda: dict(zip(names, made.run(None, fed), strict=True))


def torch_func(net: str, batch: int, folder: str, threads: int, **_: Any) -> Compute:
    import torch

    from bench.workers.torch_models import inputs, module

    torch.set_num_threads(threads)
    made, x = module(net), inputs(net, batch)
    parameters = {n: p.detach() for n, p in made.named_parameters()}

    def weighted(parameters: Any, example: Any, weights: Any) -> Any:
        scores = torch.func.functional_call(made, parameters, (example[None],))
        return (scores[0] * weights).sum()

    each = torch.func.vmap(torch.func.grad(weighted), in_dims=(None, 0, 0))
    weights = _weights(folder)
    return lambda: each(parameters, x, weights)


def opacus(net: str, batch: int, folder: str, threads: int, **_: Any) -> Compute:
    import torch
    from opacus import GradSampleModule
    from opacus.grad_sample import register_grad_sampler

    from bench.workers.torch_models import inputs, module

    torch.set_num_threads(threads)
    register_grad_sampler(torch.nn.BatchNorm2d)(_of_frozen_norm)
    plain, x, weights = module(net), inputs(net, batch), _weights(folder)
    # Its hooks work in training alone, and nothing may be changed in place.
    for layer in plain.train().modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.forward = partial(_frozen_norm, layer)
        elif isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
        elif hasattr(layer, "inplace"):
            layer.inplace = False
        elif hasattr(layer, "downsample"):
            layer.forward = partial(_block, layer)
    for parameter in plain.parameters(recurse=False):
        # A hook of the whole network would compute it once more.
        parameter.requires_grad_(False)
    made = GradSampleModule(plain, loss_reduction="sum", strict=False)

    def compute() -> dict[str, Any]:
        made.zero_grad()
        (made(x) * weights).sum().backward()
        named = plain.named_parameters()
        return {n: p.grad_sample.detach() for n, p in named if p.requires_grad}

    return compute


def _block(block: Any, x: Any) -> Any:
    """A block of ResNet-18 that adds to nothing in place."""
    hidden = block.relu(block.bn1(block.conv1(x)))
    past = x if block.downsample is None else block.downsample(x)
    return block.relu(block.bn2(block.conv2(hidden)) + past)


def _frozen_norm(layer: Any, x: Any) -> Any:
    from torch.nn.functional import batch_norm

    moments = layer.running_mean, layer.running_var
    return batch_norm(x, *moments, layer.weight, layer.bias, eps=layer.eps)


def _of_frozen_norm(layer: Any, activations: Any, gradient: Any) -> Any:
    """The rule that Opacus has for no batch normalization: of one by stored moments."""
    x, shape = activations[0], (1, -1, 1, 1)
    deviation = (layer.running_var + layer.eps).sqrt()
    normal = (x - layer.running_mean.view(shape)) / deviation.view(shape)
    of_weight = (gradient * normal).sum((2, 3))
    return {layer.weight: of_weight, layer.bias: gradient.sum((2, 3))}


PROGRAMS: dict[str, Callable[..., Compute]] = {
    "onnxruntime": onnxruntime,
    "torch.func": torch_func,
    "opacus": opacus,
}


def measure(
    program: str, names: list[str], runs: int, **request: Any
) -> dict[str, Any]:
    """The times of runs after a first one, the peak of memory of all of them, and numbers
    that depend on all results: what is computed is too much to be sent.
    """
    compute = PROGRAMS[program](names=names, **request)
    seconds: list[float] = []
    found: dict[str, Any] = {}

    def run() -> None:
        for _ in range(runs + 1):
            found.clear()
            seconds.append(timed(lambda: found.update(compute())))

    grown = peak(run)
    sums = {name: _sums(found[name]) for name in names if name in found}
    return {"mebibytes": grown, "sums": sums, "seconds": seconds[1:]}


def _sums(gradient: Any) -> list[float]:
    """The gradient of each example times random numbers; the last is the norm of all."""
    rows = np.asarray(gradient).reshape(len(gradient), -1)
    random = np.random.default_rng(rows.shape[1])
    numbers = random.standard_normal(rows.shape[1], np.float32)
    norm = float(np.sqrt(np.vdot(rows, rows)))
    return [*map(float, rows @ numbers), norm]


def _weights(folder: str) -> Any:
    """Those of the scores in the sum that is differentiated: the last that is fed."""
    import torch

    return torch.from_numpy([*np.load(f"{folder}/fed.npz").values()][-1])


if __name__ == "__main__":
    answer_by_kind(write, measure)
