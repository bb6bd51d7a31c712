"""Times gradients in the PyTorch interpreter of nnef_tools: by the backward graph, and by
torch's own autograd through the interpreter of the forward graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from nnef_tools.interpreter.pytorch import NNEFModule

from bench.processes import answer
from bench.timing import interleaved
from bench.workers.memory import peak
from bench.workers.results import difference


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The request has the folders of the models by program, the names of the
    `variables`, the shapes of the inputs and of the seeds, whether there are batch
    normalizations with numbers for operands, and `memory`: the program whose memory is
    measured, or none for the times of all.
    """
    torch.set_num_threads(request["threads"])
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in request["inputs"]]
    seeds = [torch.randn(shape) for shape in request["seeds"]]
    makers: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(request, inputs),
        "backward": lambda: backward(request, inputs + seeds),
        "autograd": lambda: autograd(request, inputs, seeds),
    }
    if request["memory"]:
        return {"mebibytes": peak(makers[request["memory"]]())}
    programs = {name: make() for name, make in makers.items()}
    results = {name: program() for name, program in programs.items()}
    return {
        "version": f"nnef_tools {version('nnef_tools')}, torch {torch.__version__}",
        "difference": difference(results["backward"], results["autograd"]),
        "seconds": interleaved(programs, request["runs"], request["seconds"]),
    }


def forward(request: dict[str, Any], inputs: list[Any]) -> Any:
    return partial(without_autograd, forward_module(request), inputs)


def backward(request: dict[str, Any], inputs: list[Any]) -> Any:
    return partial(without_autograd, NNEFModule(request["models"]["backward"]), inputs)


def forward_module(request: dict[str, Any]) -> Any:
    """The forward graph as it is; but the interpreter takes batch normalization with
    numbers for its operands only by its formula.
    """
    folder = request["models"]["forward"]
    if not request["literal_norms"]:
        return NNEFModule(folder)
    return NNEFModule(folder, decomposed=["batch_normalization"])


def without_autograd(module: Any, inputs: list[Any]) -> list[Any]:
    with torch.no_grad():
        return [result.numpy() for result in module(*inputs)]


def autograd(request: dict[str, Any], inputs: list[Any], seeds: list[Any]) -> Any:
    module = forward_module(request)
    parameters = [getattr(module, f"_nnef_{name}") for name in request["variables"]]

    def run() -> list[Any]:
        found = torch.autograd.grad(module(*inputs), parameters, seeds)
        return [gradient.numpy() for gradient in found]

    return run


if __name__ == "__main__":
    answer(main)
