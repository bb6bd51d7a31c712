"""100 steps in each runtime, in single precision, against torch in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.training_steps import (
    MLP,
    batches,
    batches_of_images,
    needs,
    network,
    network_data,
    random_data,
)
from support.training_steps import Peer as TextPeer

import nnef_grad

Array = Any
STEPS = 100
# Rounding is about 1e-7, and each step passes that of all before on.
TOLERANCE = 1e-4
DATA = random_data(nnef_grad.loads(MLP))
RUNTIMES = ("onnxruntime", "openvino", "tract", "khronos", "numpy")


class Peer:
    """The network in torch, which normalizes by the statistics of the batch."""

    def __init__(self, data: Mapping[str, Array]) -> None:
        self.values = {k: torch.tensor(v, dtype=torch.float64) for k, v in data.items()}
        self.parameters = [
            self.values[label].requires_grad_()
            for label in self.values
            if label not in ("norm/mean", "norm/variance")
        ]

    def loss(self, image: Array, labels: Array) -> torch.Tensor:
        flat = {k: v.flatten() for k, v in self.values.items() if k.startswith("norm")}
        x = torch.as_tensor(image, dtype=torch.float64)
        x = F.conv2d(x, self.values["conv/filter"], padding=1)
        x = F.batch_norm(
            x,
            flat["norm/mean"],
            flat["norm/variance"],
            flat["norm/scale"],
            flat["norm/offset"],
            training=True,
            momentum=0.1,
            eps=1e-5,
        )
        x = F.max_pool2d(F.relu(x), 2).flatten(1)
        return F.cross_entropy(
            x @ self.values["linear/weight"].T, torch.as_tensor(labels)
        )


Make = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, tuple[float, Make]] = {
    "momentum": (0.02, lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)),
    "adam(eps = 1e-4)": (0.01, lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-4)),
}


@pytest.mark.parametrize("recipe", OPTIMIZERS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_hundred_steps(runtime: str, recipe: str) -> None:
    needs(runtime)
    rate, make = OPTIMIZERS[recipe]
    data = network_data()
    step = nnef_grad.training_step(
        network(),
        loss="softmax_cross_entropy_with_labels",
        optimizer=recipe,
        data=data,
        batch_statistics=0.1,
    )
    peer = Peer(data)
    optimizer = make(peer.parameters)
    training = nnef_grad.training.run(
        step, batches_of_images(STEPS), runtime=runtime, learning_rate=rate
    )
    for found, (image, labels) in zip(training, batches_of_images(STEPS), strict=True):
        optimizer.zero_grad()
        loss = peer.loss(image, labels)
        loss.backward()
        optimizer.step()
        assert found == pytest.approx(loss.item(), rel=TOLERANCE), training.steps
    assert training.steps == STEPS
    for label, value in peer.values.items():
        wanted = value.detach().numpy()
        error = np.abs(training.data[label] - wanted).max() / np.abs(wanted).max()
        assert error < TOLERANCE, label
    # What was learnt: the loss of the last steps is below that of guessing.
    assert found < 0.9 * np.log(5.0)


# ---- Every loss, and every optimizer ----


class Case(NamedTuple):
    """A loss: what the network ends with, what torch calls it, and what targets are."""

    recipe: str
    ends: str
    peer: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    target: Callable[[Array], Array]


def whole(scores: Array) -> Array:
    """Numbers that the network does not hit, where some losses have a kink."""
    return np.where(scores > 0.0, 3.0, -3.0)


def sides(scores: Array) -> Array:
    return np.sign(scores)


def chances(scores: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-scores))


def shares(scores: Array) -> Array:
    powers = np.exp(scores)
    return np.asarray(powers / powers.sum(1, keepdims=True))


def classes(scores: Array) -> Array:
    return np.asarray(scores.argmax(1))


LOSSES = [
    Case("mean_squared_error", "copy(logits)", F.mse_loss, whole),
    Case("mean_absolute_error", "copy(logits)", F.l1_loss, whole),
    Case(
        "huber(delta = 0.5)",
        "copy(logits)",
        lambda x, y: F.huber_loss(x, y, delta=0.5),
        whole,
    ),
    Case(
        "cosine_similarity",
        "copy(logits)",
        lambda x, y: (1.0 - F.cosine_similarity(x, y)).mean(),
        whole,
    ),
    Case(
        "hinge(margin = 4.0)",
        "copy(logits)",
        lambda x, y: (4.0 - x * y).clamp(min=0.0).mean(),
        sides,
    ),
    Case(
        "binary_cross_entropy",
        "exp(-softplus(logits))",
        F.binary_cross_entropy,
        chances,
    ),
    Case(
        "sigmoid_cross_entropy",
        "copy(logits)",
        F.binary_cross_entropy_with_logits,
        chances,
    ),
    Case(
        "categorical_cross_entropy",
        "copy(softmax(logits))",
        lambda x, y: -(y * x.log()).sum(1).mean(),
        shares,
    ),
    Case("softmax_cross_entropy", "copy(logits)", F.cross_entropy, shares),
    Case(
        "softmax_cross_entropy_with_labels(label_smoothing = 0.1)",
        "copy(logits)",
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        classes,
    ),
    Case(
        "kullback_leibler(reduction = 'batchmean')",
        "log(softmax(logits))",
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        shares,
    ),
]
SQUARES = LOSSES[0]
EVERY: list[tuple[Case, str, Make]] = [
    *((case, "sgd", lambda p: torch.optim.SGD(p, lr=0.02)) for case in LOSSES),
    (SQUARES, "adagrad", lambda p: torch.optim.Adagrad(p, lr=0.02)),
    (
        SQUARES,
        "rmsprop(momentum = 0.5, centered = true)",
        lambda p: torch.optim.RMSprop(p, lr=0.02, momentum=0.5, centered=True),
    ),
    (SQUARES, "adam", lambda p: torch.optim.Adam(p, lr=0.02)),
    (
        SQUARES,
        "adamw(amsgrad = true)",
        lambda p: torch.optim.AdamW(p, lr=0.02, amsgrad=True),
    ),
    (
        SQUARES,
        "momentum(dampening = 0.1, weight_decay = 0.01)",
        lambda p: torch.optim.SGD(
            p, lr=0.02, momentum=0.9, dampening=0.1, weight_decay=0.01
        ),
    ),
    (
        SQUARES,
        "momentum(nesterov = true)",
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    ),
]


def mlp(case: Case) -> str:
    text = MLP.replace(
        "graph mlp", "extension KHR_enable_operator_expressions;\ngraph mlp"
    )
    return text.replace(
        "y = linear(hidden, weight2, bias2);",
        "logits = linear(hidden, weight2, bias2);\n    y = " + case.ends + ";",
    )


def feeds_of(case: Case) -> list[dict[str, Array]]:
    """Targets that the inputs tell."""
    return [
        {"x": b["x"], "target_y": case.target(b["x"][:, :3])} for b in batches(STEPS)
    ]


@cache
def expected(index: int) -> tuple[list[float], dict[str, Array]]:
    """The losses of torch, and the variables in the end."""
    case, _, make = EVERY[index]
    peer = TextPeer(
        mlp(case), DATA, lambda tensors, fed: case.peer(tensors["y"], fed["target_y"])
    )
    optimizer = make([*peer.parameters.values()])
    losses = []
    for feeds in feeds_of(case):
        optimizer.zero_grad()
        loss = peer.loss(feeds)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {k: v.detach().numpy() for k, v in peer.parameters.items()}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "index",
    range(len(EVERY)),
    ids=[f"{case.recipe}-{recipe}" for case, recipe, _ in EVERY],
)
def test_every_loss_and_every_optimizer(index: int, runtime: str) -> None:
    needs(runtime)
    case, recipe, _ = EVERY[index]
    step = nnef_grad.training_step(
        nnef_grad.loads(mlp(case)),
        loss=case.recipe,
        optimizer=recipe,
        learning_rate=0.02,
        data=DATA,
    )
    training = nnef_grad.training.run(step, feeds_of(case), runtime=runtime)
    losses, values = expected(index)
    assert list(training) == pytest.approx(losses, rel=TOLERANCE)
    for label, wanted in values.items():
        error = np.abs(training.data[label] - wanted).max() / np.abs(wanted).max()
        assert error < TOLERANCE, label


@pytest.mark.parametrize("target", ["nnef", "tract", "tract-standard", "portable"])
def test_data_in_double_precision_beside_a_frozen_variable(
    target: str, tmp_path: Path
) -> None:
    """tract multiplies no matrices of different precisions."""
    pytest.importorskip("tract")
    graph = nnef_grad.loads(MLP)
    double = {k: v + 1e-12 for k, v in random_data(graph).items()}
    frozen = next(iter(double))
    step = nnef_grad.training_step(
        graph, loss="huber", optimizer="adam", learning_rate=0.01, data=double,
        freeze=frozen, target=target,
    )  # fmt: skip
    (warning,) = step.warnings
    assert warning.startswith("files store in single precision the data of")
    found, wanted = (
        list(nnef_grad.training.run(step, batches(3), runtime=name))
        for name in ("tract", "numpy")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    nnef_grad.training.save_step(step, tmp_path / "step")
    stored = nnef_grad.load_data(tmp_path / "step")
    assert {np.asarray(v).dtype for v in stored.values()} == {np.dtype(np.float32)}


def test_data_of_another_kind_are_refused() -> None:
    graph = nnef_grad.loads(MLP)
    words = {k: np.full(v.shape, "one") for k, v in random_data(graph).items()}
    with pytest.raises(nnef_grad.UsageError, match="and its data are <U3"):
        nnef_grad.training_step(graph, loss="huber", optimizer="sgd", data=words)
