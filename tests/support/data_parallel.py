"""A process of several that compute the gradients of an NNEF model together."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from nnef_grad.torch import Module

# Long enough for another process to start, short enough for a test that hangs.
PATIENCE = timedelta(seconds=60)


def gradients_of(
    model: Any, x: torch.Tensor, target: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The gradients of the sum of the squared errors, by the names of parameters."""
    (model(x) - target).square().sum().backward()
    return {
        name.removeprefix("module."): parameter.grad
        for name, parameter in model.named_parameters()
    }


def share(
    rank: int, count: int, folder: Path, runtime: str, x: torch.Tensor, target: Any
) -> None:
    """Writes the gradients of the whole batch, as this process has them, and its
    parameters after an epoch in which each step takes one example of each process: of an
    odd number, the last has fewer.
    """
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=count,
        timeout=PATIENCE,
    )
    model = DistributedDataParallel(Module(folder / "model", runtime))
    found = gradients_of(model, x[rank::count], target[rank::count])
    gradients = {name: count * gradient.clone() for name, gradient in found.items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with model.join():
        for x_part, target_part in batches(x[rank::count], target[rank::count]):
            optimizer.zero_grad()
            (count * (model(x_part) - target_part).square().sum()).backward()
            optimizer.step()
    torch.save((gradients, model.module.state_dict()), folder / f"{rank}.pt")
    distributed.destroy_process_group()


def batches(x: torch.Tensor, target: torch.Tensor) -> Any:
    """The examples, one by one."""
    return zip(x.split(1), target.split(1), strict=True)
