"""Real networks: Khronos' own AlexNet, VGG and ResNet, where their files lie beside the
checkout.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from checks import check_gradients

import nnef_grad

MODELS = Path(__file__).parents[2] / "shared" / "models"


def network(name: str, batch: int, image: int) -> str:
    """The text of a network for images of another size."""
    path = MODELS / f"{name}.nnef"
    if not path.exists():
        pytest.skip(
            f"{path} is not here: the networks are published by Khronos, not part of this project"
        )
    return re.sub(
        r"external\(shape = \[1, 3, 224, 224\]\)",
        f"external(shape = [{batch}, 3, {image}, {image}])",
        path.read_text(),
    )


# AlexNet and VGG end in convolutions without padding over the whole of a 224 x 224
# image.
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("name", "image"), [("alexnet", 224), ("vgg", 224), ("resnet", 64)]
)
def test_every_gradient_agrees_with_autograd(name: str, image: int, batch: int) -> None:
    check_gradients(network(name, batch, image), tolerance=1e-6, transform=_scaled)


def _scaled(value: object) -> object:
    """Values of a size that neither vanishes nor explodes through fifty layers: by the
    fan-in of a kernel.
    """
    import torch

    assert isinstance(value, torch.Tensor)
    if value.dim() == 4 and value.shape[1] * value.shape[2] > 3:
        return value * (2.0 / value[0].numel()) ** 0.5
    return value.abs() + 0.5 if value.dim() == 2 else value


@pytest.mark.parametrize(
    ("name", "image"), [("alexnet", 224), ("vgg", 224), ("resnet", 224)]
)
def test_one_reduction_for_each_broadcast_operand(name: str, image: int) -> None:
    graph = nnef_grad.loads(network(name, 1, image))
    backward = nnef_grad.differentiate(graph)
    sums = [op for op in backward.graph.operations if op.name == "sum_reduce"]
    broadcast = sum(_broadcast_operands(op) for op in graph.operations)
    assert backward.reductions == broadcast
    assert len(sums) <= broadcast


def _broadcast_operands(operation: nnef_grad.Operation) -> int:
    """How many of an operation's tensors are repeated along an axis to fit its
    result.
    """
    names = {
        "conv": {"bias"},
        "batch_normalization": {"mean", "variance", "offset", "scale"},
    }.get(operation.name, set())
    (result,) = operation.outputs
    pairs = zip(operation.definition.operands, operation.operands)
    tensors = [
        t
        for p, t in pairs
        if isinstance(t, nnef_grad.Tensor)
        and (p.name in names or operation.name == "add")
    ]
    return sum(_is_repeated(t.shape, result.shape) for t in tensors)


def _is_repeated(operand: tuple[int, ...], result: tuple[int, ...]) -> bool:
    extended = operand + (1,) * (len(result) - len(operand))
    return any(o == 1 and r > 1 for o, r in zip(extended, result))


# The last convolution of VGG covers all of what a 224 x 224 image has become.
SMALLER = {"vgg": ("[4096, 512, 7, 7]", "[4096, 512, 1, 1]")}


@pytest.mark.parametrize(
    ("name", "image"), [("alexnet", 224), ("vgg", 32), ("resnet", 32)]
)
def test_every_gradient_agrees_with_central_differences(name: str, image: int) -> None:
    text = network(name, 1, image).replace(*SMALLER.get(name, ("", "")))
    graph = nnef_grad.loads(text)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
    assert [g.verdict for g in checked.gradients] == ["ok"] * len(checked.gradients)


def test_a_wrong_gradient_of_a_network_is_found() -> None:
    graph = nnef_grad.loads(network("resnet", 1, 32))
    rules = nnef_grad.Rules()
    right = rules.find("batch_normalization")
    assert right is not None

    @rules.vjp("batch_normalization")
    def wrong(emit: Any, operation: Any, dy: Any) -> list[Any]:
        *others, offset, scale = right(emit, operation, dy)
        return [*others, emit("mul", offset, 1.001), scale]

    backward = nnef_grad.differentiate(graph, wrt=["beta17"], rules=rules)
    (found,) = nnef_grad.check(graph, backward).gradients
    assert found.verdict == "FAILED"
