"""Private steps: gradients clipped for each example, and noise, against Opacus' formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support import reference
from support.training_steps import (
    MLP,
    Evaluated,
    assert_near,
    batches,
    batches_of_images,
    needs,
    network,
    network_data,
    random_data,
)

import nnef_grad
from nnef_grad.training import draw_noise, run

Array = Any
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
GRAPH = nnef_grad.loads(MLP)
DATA = random_data(GRAPH)
OPEN = MLP.replace("[4, 5]", "[n, 5]").replace(
    "version 1.0;", "version 1.0;\nextension tract_symbol n;"
)


class Peer:
    """A model that torch trains by DP-SGD, by the formulas of Opacus' DPOptimizer."""

    def __init__(self, bound: float, noise: float, loss: Loss, of_sum: bool) -> None:
        self.bound, self.noise, self.loss, self.of_sum = bound, noise, loss, of_sum
        self.parameters = {k: torch.tensor(v).requires_grad_() for k, v in DATA.items()}
        self.optimizer = torch.optim.SGD(self.parameters.values(), 0.05, momentum=0.9)
        self.summed = {k: torch.zeros_like(p) for k, p in self.parameters.items()}
        self.count = 0
        self.factors: list[float] = []

    def add(self, feeds: Mapping[str, Array]) -> float:
        """Adds the clipped gradients of a batch up; returns its loss."""
        fed = {name: torch.as_tensor(value) for name, value in feeds.items()}
        y, target = reference.evaluate(MLP, fed, self.parameters)["y"], fed["target_y"]
        losses = [self.loss(y[i], target[i]) for i in range(len(y))]
        for loss in losses:
            gradients = torch.autograd.grad(
                loss, [*self.parameters.values()], retain_graph=True
            )
            norm = torch.stack([g.norm(2) for g in gradients]).norm(2)
            factor = (self.bound / (norm + 1e-6)).clamp(max=1.0)
            self.factors.append(factor.item())
            for total, gradient in zip(self.summed.values(), gradients, strict=True):
                total += factor * gradient
        self.count += 1 if self.of_sum else len(losses)
        total = float(torch.stack(losses).sum().detach())
        return total if self.of_sum else total / len(losses)

    def step(self, noise: Mapping[str, Array], batches: int = 1) -> None:
        """Uses the sums, with noise by label."""
        count = batches if self.of_sum else self.count
        for label, parameter in self.parameters.items():
            drawn = torch.as_tensor(noise[label]) * self.noise * self.bound
            parameter.grad = (self.summed[label] + drawn) / count
            self.summed[label].zero_()
        self.count = 0
        self.optimizer.step()


def trained(text: str = MLP, **options: Any) -> nnef_grad.Step:
    settings = {
        "loss": "mean_squared_error", "optimizer": "momentum", "learning_rate": 0.05, "data": DATA,
    }  # fmt: skip
    return nnef_grad.training_step(nnef_grad.loads(text), **{**settings, **options})


def noise_of(step: nnef_grad.Step, seed: int) -> tuple[dict[str, Array], Any]:
    """Noise by the names of inputs, and by labels."""
    drawn = draw_noise(step, np.random.default_rng(seed))
    labels = {
        name: GRAPH.labels[name.removeprefix("noise_")] for name in step.noise
    }  # fmt: skip
    return drawn, {labels[name]: value for name, value in drawn.items()}


LOSSES: dict[str, Loss] = {
    "mean": F.mse_loss,
    "sum": lambda y, t: F.mse_loss(y, t, reduction="sum"),
    "batchmean": lambda y, t: F.mse_loss(y, t, reduction="sum"),
}


# Whether the examples are clipped: all, some, none.
CLIPPED = {0.05: {True}, 1.0: {True, False}, 100.0: {False}}


@pytest.mark.parametrize("bound", CLIPPED)
@pytest.mark.parametrize("reduction", LOSSES)
@pytest.mark.parametrize("text", [MLP, OPEN], ids=["closed", "open"])
def test_twenty_steps(text: str, reduction: str, bound: float) -> None:
    loss = f"mean_squared_error(reduction = '{reduction}')"
    noise = 0.1 / bound
    step = trained(text, loss=loss, clip_per_example=bound, noise=noise)
    peer = Peer(bound, noise, LOSSES[reduction], reduction == "sum")
    evaluated = Evaluated(step)
    for number, feeds in enumerate(batches(20)):
        drawn, by_label = noise_of(step, number)
        wanted = peer.add(feeds)
        peer.step(by_label)
        found = evaluated({**feeds, **drawn})
        assert float(found["loss"]) == pytest.approx(wanted, rel=1e-12)
    assert_near(evaluated.values, peer.parameters)
    if reduction == "mean":
        assert {factor < 1.0 for factor in peer.factors} == CLIPPED[bound]


@pytest.mark.parametrize("state", ["variables", "inputs"])
def test_noise_is_added_once_for_several_batches(state: Any) -> None:
    step = trained(clip_per_example=0.7, noise=0.3, accumulate=3, state=state)
    assert step.apply is not None
    assert (step.noise, len(step.apply.noise)) == ((), 4)
    peer, evaluated = Peer(0.7, 0.3, F.mse_loss, of_sum=False), Evaluated(step)
    for number, feeds in enumerate(batches(9)):
        peer.add(feeds)
        evaluated._run(step, feeds, {})
        if number % 3 == 2:
            drawn, noise = noise_of(step.apply, number)
            evaluated._run(step.apply, drawn, {})
            peer.step(noise, batches=3)
    assert_near(evaluated.values, peer.parameters)


def test_without_noise_there_is_no_input_for_it() -> None:
    step = trained(clip_per_example=0.05)
    assert step.noise == ()
    assert step.inputs == ("x", "target_y")
    summed, private = Evaluated(trained()), Evaluated(trained(clip_per_example=1e9))
    for feeds in batches(5):
        summed(feeds)
        private(feeds)
    pairs = summed.values.items()
    assert all(np.allclose(v, private.values[k], rtol=1e-12) for k, v in pairs)


def test_examples_without_labels_have_no_gradient() -> None:
    """Of the others, each has the mean of what counts in it, as in a batch of one."""
    text = """version 1.0;

    graph words( x ) -> ( y )
    {
        x = external(shape = [3, 2, 4]);
        weight = variable(shape = [1, 2, 5], label = 'weight');
        y = matmul(weight, x, transposeA = true);
    }
    """
    generator = np.random.default_rng(0)
    data = {"weight": generator.standard_normal((1, 2, 5))}
    settings: dict[str, Any] = {
        "learning_rate": 1.0,
        "data": data,
        "clip_per_example": 0.3,
    }
    loss = "softmax_cross_entropy_with_labels(axis = 1)"
    step = nnef_grad.training_step(
        nnef_grad.loads(text), loss=loss, optimizer="sgd", **settings
    )
    feeds = {
        "x": generator.standard_normal((3, 2, 4)),
        "target_y": generator.integers(0, 5, (3, 4)),
    }
    feeds["target_y"][0] = -100
    feeds["target_y"][1, 2:] = -100
    weight, total = torch.tensor(data["weight"]).requires_grad_(), torch.zeros(1, 2, 5)
    wanted = torch.zeros((), dtype=torch.float64)
    for x, labels in zip(feeds["x"][1:], feeds["target_y"][1:], strict=True):
        y = weight.mT @ torch.tensor(x)
        loss = F.cross_entropy(y, torch.tensor(labels)[None])
        (gradient,) = torch.autograd.grad(loss, weight)
        total = total + gradient * (0.3 / (gradient.norm() + 1e-6)).clamp(max=1.0)
        wanted = wanted + loss / 3
    evaluated = Evaluated(step)
    found = evaluated(feeds)
    assert float(found["loss"]) == pytest.approx(wanted.item(), rel=1e-12)
    assert_near(evaluated.values, {"weight": weight - total / 3})


# ---- In runtimes ----


def private(**options: Any) -> nnef_grad.Step:
    return nnef_grad.training_step(
        network(), loss="softmax_cross_entropy_with_labels", optimizer="adam(eps = 1e-4)",
        data=network_data(), learning_rate=0.01, clip_per_example=0.5, noise=0.2, **options,
    )  # fmt: skip


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "tract", "khronos"])
def test_the_same_steps_in_every_runtime(runtime: str) -> None:
    needs(runtime)
    target = {"onnxruntime": "onnx", "tract": "tract"}.get(runtime, "nnef")
    found, wanted = (
        run(step, batches_of_images(10), runtime=name, noise_seed=3)
        for step, name in ((private(target=target), runtime), (private(), "numpy"))
    )
    assert np.allclose([*found], [*wanted], rtol=1e-4)
    for label, value in wanted.data.items():
        assert np.allclose(found.data[label], value, atol=1e-4), label


def test_noise_goes_on_after_a_checkpoint(tmp_path: Any) -> None:
    step, images = private(), batches_of_images(6)
    settings: dict[str, Any] = {"runtime": "numpy", "noise_seed": 3}
    whole = run(step, images, **settings)
    losses = [*whole]
    first = run(step, images[:4], checkpoint=tmp_path / "first", **settings)
    second_settings = {"resume": tmp_path / "first", **settings}
    assert [*first] == losses[:4]
    second = run(step, images[4:], **second_settings)
    assert [*second] == losses[4:]


def test_nobody_repeats_noise_without_a_seed() -> None:
    step, images = private(), batches_of_images(3)
    first, second = (run(step, images, runtime="numpy") for _ in range(2))
    begin = [next(training) for training in (first, second)]
    assert begin[0] == begin[1]
    assert not np.array_equal(first.data["linear/weight"], second.data["linear/weight"])


def test_noise_is_standard_normal() -> None:
    text = MLP.replace("6", "600")
    drawn = draw_noise(trained(text, data={}, clip_per_example=1.0, noise=9.0))
    every = np.concatenate([value.ravel() for value in drawn.values()])
    assert len(every) == 600 * 5 + 600 + 3 * 600 + 3
    assert abs(every.mean()) < 0.1
    assert abs(every.std() - 1) < 0.1


# ---- What is refused ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 1.0}, "noise hides an example whose gradient has a largest norm: give clip_per_example"),
        ({"clip_per_example": 0.0}, "the largest norm of an example must be a positive number, not 0.0"),
        ({"clip_per_example": 1.0, "noise": -1.0}, "the noise must be a positive number, not -1.0"),
        ({"clip_per_example": 1.0, "l2": 0.1}, "an l2 penalty is of no example: give the optimizer a weight_decay"),
        ({"clip_per_example": 1.0, "loss_scale": True}, "the losses of single examples have no loss scale"),
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        trained(**options)
    assert caught.value.message == message


def test_an_open_batch_is_not_accumulated() -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        trained(OPEN, clip_per_example=1.0, accumulate=2)
    assert caught.value.message == (
        "gradients of several batches of examples are averaged if the batch has a number"
        " of them, and not n"
    )


def test_losses_of_two_kinds() -> None:
    losses = {"y": "huber", "hidden": "huber(reduction = 'sum')"}
    with pytest.raises(nnef_grad.UsageError) as caught:
        trained(loss=losses, clip_per_example=1.0)
    assert caught.value.message == (
        "the losses of an example are all added up over the batch, or none: give all of"
        " them the reduction 'sum'"
    )


def test_statistics_of_the_batch_have_no_privacy() -> None:
    with pytest.raises(nnef_grad.NoDerivativeError) as caught:
        private(batch_statistics=0.1)
    assert "the examples of the batch meet in 'moments'" in caught.value.message
