"""Runs the gradients of a network in PyTorch: eagerly, or compiled by torch.compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bench.processes import Program, serve
from bench.workers.torch_models import inputs, module


def prepare(request: dict[str, Any]) -> Program:
    """The request has the `net` and the `batch`, whether it `compiles`, the `folder` of
    what it is fed with, with the name of the `seed`, the names of the `parameters`, in
    the order of the results, and the number of `threads`.
    """
    torch.set_num_threads(request["threads"])
    net = module(request["net"])
    named = dict(net.named_parameters())
    parameters = [named[name] for name in request["parameters"]]
    if request["compiles"]:
        net = torch.compile(net)
    x = inputs(request["net"], request["batch"])
    seed = torch.from_numpy(np.load(f"{request['folder']}/fed.npz")[request["seed"]])
    return lambda: torch.autograd.grad(net(x), parameters, seed)


if __name__ == "__main__":
    serve(prepare)
