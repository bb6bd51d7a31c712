"""Measures the steps per second of models that several processes train together.

    torchrun --nproc-per-node 1 -m bench.data_parallel
    torchrun --nproc-per-node 2 -m bench.data_parallel

The images of a step are dealt to the processes: twice as many take half as many each. The
figures are those of the fastest of some rounds, as other programs may run beside.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import nnef_grad
from nnef_grad.graph.extents import as_numbers
from nnef_grad.torch import Module

SAMPLES = Path(__file__).parents[1] / "samples"
IMAGES = 256
ROUNDS, SECONDS = 20, 0.5


def main() -> None:
    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    for name in ("mlp", "convnet"):
        graph = nnef_grad.load(SAMPLES / f"{name}.nnef")
        module = new_module(graph)
        speed = max(speeds(module, as_numbers(graph.inputs[0].shape[1:])))
        count = sum(parameter.numel() for parameter in module.parameters())
        if distributed.get_rank() == 0:
            processes = distributed.get_world_size()
            print(f"{name}, {IMAGES} images, {4 * count} bytes", end=", ")
            print(f"{processes} processes: {speed:.0f} steps per second", flush=True)
    distributed.destroy_process_group()


def new_module(graph: nnef_grad.Graph) -> Module:
    generator = torch.Generator().manual_seed(0)
    data = {
        str(op.attributes["label"]): torch.rand(t.shape, generator=generator)
        for op in graph.operations
        if op.name == "variable"
        for t in op.outputs
    }
    return Module(graph, "onnxruntime", data=data)


def speeds(module: Module, shape: tuple[int, ...]) -> Iterator[float]:
    """The steps per second of each round, which is the same for all processes: they wait
    for each other in each step.
    """
    share = IMAGES // distributed.get_world_size()
    x = torch.rand(share, *shape)
    parallel = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-4)

    def steps(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            optimizer.zero_grad()
            parallel(x).square().mean().backward()
            optimizer.step()
        return time.perf_counter() - start

    steps(3)
    # The same number in all processes, or they would wait forever.
    number = torch.tensor(SECONDS * 10 / steps(10)).ceil()
    distributed.broadcast(number, 0)
    for _ in range(ROUNDS):
        yield int(number) / steps(int(number))


if __name__ == "__main__":
    main()
