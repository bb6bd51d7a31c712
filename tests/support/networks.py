"""AlexNet, VGG and ResNet as Khronos publishes them, for images of other sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

import nnef_grad
from bench.published import PUBLISHED
from support import reference
from support.runtimes import Stored, Verdict, compare, run
from support.runtimes.cases import Array
from support.stored_models import tensor as tensor_file
from support.stored_models import write_files

# In AlexNet and VGG, a convolution covers all that is left of an image of 224 x 224. For
# a small image its kernel is smaller.
SMALL = {
    "alexnet": (99, "[4096, 256, 5, 5]", "[4096, 256, 2, 2]"),
    "vgg": (32, "[4096, 512, 7, 7]", "[4096, 512, 1, 1]"),
    "resnet": (32, "", ""),
}


def network(name: str, batch: int, image: int) -> str:
    """The text of a network for images of another size."""
    own, wanted = ([1, 3, 224, 224], [batch, 3, image, image])
    text = PUBLISHED[name]()
    return text.replace(f"external(shape = {own})", f"external(shape = {wanted})")


def small_network(name: str, batch: int = 1) -> str:
    """The text of a network for small images."""
    image, kernel, smaller = SMALL[name]
    return network(name, batch, image).replace(kernel, smaller)


def scaled(value: torch.Tensor) -> torch.Tensor:
    """Random values made of a size that neither vanishes nor explodes through fifty
    layers: by the fan-in of a kernel.
    """
    if value.dim() == 4 and value.shape[1] * value.shape[2] > 3:
        return value * (2.0 / value[0].numel()) ** 0.5
    return value.abs() + 0.5 if value.dim() == 2 else value


# ---- In the runtimes ----


class Network(NamedTuple):
    """A network that is stored, the inputs of its backward graph by name, and what that
    computes, by torch.
    """

    folder: Path
    inputs: Mapping[str, Array]
    gradients: Mapping[str, Array]


def stored_network(name: str, folder: Path) -> Network:
    """A small network with random weights, in the files that others than us write."""
    text = small_network(name)
    generator = torch.Generator().manual_seed(0)
    feeds, weights = reference.random_feeds(text, generator)
    feeds = {name: _single(value) for name, value in feeds.items()}
    weights = {label: _single(scaled(value)) for label, value in weights.items()}
    files = {
        f"{label}.dat": tensor_file(value.float().numpy())
        for label, value in weights.items()
    }
    write_files(folder, {"graph.nnef": text.encode(), **files})

    graph = nnef_grad.loads(text)
    names = nnef_grad.differentiate(graph)
    seeds = {
        graph.names[tensor]: _single(torch.randn(tensor.shape, generator=generator))
        for tensor in graph.outputs
    }
    found = reference.gradients(text, feeds, weights, list(names.gradients), seeds)
    feeds.update((names.seeds[output], seed) for output, seed in seeds.items())
    return Network(
        folder,
        {name: value.numpy() for name, value in feeds.items()},
        dict(zip(names.gradients.values(), (g.numpy() for g in found), strict=True)),
    )


def _single(value: torch.Tensor) -> torch.Tensor:
    """Numbers that are the same in single precision."""
    return value.float().double()


def network_verdicts(
    network: Network, folder: Path, runtimes: Iterable[str]
) -> dict[str, Verdict]:
    """What runtimes make of the backward model of a network, by runtime."""
    case = Stored(folder, network.inputs)
    return {r: compare(run(r, [case])[0], network.gradients) for r in runtimes}
