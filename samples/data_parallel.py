"""An NNEF model trained by several processes, each with its share of every batch.

    pip install '.[torch]' onnxruntime scikit-learn
    torchrun --nproc-per-node 2 samples/data_parallel.py

It learns to read the digits that come with scikit-learn, 8 x 8 pixels each. The trained
model is in the folder `trained`, from where another run goes on. Without torchrun, one
process makes the same steps.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import nnef_grad
from nnef_grad.torch import Module

GRAPH = """
version 1.0;

graph digits( image ) -> ( logits )
{
    image = external(shape = [1, 1, 8, 8]);
    kernel1 = variable(shape = [16, 1, 3, 3], label = 'conv1/kernel');
    bias1 = variable(shape = [1, 16], label = 'conv1/bias');
    kernel2 = variable(shape = [32, 16, 3, 3], label = 'conv2/kernel');
    bias2 = variable(shape = [1, 32], label = 'conv2/bias');
    kernel3 = variable(shape = [10, 32, 4, 4], label = 'scores/kernel');
    bias3 = variable(shape = [1, 10], label = 'scores/bias');

    conv1 = conv(image, kernel1, bias1);
    relu1 = relu(conv1);
    pool1 = max_pool(relu1, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore');
    conv2 = conv(pool1, kernel2, bias2);
    relu2 = relu(conv2);
    scores = conv(relu2, kernel3, bias3, padding = [(0, 0), (0, 0)]);
    logits = squeeze(scores, axes = [2, 3]);
}
"""
RUNTIME = "onnxruntime"
# The last batch has one image: of two processes, the second has nothing to do.
TRAINED, BATCH = 1345, 32
EPOCHS = 5


def main(folder: Path) -> None:
    images, labels = digits()
    with processes() as (rank, count):
        module = Module(folder, RUNTIME) if folder.exists() else new_module()
        parallel = DistributedDataParallel(module)
        # Without momentum: a process that leaves an epoch early misses steps, and gets
        # the parameters of the others, but not the state of their optimizers.
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.2)
        for epoch in range(1, EPOCHS + 1):
            train(parallel, optimizer, images[:TRAINED], labels[:TRAINED], rank, count)
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
            share = slice(start + rank, start + BATCH, count)
            if len(images[share]) == 0:
                break
            loss = cross_entropy(
                parallel(images[share]), labels[share], reduction="sum"
            )
            optimizer.zero_grad()
            # DistributedDataParallel averages over processes: times their number, it is
            # the sum over the batch, however many images each has of it.
            (loss * count / BATCH).backward()
            optimizer.step()


def score(module, images, labels):
    """The loss in training, and the accuracy on the images held out of it."""
    with torch.no_grad():
        logits = module(images)
    loss = cross_entropy(logits[:TRAINED], labels[:TRAINED])
    right = (logits.argmax(1) == labels)[TRAINED:].float().mean()
    return f"loss {loss:.6f}, {100 * right:.1f} % of {len(labels) - TRAINED} right"


def digits():
    """Images, and the digits that they show, in an order by chance that is always the
    same.
    """
    found = load_digits()
    order = torch.randperm(
        len(found.target), generator=torch.Generator().manual_seed(0)
    )
    images = torch.from_numpy(found.images).float() / 16
    return images[order].unsqueeze(1), torch.from_numpy(found.target)[order]


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
