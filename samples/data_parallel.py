"""An NNEF model trained by several processes, each with its share of every batch.

    pip install '.[torch]' onnxruntime
    torchrun --nproc-per-node 2 samples/data_parallel.py

The trained model is in the folder `trained`, from where another run goes on. Without
torchrun, one process does the same steps.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import nnef_grad
from nnef_grad.torch import Module

GRAPH = """
version 1.0;

graph digits( image ) -> ( logits )
{
    image = external(shape = [1, 64]);
    weight1 = variable(shape = [32, 64], label = 'layer1/weight');
    bias1 = variable(shape = [1, 32], label = 'layer1/bias');
    weight2 = variable(shape = [10, 32], label = 'layer2/weight');
    bias2 = variable(shape = [1, 10], label = 'layer2/bias');

    linear1 = linear(image, weight1, bias1);
    hidden = relu(linear1);
    logits = linear(hidden, weight2, bias2);
}
"""
RUNTIME = "onnxruntime"
# The last batch has one image: in two processes, the second has nothing to do.
IMAGES, BATCH = 321, 32
EPOCHS = 5


def main(folder: Path) -> None:
    images, labels = made_up_digits()
    with processes() as (rank, count):
        module = Module(folder, RUNTIME) if folder.exists() else new_module()
        parallel = DistributedDataParallel(module)
        # Without momentum: a process that leaves an epoch early misses steps, and gets
        # the parameters of the others, but not the state of their optimizers.
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        for epoch in range(1, EPOCHS + 1):
            train(parallel, optimizer, images, labels, rank, count)
            if rank == 0:
                module.save(folder, overwrite=True)
                print(f"epoch {epoch} by {count}: {score(module, images, labels)}")


@contextmanager
def processes():
    """The number of this process, and how many there are."""
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    else:
        store = distributed.HashStore()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield distributed.get_rank(), distributed.get_world_size()
    distributed.destroy_process_group()


def train(parallel, optimizer, images, labels, rank, count):
    """An epoch. A process whose share of the last batch is empty leaves early, and takes
    part in the sums of the others with zeros.
    """
    with parallel.join():
        for start in range(0, len(images), BATCH):
            whole = min(BATCH, len(images) - start)
            share = slice(start + rank, start + whole, count)
            if len(images[share]) == 0:
                break
            loss = cross_entropy(
                parallel(images[share]), labels[share], reduction="sum"
            )
            optimizer.zero_grad()
            # Gradients are averaged over processes: as shares differ, each counts its
            # images in units of the average share.
            (loss * count / whole).backward()
            optimizer.step()


def score(module, images, labels):
    with torch.no_grad():
        logits = module(images)
    right = (logits.argmax(1) == labels).float().mean()
    return f"loss {cross_entropy(logits, labels):.6f}, {100 * right:.1f} % right"


def made_up_digits():
    """Images of ten classes, each a pattern of 8 x 8 pixels with noise, and their labels."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 64, generator=generator)
    labels = torch.randint(10, (IMAGES,), generator=generator)
    noise = torch.randn(IMAGES, 64, generator=generator)
    return patterns[labels] + 2 * noise, labels


def new_module():
    generator = torch.Generator().manual_seed(1)
    graph = nnef_grad.loads(GRAPH)
    data = {
        str(op.attributes["label"]): 0.1 * torch.randn(t.shape, generator=generator)
        for op in graph.operations
        for t in op.outputs
        if op.name == "variable"
    }
    return Module(graph, RUNTIME, data=data)


if __name__ == "__main__":
    main(Path("trained"))
