"""Times gradients of a network of torchvision or timm: by its backward graph in ONNX
Runtime, and by torch in eager mode.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from bench.processes import answer
from bench.timing import interleaved
from bench.workers.onnx_runtime import session
from bench.workers.results import difference
from bench.workers.torch_models import images, module


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The request has the `net`, the `batch`, the `file` of the backward graph, the
    names of its inputs `x` and `seed`, and of the `parameters`, in the order of its
    results.
    """
    torch.set_num_threads(request["threads"])
    net = module(request["net"])
    x = images(request["net"], request["batch"])
    seed = torch.randn_like(net(x).detach())
    programs = {
        "backward": backward(request, x, seed),
        "torch": eager(net, request["parameters"], x, seed),
    }
    ours, theirs = (program() for program in programs.values())
    return {
        "difference": difference(ours, [gradient.numpy() for gradient in theirs]),
        "seconds": interleaved(programs, request["runs"], request["seconds"]),
    }


def backward(request: dict[str, Any], x: Any, seed: Any) -> Any:
    feeds = {request["x"]: x.numpy(), request["seed"]: seed.numpy()}
    ours = session(request["file"], request["threads"])
    read = {fed.name for fed in ours.get_inputs()}
    return partial(ours.run, None, {n: f for n, f in feeds.items() if n in read})


def eager(net: Any, names: list[str], x: Any, seed: Any) -> Any:
    parameters = dict(net.named_parameters())
    wanted = [parameters[name] for name in names]
    return lambda: torch.autograd.grad(net(x), wanted, seed)


if __name__ == "__main__":
    answer(main)
