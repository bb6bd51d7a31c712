"""What a step does besides: penalties, clipping, accumulation, the scale of the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.training_steps import (
    MLP,
    Evaluated,
    Peer,
    assert_near,
    batches,
    mean_squared,
    own,
    random_data,
)

import nnef_grad
from nnef_grad.training.losses import matrices

Array = Any
Tensors = Mapping[str, torch.Tensor]
GRAPH = nnef_grad.loads(MLP)
DATA = random_data(GRAPH)
STEPS = 20
SCALES = (1.0, 1024.0, 0.25, 65536.0)


def trained(optimizer: str = "momentum", **options: Any) -> nnef_grad.Step:
    return nnef_grad.training_step(
        GRAPH,
        loss="mean_squared_error",
        optimizer=optimizer,
        data=DATA,
        learning_rate=0.05,
        **options,
    )


def momentum(peer: Peer) -> torch.optim.Optimizer:
    return torch.optim.SGD(peer.parameters.values(), lr=0.05, momentum=0.9)


Change = Callable[[Peer], object]


def unchanged(peer: Peer) -> None:
    """The gradients stay as they are."""


def compare(step: nnef_grad.Step, change: Change, **rates: float) -> Evaluated:
    """Trains beside torch, whose gradients a function changes."""
    peer, evaluated = Peer(MLP, DATA, mean_squared), Evaluated(step)
    optimizer = momentum(peer)
    for feeds in batches(STEPS):
        optimizer.zero_grad()
        peer.loss(feeds).backward()
        change(peer)
        optimizer.step()
        evaluated(feeds, **rates)
    assert_near(evaluated.values, peer.parameters)
    return evaluated


# ---- Clipping ----


def clip_norm(bound: float) -> Change:
    return lambda peer: torch.nn.utils.clip_grad_norm_(peer.parameters.values(), bound)


def clip_value(bound: float) -> Change:
    return lambda peer: torch.nn.utils.clip_grad_value_(peer.parameters.values(), bound)


# Without bounds the largest element is about 0.5, and the norm 1.4 to 2.5.
@pytest.mark.parametrize("bound", [0.05, 1.8, 100.0])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_norm_is_bounded(bound: float, scaled: bool) -> None:
    step = trained(clip_norm=bound, loss_scale=scaled)
    compare(step, clip_norm(bound), loss_scale=128.0)


@pytest.mark.parametrize("bound", [0.01, 0.2, 100.0])
def test_each_element_is_bounded(bound: float) -> None:
    compare(trained(clip_value=bound), clip_value(bound))


def test_first_the_elements_then_the_norm() -> None:
    def both(peer: Peer) -> None:
        clip_value(0.1)(peer)
        clip_norm(0.2)(peer)

    compare(trained(clip_value=0.1, clip_norm=0.2), both)


def test_a_norm_of_zero() -> None:
    """Targets that are hit have no gradient, and zero is divided by nothing."""
    step = trained(own("gradient_itself"), clip_norm=1.0)
    feeds = batches(1)[0]
    y = nnef_grad.evaluate(GRAPH, {"x": feeds["x"]}, DATA)["y"]
    evaluated = Evaluated(step)
    evaluated({**feeds, "target_y": y})
    assert not any(evaluated.values[label].any() for label in DATA)


# ---- Penalties ----


def penalized(factors: Mapping[str, float]) -> Callable[[Peer], None]:
    def change(peer: Peer) -> None:
        for label, factor in factors.items():
            parameter = peer.parameters[label]
            assert parameter.grad is not None
            parameter.grad += factor * parameter.detach()

    return change


WEIGHTS = {"layer1/weight": 0.1, "layer2/weight": 0.1}


@pytest.mark.parametrize(
    ("l2", "factors"),
    [
        (0.1, WEIGHTS),
        ({"*/weight": 0.1}, WEIGHTS),
        ({"bias1": 0.5, "layer2/*": 0.25}, {"layer1/bias": 0.5, "layer2/weight": 0.25}),
    ],
)
def test_a_penalty_is_a_decay(l2: Any, factors: Mapping[str, float]) -> None:
    if "layer1/bias" in factors:
        factors = {**factors, "layer2/bias": 0.25}
    compare(trained(l2=l2), penalized(factors))


def test_a_penalty_is_a_part_of_the_loss() -> None:
    feeds = batches(1)[0]
    losses = [
        float(Evaluated(trained(l2=l2))(feeds)["loss"])
        for l2 in (0.0, 0.1, {"layer1/weight": 0.1})
    ]
    weights = [(DATA[f"layer{n}/weight"] ** 2).sum() for n in (1, 2)]
    assert losses[1] - losses[0] == pytest.approx(0.05 * sum(weights), rel=1e-12)
    assert losses[2] - losses[0] == pytest.approx(0.05 * weights[0], rel=1e-12)


def test_what_is_frozen_has_no_penalty() -> None:
    feeds = batches(1)[0]
    losses = [
        float(Evaluated(trained(l2=l2, train=["layer2/*"]))(feeds)["loss"])
        for l2 in (0.0, 0.1)
    ]
    weight = (DATA["layer2/weight"] ** 2).sum()
    assert losses[1] - losses[0] == pytest.approx(0.05 * weight, rel=1e-12)


KINDS = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [2, 1, 4, 4]);
    filter = variable(shape = [1, 1, 3, 3], label = 'filter');
    point = variable(shape = [1, 1, 1, 1], label = 'point');
    bias = variable(shape = [1, 1], label = 'bias');
    mean = variable(shape = [1, 1], label = 'mean');
    variance = variable(shape = [1, 1], label = 'variance');
    offset = variable(shape = [1, 1], label = 'offset');
    scale = variable(shape = [1, 1], label = 'scale');
    row = variable(shape = [1, 16], label = 'row');
    slopes = variable(shape = [1, 16], label = 'slopes');
    table = variable(shape = [3, 16], label = 'table');
    conv1 = conv(x, filter, bias);
    conv2 = conv(conv1, point);
    norm = batch_normalization(conv2, mean, variance, offset, scale, epsilon = 1e-5);
    flat = reshape(norm, shape = [2, 16]);
    bent = prelu(flat, slopes);
    product = matmul(bent, row, transposeB = true);
    y = add(product, sum_reduce(table, axes = [0, 1]));
}
"""


def test_filters_and_matrices_are_told_from_biases_and_scales() -> None:
    assert [*matrices(nnef_grad.loads(KINDS))] == ["filter", "point", "row", "table"]


# ---- Accumulation ----


@pytest.mark.parametrize("state", ["variables", "inputs"])
@pytest.mark.parametrize("count", [2, 3])
def test_gradients_of_several_batches(count: int, state: Any) -> None:
    step = trained(accumulate=count, clip_norm=0.5, l2=0.1, state=state)
    peer, evaluated = Peer(MLP, DATA, mean_squared), Evaluated(step)
    optimizer = momentum(peer)
    for number, feeds in enumerate(batches(5 * count + 1)):
        before = {k: v.copy() for k, v in evaluated.values.items()}
        (peer.loss(feeds) / count).backward()
        evaluated(feeds)
        if (number + 1) % count == 0:
            penalized(WEIGHTS)(peer)
            clip_norm(0.5)(peer)
            optimizer.step()
            optimizer.zero_grad()
            sums = [evaluated.values[f"{label}/gradients"] for label in DATA]
            assert not any(total.any() for total in sums)
        else:
            assert all((evaluated.values[k] == before[k]).all() for k in DATA)
        assert_near(evaluated.values, peer.parameters)


def test_what_is_added_is_the_sum_of_gradients() -> None:
    step, peer = trained(accumulate=4), Peer(MLP, DATA, mean_squared)
    evaluated = Evaluated(step)
    for feeds in batches(3):
        peer.loss(feeds).backward()
        evaluated(feeds)
    gradients = {f"{k}/gradients": p.grad for k, p in peer.parameters.items()}
    assert_near(evaluated.values, {k: g for k, g in gradients.items() if g is not None})


def test_the_pair_of_documents() -> None:
    step = nnef_grad.training_step(
        GRAPH,
        loss="mean_squared_error",
        optimizer="adam",
        data=DATA,
        accumulate=2,
        state="inputs",
    )
    apply = step.apply
    assert apply is not None
    names = ["weight1", "bias1", "weight2", "bias2"]
    sums = [f"{name}_gradients" for name in names]
    assert step.inputs == ("x", "target_y", *names, *sums)
    assert step.outputs == ("loss", *(f"new_{name}" for name in sums))
    assert apply.inputs[:5] == ("learning_rate", *names)
    assert {*sums} < {*apply.inputs[5:]}
    assert apply.outputs[:4] == tuple(f"new_{name}" for name in names)
    assert (step.accumulate, step.state) == (2, {n: f"new_{n}" for n in sums})


@pytest.mark.parametrize("label", ["w/second_moment", "w/gradients", "W/First_Moment"])
def test_state_is_not_kept_where_a_frozen_variable_is(label: str) -> None:
    """Values are kept by label: those of the step that uses the sums, too."""

    def losses(label: str) -> list[float]:
        text = f"""version 1.0;
        graph net( x ) -> ( y )
        {{
            x = external(shape = [4, 3]);
            w = variable(shape = [2, 3], label = 'w');
            f = variable(shape = [2, 3], label = '{label}');
            y = linear(x, mul(w, f), 0.0);
        }}"""
        random = np.random.default_rng(0)
        data = {k: random.standard_normal((2, 3)) for k in ("w", label)}
        step = nnef_grad.training_step(
            nnef_grad.loads(text),
            loss="mean_squared_error",
            optimizer="adam",
            learning_rate=0.1,
            accumulate=2,
            data=data,
            freeze=[label],
        )
        fed = [
            [random.standard_normal(shape) for shape in ((4, 3), (4, 2))]
            for _ in range(6)
        ]
        training = nnef_grad.training.run(step, fed, runtime="numpy")
        found = [float(loss) for loss in training]
        np.testing.assert_array_equal(training.data[label], data[label])
        return found

    assert losses(label) == losses("frozen")


def test_a_step_without_inputs_is_run_and_not_written(tmp_path: Path) -> None:
    step = trained(accumulate=2)
    assert step.apply is not None
    assert step.apply.inputs == ()
    with pytest.raises(nnef_grad.UsageError, match="without a fixed learning rate"):
        nnef_grad.training.save_step(step, tmp_path / "step")
    assert not (tmp_path / "step").exists()
    text = nnef_grad.dumps(replace(step.apply.graph, inputs=GRAPH.inputs))
    assert "update(" in text


# ---- Numbers ----


def test_integers_are_numbers() -> None:
    settings: dict[str, Any] = {"clip_norm": 1, "clip_value": 2**40, "l2": 1}
    rates: tuple[Any, Any] = (1, 1.0)
    texts = [
        nnef_grad.dumps(
            nnef_grad.training_step(
                GRAPH, loss="huber", optimizer="sgd", learning_rate=rate, **settings
            ).graph
        )
        for rate in rates
    ]
    assert texts[0] == texts[1]
    nnef_grad.loads(texts[0])


@pytest.mark.parametrize(
    "settings",
    [
        *({what: value} for what in ("learning_rate", "clip_norm", "clip_value")
          for value in (0, -1.0, float("inf"), float("nan"), 10**400)),
        *({"l2": value} for value in (-1.0, float("inf"), float("nan"), 10**400)),
        {"l2": {"weight1": -1.0}}, {"accumulate": 0}, {"accumulate": 10**400},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_say_nothing(settings: dict[str, Any]) -> None:
    given = {"learning_rate": 0.1, **settings}
    with pytest.raises(nnef_grad.UsageError):
        nnef_grad.training_step(GRAPH, loss="huber", optimizer="sgd", **given)


# ---- The scale of the loss ----


@pytest.mark.parametrize("state", ["variables", "inputs"])
@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_changes_nothing(scale: float, state: Any) -> None:
    step = trained(loss_scale=True, l2=0.1, state=state)
    assert step.outputs[-1] == "is_finite"
    compare(step, penalized(WEIGHTS), loss_scale=scale)


def test_the_inputs_of_a_step_with_a_scale() -> None:
    step = nnef_grad.training_step(
        GRAPH, loss="huber", optimizer="adam", loss_scale=True, state="inputs"
    )
    assert step.inputs[:5] == (
        *("x", "target_y"),
        *("learning_rate", "loss_scale", "weight1"),
    )


@pytest.mark.parametrize("state", ["variables", "inputs"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_batch_with_a_gradient_that_is_no_number_changes_nothing(
    bad: float, count: int, state: Any
) -> None:
    step = trained(
        "adam(amsgrad = true)",
        loss_scale=True,
        clip_norm=1.0,
        accumulate=count,
        state=state,
    )
    good, broken, further = batches(3)
    # One element of a gradient alone is no number.
    broken["target_y"][0, 1] = bad
    with_it, without_it = Evaluated(step), Evaluated(step)
    assert with_it(good, loss_scale=64.0)["is_finite"] == 1.0
    before = {k: v.copy() for k, v in with_it.values.items()}
    if count > 1:
        # So that no gradients are due to be used.
        with_it.count = 0
    with np.errstate(all="ignore"):
        assert with_it(broken, loss_scale=64.0)["is_finite"] == 0.0
    assert with_it.values.keys() == before.keys()
    assert all((with_it.values[k] == before[k]).all() for k in before)
    for evaluated in (with_it, without_it):
        feeds = [further] if evaluated is with_it else [good, further]
        for batch in feeds:
            assert evaluated(batch, loss_scale=64.0)["is_finite"] == 1.0
    assert all((with_it.values[k] == v).all() for k, v in without_it.values.items())
    assert any((with_it.values[k] != DATA[k]).any() for k in DATA)


def test_a_scale_that_is_too_large_in_single_precision() -> None:
    """Gradients overflow, and nothing changes; with a smaller one they do not."""
    step = trained(loss_scale=True, state="inputs")
    feeds = {**batches(1)[0], **{name: step.data[name] for name in step.labels}}
    feeds["target_y"] = 1e3 * feeds["target_y"]
    for scale, is_finite in ((1e38, 0.0), (1e4, 1.0)):
        found = nnef_grad.evaluate(
            step.graph, {**feeds, "loss_scale": np.float32(scale)}, dtype=np.float32
        )
        assert found["is_finite"] == is_finite
        same = found["new_weight1"] == np.float32(DATA["layer1/weight"])
        assert same.all() == (not is_finite)
