"""Optimizers: the variables after 20 steps against torch.optim in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.training_steps import (
    MLP,
    Evaluated,
    Optimizer,
    Peer,
    assert_near,
    batches,
    mean_squared,
    own,
    random_data,
)

import nnef_grad
from nnef_grad.training.recipes import OPTIMIZER, _built_in

Array = Any
GRAPH = nnef_grad.loads(MLP)
DATA = random_data(GRAPH)
STEPS = 20
# A training that runs away makes of the last bit any number.
RATE = 0.02


def compare(
    step: nnef_grad.Step,
    optimizer: torch.optim.Optimizer,
    peer: Peer,
    schedule: Callable[[int], float] | None = None,
) -> Evaluated:
    """Compares the losses of some steps, and the variables after them."""
    evaluated = Evaluated(step)
    for number, feeds in enumerate(batches(STEPS)):
        rates = {"learning_rate": schedule(number)} if schedule else {}
        for group in optimizer.param_groups if schedule else ():
            group["lr"] = rates["learning_rate"]
        optimizer.zero_grad()
        loss = peer.loss(feeds)
        loss.backward()
        optimizer.step()
        reports = evaluated(feeds, **rates)
        assert float(reports["loss"]) == pytest.approx(loss.item(), rel=1e-12)
    assert_near(evaluated.values, peer.parameters)
    return evaluated


def trained(recipe: str, **options: Any) -> nnef_grad.Step:
    return nnef_grad.training_step(
        GRAPH, loss="mean_squared_error", optimizer=recipe, data=DATA, **options
    )


def fresh_peer(labels: Sequence[str] | None = None) -> Peer:
    return Peer(MLP, DATA, mean_squared, labels)


def sgd(**settings: Any) -> Optimizer:
    return lambda p: torch.optim.SGD(p, **{"lr": RATE, **settings})


def adagrad(**settings: Any) -> Optimizer:
    return lambda p: torch.optim.Adagrad(p, **{"lr": RATE, **settings})


def rmsprop(**settings: Any) -> Optimizer:
    return lambda p: torch.optim.RMSprop(p, **{"lr": RATE, **settings})


def adam(**settings: Any) -> Optimizer:
    return lambda p: torch.optim.Adam(p, **{"lr": RATE, **settings})


def adamw(**settings: Any) -> Optimizer:
    return lambda p: torch.optim.AdamW(p, **{"lr": RATE, **settings})


def momentum(**settings: Any) -> Optimizer:
    return sgd(**{"momentum": 0.9, **settings})


# Each setting alone, and several at once.
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": sgd(),
    "sgd(weight_decay = 0.1)": sgd(weight_decay=0.1),
    "sgd(maximize = true)": sgd(maximize=True),
    "sgd(weight_decay = 0.1, maximize = true)": sgd(weight_decay=0.1, maximize=True),
    "momentum": momentum(),
    "momentum(momentum = 0.5)": momentum(momentum=0.5),
    "momentum(dampening = 0.3)": momentum(dampening=0.3),
    "momentum(weight_decay = 0.1)": momentum(weight_decay=0.1),
    "momentum(nesterov = true)": momentum(nesterov=True),
    "momentum(maximize = true)": momentum(maximize=True),
    "momentum(nesterov = true, weight_decay = 0.01, maximize = true)": momentum(
        nesterov=True, weight_decay=0.01, maximize=True
    ),
    "momentum(momentum = 0.8, dampening = 0.5, weight_decay = 0.01)": momentum(
        momentum=0.8, dampening=0.5, weight_decay=0.01
    ),
    "adagrad": adagrad(),
    "adagrad(lr_decay = 0.1)": adagrad(lr_decay=0.1),
    "adagrad(weight_decay = 0.1)": adagrad(weight_decay=0.1),
    "adagrad(initial_accumulator_value = 0.3)": adagrad(initial_accumulator_value=0.3),
    "adagrad(eps = 0.1)": adagrad(eps=0.1),
    "adagrad(maximize = true)": adagrad(maximize=True),
    "adagrad(lr_decay = 0.1, initial_accumulator_value = 0.3, eps = 1e-3)": adagrad(
        lr_decay=0.1, initial_accumulator_value=0.3, eps=1e-3
    ),
    "rmsprop": rmsprop(),
    "rmsprop(alpha = 0.5)": rmsprop(alpha=0.5),
    "rmsprop(eps = 0.1)": rmsprop(eps=0.1),
    "rmsprop(weight_decay = 0.1)": rmsprop(weight_decay=0.1),
    "rmsprop(momentum = 0.9)": rmsprop(momentum=0.9),
    "rmsprop(centered = true)": rmsprop(centered=True),
    "rmsprop(maximize = true)": rmsprop(maximize=True),
    "rmsprop(momentum = 0.9, centered = true, alpha = 0.9)": rmsprop(
        momentum=0.9, centered=True, alpha=0.9
    ),
    "adam": adam(),
    "adam(beta1 = 0.5)": adam(betas=(0.5, 0.999)),
    "adam(beta2 = 0.5)": adam(betas=(0.9, 0.5)),
    "adam(eps = 0.1)": adam(eps=0.1),
    "adam(weight_decay = 0.1)": adam(weight_decay=0.1),
    "adam(amsgrad = true, beta2 = 0.5)": adam(amsgrad=True, betas=(0.9, 0.5)),
    "adam(maximize = true)": adam(maximize=True),
    "adam(beta1 = 0.0)": adam(betas=(0.0, 0.999)),
    "adamw": adamw(),
    "adamw(beta1 = 0.5, beta2 = 0.9)": adamw(betas=(0.5, 0.9)),
    "adamw(eps = 0.1)": adamw(eps=0.1),
    "adamw(weight_decay = 0.5)": adamw(weight_decay=0.5),
    "adamw(weight_decay = 0.0)": adamw(weight_decay=0.0),
    "adamw(amsgrad = true, beta2 = 0.5)": adamw(amsgrad=True, betas=(0.9, 0.5)),
    "adamw(maximize = true)": adamw(maximize=True),
}


def rising(number: int) -> float:
    return 0.002 * (number + 1)


@pytest.mark.parametrize("recipe", OPTIMIZERS)
def test_the_learning_rate_is_a_number(recipe: str) -> None:
    step, peer = trained(recipe, learning_rate=RATE), fresh_peer()
    assert "learning_rate" not in step.inputs
    compare(step, OPTIMIZERS[recipe]([*peer.parameters.values()]), peer)


@pytest.mark.parametrize("recipe", OPTIMIZERS)
def test_the_learning_rate_is_an_input(recipe: str) -> None:
    step, peer = trained(recipe, state="inputs"), fresh_peer()
    assert step.inputs[:3] == ("x", "target_y", "learning_rate")
    optimizer = OPTIMIZERS[recipe]([*peer.parameters.values()])
    compare(step, optimizer, peer, rising)


DEFAULTS = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
HELPERS = {"adam_change", "moved", "with_decay"}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_torch(name: str) -> None:
    (group,) = DEFAULTS[name]([torch.zeros(1)]).param_groups
    ours = _built_in(OPTIMIZER.file)[name].defaults
    beta1, beta2 = group.get("betas", (None, None))
    known = {
        "beta1": beta1,
        "beta2": beta2,
        "initial_accumulator_value": 0,
        **group,
    }
    assert ours == {key: known[key] for key in ours}


def test_all_optimizers_and_all_settings_are_compared() -> None:
    file = _built_in(OPTIMIZER.file)
    for name in {*file} - HELPERS:
        recipes = [r for r in OPTIMIZERS if r.partition("(")[0] == name]
        assert recipes
        for setting in file[name].defaults:
            assert any(f"{setting} =" in recipe for recipe in recipes), setting


# ---- State ----


@pytest.mark.parametrize(
    ("recipe", "kept"),
    [
        ("sgd", set()),
        ("momentum", {"velocity"}),
        ("momentum(dampening = 0.1)", {"velocity"}),
        ("adagrad", {"sum"}),
        ("rmsprop", {"square_average"}),
        ("rmsprop(centered = true)", {"square_average", "average"}),
        ("rmsprop(momentum = 0.1)", {"square_average", "velocity"}),
        ("adam", {"first_moment", "second_moment"}),
        ("adam(amsgrad = true)", {"first_moment", "second_moment", "largest"}),
    ],
)
def test_state_that_nothing_depends_on_is_not_kept(recipe: str, kept: set[str]) -> None:
    step = trained(recipe, learning_rate=RATE)
    labels = {*step.labels.values()} - {*DATA}
    assert {f"{label}/{name}" for label in DATA for name in kept} == {
        label for label in labels if label.startswith("layer")
    }
    assert all(not step.data[label].any() for label in labels)


@pytest.mark.parametrize(
    ("recipe", "shared"),
    [
        ("momentum(dampening = 0.1)", {"momentum/started"}),
        ("adagrad(lr_decay = 0.1)", {"adagrad/steps"}),
        ("adam", {"adam/correction1", "adam/correction2"}),
    ],
)
def test_state_of_no_variable_is_shared(recipe: str, shared: set[str]) -> None:
    step = trained(recipe, learning_rate=RATE)
    assert shared == {k for k in step.labels.values() if not k.startswith("layer")}
    assert all(step.data[label].shape == () for label in shared)
    # It comes last.
    assert {*list(step.labels.values())[-len(shared) :]} == shared


def test_the_state_of_each_group_is_its_own() -> None:
    step = trained(
        "adam", learning_rate=RATE, groups={"layer2/*": {"beta1": 0.5}, "*1/w*": ""}
    )
    shared = {k for k in step.labels.values() if not k.startswith("layer")}
    assert shared == {
        *("adam/correction1", "adam/correction2"),
        *("adam_2/correction1", "adam_2/correction2"),
    }


# ---- Which variables, and how ----


def test_groups_are_those_of_torch() -> None:
    groups: Mapping[str, Any] = {
        "layer1/*": {"learning_rate": 0.02, "weight_decay": 0.1},
        "*/bias": "eps = 1e-3, amsgrad = true",
    }
    step, peer = trained("adam", learning_rate=RATE, groups=groups), fresh_peer()
    layer1 = {"lr": 0.02, "weight_decay": 0.1}
    bias = {"eps": 1e-3, "amsgrad": True}
    settings = {
        "layer1/weight": layer1,
        "layer1/bias": {**layer1, **bias},
        "layer2/weight": {},
        "layer2/bias": bias,
    }
    found = [{"params": [p], **settings[k]} for k, p in peer.parameters.items()]
    compare(step, torch.optim.Adam(found, lr=RATE), peer)


def test_a_group_has_a_learning_rate_beside_the_input() -> None:
    rate: Any = np.float32(0.5)
    step = trained("momentum", groups={"bias2": {"learning_rate": rate}})
    peer = fresh_peer()
    evaluated = Evaluated(step)
    parameters = dict(peer.parameters)
    bias = parameters.pop("layer2/bias")
    both = [
        torch.optim.SGD(parameters.values(), lr=RATE, momentum=0.9),
        torch.optim.SGD([bias], lr=0.5, momentum=0.9),
    ]
    for feeds in batches(STEPS):
        peer.loss(feeds).backward()
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()
        evaluated(feeds, learning_rate=RATE)
    assert_near(evaluated.values, peer.parameters)


def test_a_learning_rate_in_the_recipe_goes_before_the_option() -> None:
    step = trained("sgd(learning_rate = 0.5)", learning_rate=RATE)
    peer = fresh_peer()
    compare(step, torch.optim.SGD(peer.parameters.values(), lr=0.5), peer)


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({"train": ["layer1/*"]}, ["layer1/weight", "layer1/bias"]),
        ({"train": ["weight?"]}, ["layer1/weight", "layer2/weight"]),
        ({"freeze": ["layer1/*"]}, ["layer2/weight", "layer2/bias"]),
        ({"freeze": ["*/bias", "weight1"]}, ["layer2/weight"]),
        ({"train": ["*/bias"], "freeze": ["layer2/*"]}, ["layer1/bias"]),
    ],
)
def test_some_are_trained(options: Mapping[str, Any], labels: list[str]) -> None:
    step, peer = trained("adam", learning_rate=RATE, **options), fresh_peer(labels)
    chosen = [p for p in peer.parameters.values() if p.requires_grad]
    assert list(step.state) == [
        name for name in step.labels if step.labels[name] in labels
    ] + [name for name in step.labels if step.labels[name] not in labels]
    evaluated = compare(step, torch.optim.Adam(chosen, lr=RATE), peer)
    for label in set(DATA) - {*labels}:
        assert (evaluated.values[label] == DATA[label]).all()


def test_what_is_frozen_costs_nothing() -> None:
    """No operation of the backward graph is left of the first layer."""
    step = trained("sgd", learning_rate=RATE, train=["layer2/*"])
    assert not any("hidden" in name for name in step.graph.tensors if "grad" in name)
    assert [op.name for op in step.graph.operations].count("matmul") == 1


TIED = """version 1.0;
graph tied( x ) -> ( y )
{
    x = external(shape = [4, 5]);
    first = variable(shape = [5, 5], label = 'weight');
    second = variable(shape = [5, 5], label = 'Weight');
    bias = variable(shape = [1, 3], label = 'bias');
    hidden = tanh(matmul(x, first));
    part = slice(matmul(hidden, second), axes = [1], begin = [0], end = [3]);
    y = add(part, bias);
}
"""


@pytest.mark.parametrize("state", ["variables", "inputs"])
def test_two_variables_of_one_label_are_one(state: Any) -> None:
    """Labels are files: case does not tell them apart."""
    text = TIED.replace("'Weight'", "'weight'")
    graph = nnef_grad.loads(text)
    data = random_data(graph)
    peer = Peer(text, data, mean_squared)
    for model in (TIED, text):
        step = nnef_grad.training_step(
            nnef_grad.loads(model),
            loss="mean_squared_error",
            optimizer="adam",
            learning_rate=RATE,
            data=data,
            state=state,
        )
        assert list(step.state)[:2] == ["first", "bias"]
    compare(step, torch.optim.Adam(peer.parameters.values(), lr=RATE), peer)


# ---- Of one's own ----


def test_an_optimizer_of_ones_own() -> None:
    step, peer = trained(own("lion(beta1 = 0.8)"), learning_rate=0.01), fresh_peer()
    moments = {k: torch.zeros_like(p) for k, p in peer.parameters.items()}
    evaluated = Evaluated(step)
    for feeds in batches(STEPS):
        peer.loss(feeds).backward()
        with torch.no_grad():
            for label, parameter in peer.parameters.items():
                gradient = parameter.grad
                assert gradient is not None
                moment = moments[label]
                parameter -= 0.01 * torch.sign(0.8 * moment + (1.0 - 0.8) * gradient)
                moments[label] = 0.99 * moment + (1.0 - 0.99) * gradient
                parameter.grad = None
        evaluated(feeds)
    assert_near(evaluated.values, peer.parameters)
    found = {f"{label}/momentum": moment for label, moment in moments.items()}
    assert_near(evaluated.values, found)


def test_state_of_another_shape_than_the_variable() -> None:
    step, peer = trained(own("by_rows")), fresh_peer()
    squares: dict[str, Any] = dict.fromkeys(peer.parameters, 0.0)
    evaluated = Evaluated(step)
    assert evaluated.values["layer1/weight/squares"].shape == (6, 1)
    assert evaluated.values["by_rows/steps"].shape == ()
    for number, feeds in enumerate(batches(STEPS)):
        peer.loss(feeds).backward()
        with torch.no_grad():
            for label, parameter in peer.parameters.items():
                gradient = parameter.grad
                assert gradient is not None
                squares[label] = squares[label] + (gradient**2).mean(1, keepdim=True)
                scale = (squares[label] / (number + 1)).sqrt() + 1e-3
                parameter -= rising(number) * gradient / scale
                parameter.grad = None
        evaluated(feeds, learning_rate=rising(number))
    assert_near(evaluated.values, peer.parameters)
    assert evaluated.values["by_rows/steps"] == np.float64(STEPS)
