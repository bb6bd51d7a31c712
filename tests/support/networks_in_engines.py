"""The gradients of real networks, with random weights, in engines of ONNX.

python -m support.networks_in_engines [NETWORK ...] --in tvm iree    prints how far those of all
                                            parameters are from torch's in double precision, and
                                            how long an engine took, with compiling

It wants torchvision, timm and transformers beside the engines.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

import nnef_grad
from bench.workers.torch_models import (
    IMAGE,
    declare_compiled_operators,
    images,
    of_these,
    of_timm,
    of_torchvision,
    of_transformers,
    sounds,
    tokens,
)
from nnef_grad import interop
from support.runtimes import run
from support.runtimes.cases import Array, Case, Verdict, compare
from support.runtimes.harness import ENGINES, missing

SECONDS = 1800.0
# Half of the sides of a usual image: enough for all windows, and few enough to compile.
SMALL = 64


class Network(NamedTuple):
    """What makes a network, by its name, and its input."""

    make: Callable[[str], Any]
    inputs: Callable[[], torch.Tensor]


_PICTURE, _SMALL = (partial(images, 1, extent) for extent in (IMAGE, SMALL))
NETWORKS: dict[str, Network] = {
    **dict.fromkeys(
        (
            "alexnet", "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small",
            "efficientnet_b0", "shufflenet_v2_x1_0", "squeezenet1_1", "convnext_tiny",
            "regnet_y_400mf", "densenet121", "mnasnet0_5",
        ),
        Network(of_torchvision, _SMALL),
    ),
    "ghostnet_100": Network(of_timm, _SMALL),
    **dict.fromkeys(
        ("mixer_s32_224", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"),
        Network(of_timm, _PICTURE),
    ),
    **dict.fromkeys(("bert", "gpt2", "llama"), Network(of_transformers, partial(tokens, 1))),
    "unet": Network(of_these, _SMALL),
    "lstm": Network(of_these, partial(sounds, 1)),
}  # fmt: skip


def module(name: str) -> Any:
    """A network whose normalizations have statistics, and in which nothing is dropped."""
    declare_compiled_operators()
    torch.manual_seed(0)
    made = NETWORKS[name].make(name).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) / 100)
    return made


def example(name: str, seed: int) -> tuple[Case, Mapping[str, Array]]:
    """The gradients of all parameters, and what torch computes in double precision."""
    network = module(name)
    torch.manual_seed(seed)
    given = NETWORKS[name].inputs()
    model = interop.from_torch(network, [given])
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    (fed_gradient,) = backward.seeds.values()
    exact = copy.deepcopy(network).double()
    result = exact(given.double() if given.is_floating_point() else given)
    cotangent = torch.randn(result.shape)
    result.backward(cotangent.double())
    (fed_name,) = model.places
    fed = {fed_name: given.numpy(), fed_gradient: cotangent.numpy()}
    own = dict(exact.named_parameters(remove_duplicate=False))
    expected = {
        backward.gradients[variable]: own[path].grad.numpy()
        for path, variable in model.parameters.items()
        if variable in backward.gradients and own[path].grad is not None
    }
    data = {k: np.asarray(x) for k, x in model.data.items()}
    return Case(nnef_grad.dumps(backward), fed, data), expected


def verdict(engine: str, case: Case, expected: Mapping[str, Array]) -> Verdict:
    """What becomes of a case in an engine, where variables may have another shape."""
    (outcome,) = run(engine, [case], SECONDS)
    shaped = {
        name: x.reshape(outcome.shapes.get(name, x.shape))
        for name, x in expected.items()
        if x.size == np.prod(outcome.shapes.get(name, x.shape))
    }
    return compare(outcome, shaped)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("networks_in_engines", description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--in", nargs="+", dest="engines", default=[*ENGINES])
    # With some inputs an element is so near to a kink that single precision is past it.
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for name in options.networks:
        case, expected = example(name, options.seed)
        for engine in filter(lambda e: not missing(e), options.engines):
            begin = time.perf_counter()
            found = verdict(engine, case, expected)
            took = time.perf_counter() - begin
            told = f"{found.error:.1e}" if found.word == "ok" else found.detail[:300]
            print(
                f"{name} | {engine} | {found.word} | {told} | {took:.0f} s", flush=True
            )


if __name__ == "__main__":
    main()
