"""Losses: value, gradient and target of each against torch in float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.training_steps import (
    TOLERANCE,
    Evaluated,
    Peer,
    assert_near,
    own,
    random_data,
)

import nnef_grad
from nnef_grad.training.recipes import LOSS, _built_in

Array = Any
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
TorchLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SHAPES = [(4, 5), (3, 4, 2), (2, 5, 3, 2)]


# ---- What outputs and targets are ----


def numbers(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_normal(shape)


def extreme(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Logits of which every exponential overflows, or is zero."""
    return 300.0 * generator.choice([-1.0, 0.0, 1.0], shape) + numbers(generator, shape)


def probabilities(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.uniform(0.05, 0.95, shape)


def signs(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.choice([-1.0, 1.0], shape)


def distributions(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    found = generator.uniform(0.05, 1.0, shape)
    return found / found.sum(1, keepdims=True)


def logarithms(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.log(distributions(generator, shape))


def one_hot(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    found = generator.integers(0, shape[1], (shape[0], 1, *shape[2:]))
    numbers = np.arange(shape[1]).reshape(1, -1, *[1] * (len(shape) - 2))
    return (found == numbers).astype(np.float64)


def labels(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.integers(0, shape[1], (shape[0], *shape[2:]))


def labels_with_holes(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    found = labels(generator, shape)
    found[0] = -100
    return found


class Case(NamedTuple):
    """A loss, what torch calls it, and what it is given."""

    recipe: str
    peer: TorchLoss
    output: Draw
    target: Draw


def cosine(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 1.0 - F.cosine_similarity(output, target)


def cosine_above(
    output: torch.Tensor, target: torch.Tensor, least: float
) -> torch.Tensor:
    """As torch documents it: where a vector is shorter than the least length, torch's own
    gradient is that of another value.
    """
    lengths = [x.norm(dim=1).clamp(min=least) for x in (output, target)]
    return 1.0 - (output * target).sum(1) / (lengths[0] * lengths[1])


def hinge(
    output: torch.Tensor, target: torch.Tensor, margin: float = 1.0
) -> torch.Tensor:
    return torch.clamp(margin - output * target, min=0.0)


def categorical(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -(target * output.log()).sum(1)


def elements(function: Callable[..., torch.Tensor], **settings: Any) -> TorchLoss:
    """The loss of each element, or example, as torch has it."""
    return lambda output, target: function(output, target, reduction="none", **settings)


CROSS = "softmax_cross_entropy"
LABELS = f"{CROSS}_with_labels"
# The losses of elements or examples, which reductions are tested with.
CASES = [
    Case("mean_squared_error", elements(F.mse_loss), numbers, numbers),
    Case("mean_absolute_error", elements(F.l1_loss), numbers, numbers),
    Case("huber", elements(F.huber_loss), numbers, numbers),
    Case("huber(delta = 0.5)", elements(F.huber_loss, delta=0.5), numbers, numbers),
    Case("huber(delta = 2)", elements(F.huber_loss, delta=2.0), extreme, numbers),
    Case("cosine_similarity", cosine, numbers, numbers),
    Case(
        "cosine_similarity(epsilon = 2.0)",
        lambda x, y: cosine_above(x, y, 2.0),
        numbers,
        numbers,
    ),
    Case("hinge", hinge, numbers, signs),
    Case("hinge(margin = 0.25)", lambda x, y: hinge(x, y, 0.25), numbers, signs),
    Case(
        "binary_cross_entropy",
        elements(F.binary_cross_entropy),
        probabilities,
        probabilities,
    ),
    Case(
        "sigmoid_cross_entropy",
        elements(F.binary_cross_entropy_with_logits),
        numbers,
        probabilities,
    ),
    Case(
        "sigmoid_cross_entropy",
        elements(F.binary_cross_entropy_with_logits),
        extreme,
        probabilities,
    ),
    Case("categorical_cross_entropy", categorical, distributions, distributions),
    Case("categorical_cross_entropy", categorical, distributions, one_hot),
    Case(CROSS, elements(F.cross_entropy), numbers, distributions),
    Case(CROSS, elements(F.cross_entropy), extreme, one_hot),
    Case(
        f"{CROSS}(label_smoothing = 0.1)",
        elements(F.cross_entropy, label_smoothing=0.1),
        extreme,
        distributions,
    ),
    Case("kullback_leibler", elements(F.kl_div), logarithms, distributions),
    Case("kullback_leibler", elements(F.kl_div), logarithms, one_hot),
]
REDUCTIONS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "mean": lambda losses, _: losses.mean(),
    "sum": lambda losses, _: losses.sum(),
    "batchmean": lambda losses, batch: losses.sum() / batch,
}
# Of classes with labels, the mean is over those that count.
LABEL_CASES = [
    Case(LABELS, F.cross_entropy, numbers, labels),
    Case(LABELS, F.cross_entropy, extreme, labels_with_holes),
    Case(
        f"{LABELS}(label_smoothing = 0.2)",
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.2),
        extreme,
        labels_with_holes,
    ),
    Case(
        f"{LABELS}(ignore_index = 1, reduction = 'sum')",
        lambda x, y: F.cross_entropy(x, y, ignore_index=1, reduction="sum"),
        numbers,
        labels,
    ),
    Case(
        f"{LABELS}(ignore_index = 1, label_smoothing = 0.5)",
        lambda x, y: F.cross_entropy(x, y, ignore_index=1, label_smoothing=0.5),
        numbers,
        labels,
    ),
]


def text_of(shape: tuple[int, ...], body: str = "y = copy(w);") -> str:
    """A graph that returns what it is to learn."""
    return (
        "version 1.0;\ngraph net( x ) -> ( y )\n{\n    x = external(shape = [1]);\n"
        f"    w = variable(shape = {list(shape)}, label = 'w');\n    {body}\n}}\n"
    )


def with_setting(recipe: str, setting: str) -> str:
    """The recipe with one setting more."""
    if recipe.endswith(")"):
        return f"{recipe[:-1]}, {setting})"
    return f"{recipe}({setting})"


def has_axis(recipe: str) -> bool:
    """Whether a loss sums along one axis."""
    fragment = _built_in(LOSS.file)[re.split(r"\W", recipe)[0]]
    return any(p.name == "axis" for p in fragment.parameters)


def compare(
    case: Case, shape: tuple[int, ...], body: str = "y = copy(w);", seed: int = 0
) -> nnef_grad.Step:
    """Compares the loss and the gradient; returns the step."""
    generator = np.random.default_rng(seed)
    if len(shape) == 3 and has_axis(case.recipe):
        case = case._replace(recipe=with_setting(case.recipe, "axis = 1"))
    output, target = case.output(generator, shape), case.target(generator, shape)
    return compare_on(case, output, target, body)


def compare_on(
    case: Case, output: Array, target: Array, body: str = "y = copy(w);"
) -> nnef_grad.Step:
    text = text_of(output.shape, body)
    step = nnef_grad.training_step(
        nnef_grad.loads(text),
        loss=case.recipe,
        optimizer=own("gradient_itself"),
        data={"w": output},
        state="inputs",
    )
    (name,) = [n for n in step.inputs if n.startswith("target_")]
    feeds = {"x": np.zeros(1), name: target}
    peer = Peer(text, {"w": output}, lambda t, fed: case.peer(t["y"], fed[name]))
    expected = peer.loss(feeds)
    expected.backward()
    evaluated = Evaluated(step)
    loss = evaluated(feeds)["loss"]
    scale = max(abs(expected.item()), 1.0)
    assert abs(float(loss) - expected.item()) <= TOLERANCE * scale
    assert_near(evaluated.values, {"w": peer.parameters["w"].grad})
    return step


@pytest.mark.parametrize("shape", SHAPES, ids=len)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.recipe)
def test_a_loss(case: Case, reduction: str, shape: tuple[int, ...]) -> None:
    reduce = REDUCTIONS[reduction]
    reduced = Case(
        with_setting(case.recipe, f"reduction = '{reduction}', weight = 0.3"),
        lambda x, y: 0.3 * reduce(case.peer(x, y), len(x)),
        case.output,
        case.target,
    )
    step = compare(reduced, shape)
    target = step.graph.tensors["target_y"]
    assert (target.shape, target.dtype) == (shape, "scalar")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.recipe)
def test_the_default_is_the_mean(case: Case) -> None:
    mean = case._replace(peer=lambda x, y: case.peer(x, y).mean())
    compare(mean, (4, 5))


@pytest.mark.parametrize("shape", SHAPES, ids=len)
@pytest.mark.parametrize("case", LABEL_CASES, ids=lambda case: case.recipe)
def test_a_loss_of_labels(case: Case, shape: tuple[int, ...]) -> None:
    target = compare(case, shape).graph.tensors["target_y"]
    assert target.shape == (shape[0], *shape[2:])
    assert target.dtype == "integer"


@pytest.mark.parametrize("axis", [0, 2, -1])
@pytest.mark.parametrize("loss", [CROSS, LABELS, "categorical_cross_entropy"])
def test_classes_along_any_axis(loss: str, axis: int) -> None:
    """torch has them along axis 1."""
    random = np.random.default_rng(0)
    shape = (4, 5, 6)
    output = distributions(random, shape)
    target: Array = distributions(random, shape)
    if loss == LABELS:
        target = random.integers(shape[axis], size=np.delete(shape, axis))

    def peer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = y.movedim(axis, 0) if y.dim() == 3 else y
        if loss == "categorical_cross_entropy":
            return -(y * x.log()).sum(axis).mean()
        return F.cross_entropy(x.movedim(axis, 0)[None], first[None])

    compare_on(Case(f"{loss}(axis = {axis})", peer, numbers, numbers), output, target)


@pytest.mark.parametrize("classes", [1024, 1025, 50_257, 250_002])
def test_labels_of_a_vocabulary(classes: int) -> None:
    random = np.random.default_rng(0)
    target = np.array([0, classes - 1, 1023, -100])
    case = Case(LABELS, F.cross_entropy, numbers, labels)
    step = compare_on(case, random.standard_normal((4, classes)), target)
    assert len(nnef_grad.dumps(step.graph)) < 25_000


def test_the_axis_of_a_softmax_is_that_of_the_classes() -> None:
    body = "y = softmax(w, axes = [2]);"
    random = np.random.default_rng(0)
    output, target = (distributions(random, (2, 3, 4)) for _ in range(2))

    def peer(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return -(target * y.log()).sum(2).mean()

    recipe = "categorical_cross_entropy"
    step = compare_on(Case(recipe, peer, numbers, numbers), output, target, body)
    assert "max_reduce" in nnef_grad.dumps(step.graph), "the logits are not used"


def test_all_losses_are_compared() -> None:
    compared = {re.split(r"\W", case.recipe)[0] for case in [*CASES, *LABEL_CASES]}
    file = _built_in(LOSS.file)
    helpers = {"log_softmax", "smoothed", "stop_gradient", f"{LABELS}_target"}
    assert {*file} == compared | helpers | {"numbers_of", "many_numbers_of"}


# ---- At the edges ----


def test_probabilities_of_zero_and_one() -> None:
    """As in torch, the logarithm is -100 at least. Gradients are finite."""
    output = np.array([[0.0, 1.0, 0.0, 1.0, 0.5]])
    target = np.array([[0.0, 1.0, 1.0, 0.0, 1.0]])
    losses = {
        "binary_cross_entropy": (200.0 - np.log(0.5)) / 5.0,
        "categorical_cross_entropy": 100.0 - np.log(0.5),
    }
    for recipe, expected in losses.items():
        step = nnef_grad.training_step(
            nnef_grad.loads(text_of((1, 5))),
            loss=recipe,
            optimizer=own("gradient_itself"),
            data={"w": output},
        )
        evaluated = Evaluated(step)
        loss = evaluated({"x": np.zeros(1), "target_y": target})["loss"]
        assert float(loss) == pytest.approx(expected, rel=TOLERANCE)
        assert np.isfinite(evaluated.values["w"]).all()


def test_a_vector_of_zeros_has_an_angle() -> None:
    output = np.array([[0.0, 0.0], [1.0, 2.0]])
    target = np.array([[1.0, 2.0], [0.0, 0.0]])
    compare_on(
        Case("cosine_similarity", lambda x, y: cosine(x, y).mean(), numbers, numbers),
        output,
        target,
    )


def test_equal_logits_and_targets_that_are_hit() -> None:
    output = np.array([[1.0, 1.0, 1.0], [300.0, 300.0, -300.0]])
    target = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    compare_on(Case(CROSS, F.cross_entropy, numbers, numbers), output, target)
    for recipe, peer in (("mean_absolute_error", F.l1_loss), ("huber", F.huber_loss)):
        compare_on(Case(recipe, peer, numbers, numbers), output, output)


# ---- What made the output ----


def test_a_softmax_under_a_cross_entropy_is_taken_into_it() -> None:
    case = Case("categorical_cross_entropy", F.cross_entropy, extreme, distributions)
    generator = np.random.default_rng(0)
    output, target = extreme(generator, (4, 5)), distributions(generator, (4, 5))
    output = output.astype(np.float32).astype(float)
    step = nnef_grad.training_step(
        nnef_grad.loads(text_of((4, 5), "y = softmax(w);")),
        loss=case.recipe,
        optimizer=own("gradient_itself"),
        data={"w": output},
    )
    parameter = torch.tensor(output, requires_grad=True)
    expected = F.cross_entropy(parameter, torch.tensor(target))
    expected.backward()
    evaluated = Evaluated(step)
    loss = evaluated({"x": np.zeros(1), "target_y": target})["loss"]
    assert abs(float(loss) - expected.item()) <= TOLERANCE * abs(expected.item())
    assert_near(evaluated.values, {"w": parameter.grad})
    assert step.warnings == ()


def test_a_sigmoid_under_a_cross_entropy_is_taken_into_it() -> None:
    generator = np.random.default_rng(0)
    output, target = extreme(generator, (4, 5)), probabilities(generator, (4, 5))
    step = nnef_grad.training_step(
        nnef_grad.loads(text_of((4, 5), "y = sigmoid(w);")),
        loss="binary_cross_entropy",
        optimizer=own("gradient_itself"),
        data={"w": output},
    )
    parameter = torch.tensor(output, requires_grad=True)
    F.binary_cross_entropy_with_logits(parameter, torch.tensor(target)).backward()
    evaluated = Evaluated(step)
    evaluated({"x": np.zeros(1), "target_y": target})
    assert_near(evaluated.values, {"w": parameter.grad})


@pytest.mark.parametrize(
    ("recipe", "body", "warned"),
    [
        (CROSS, "y = softmax(w);", True),
        (LABELS, "y = softmax(w);", True),
        ("sigmoid_cross_entropy", "y = sigmoid(w);", True),
        (CROSS, "y = sigmoid(w);", False),
        (CROSS, "y = softmax(w, axes = [0]);", False),
        (CROSS, "y = copy(w);", False),
        ("mean_squared_error", "y = softmax(w);", False),
    ],
)
def test_a_loss_that_repeats_the_softmax_is_warned_of(
    recipe: str, body: str, warned: bool
) -> None:
    step = nnef_grad.training_step(
        nnef_grad.loads(text_of((4, 5), body)), loss=recipe, optimizer="sgd"
    )
    assert bool(step.warnings) is warned
    assert all("give the loss to 'w'" in warning for warning in step.warnings)


def test_another_tensor_than_the_output_has_the_loss() -> None:
    graph = nnef_grad.loads(
        text_of((4, 5), "logits = copy(w);\n    y = softmax(logits);")
    )
    step = nnef_grad.training_step(graph, loss={"logits": CROSS}, optimizer="sgd")
    assert step.inputs == ("x", "target_logits", "learning_rate")
    assert not step.warnings
    assert "softmax" not in {op.name for op in step.graph.operations}


# ---- Of one's own ----


def test_a_loss_of_ones_own() -> None:
    def focal(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        likelihood = (output * target).sum(1)
        return (-((1.0 - likelihood) ** 1.5) * likelihood.log()).mean()

    recipe = own("focal(gamma = 1.5)")
    compare(Case(recipe, focal, distributions, one_hot), (4, 5))


def test_a_loss_of_ones_own_with_counts_and_another_target() -> None:
    def distance(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        error = output.mean(1, keepdim=True) - target
        return (error**2).sum() / (error.abs() > 0.5).sum()

    recipe = own("distance(margin = 0.5)")
    case = Case(recipe, distance, numbers, lambda g, s: numbers(g, (s[0], 1)))
    assert compare(case, (6, 5)).graph.tensors["target_y"].shape == (6, 1)


# ---- Several ----

TWO = """version 1.0;
graph two( x ) -> ( score, logits )
{
    x = external(shape = [4, 3]);
    weight = variable(shape = [5, 3], label = 'weight');
    features = tanh(linear(x, weight));
    score = mean_reduce(features, axes = [1]);
    logits = exp(features);
}
"""


def test_outputs_with_a_loss_each() -> None:
    graph = nnef_grad.loads(TWO)
    data = random_data(graph)
    losses = {
        "score": "huber(weight = 0.25, reduction = 'sum')",
        "logits": f"{LABELS}(weight = 2)",
    }
    step = nnef_grad.training_step(
        graph, loss=losses, optimizer=own("gradient_itself"), data=data
    )
    assert step.inputs == ("x", "target_score", "target_logits")

    def loss(t: Any, fed: Any) -> torch.Tensor:
        first = F.huber_loss(t["score"], fed["target_score"], reduction="sum")
        return 0.25 * first + 2.0 * F.cross_entropy(t["logits"], fed["target_logits"])

    generator = np.random.default_rng(2)
    feeds = {
        "x": numbers(generator, (4, 3)),
        "target_score": numbers(generator, (4, 1)),
        "target_logits": generator.integers(0, 5, (4,)),
    }
    peer, evaluated = Peer(TWO, data, loss), Evaluated(step)
    expected = peer.loss(feeds)
    expected.backward()
    assert abs(float(evaluated(feeds)["loss"]) - expected.item()) <= TOLERANCE
    assert_near(evaluated.values, {"weight": peer.parameters["weight"].grad})


HELPED = """fragment helped( output: tensor<scalar>, target: tensor<scalar> )
-> ( losses: tensor<scalar> )
{
    losses = size(output - target);
}

fragment size( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = abs(x);
}
"""


def test_files_may_have_different_fragments_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "first.nnef").write_text(HELPED)
    (tmp_path / "second.nnef").write_text(HELPED.replace("abs", "sqr"))
    losses = {
        "score": f"{tmp_path / 'first.nnef'}:helped",
        "logits": f"{tmp_path / 'second.nnef'}:helped",
    }
    step = nnef_grad.training_step(nnef_grad.loads(TWO), loss=losses, optimizer="sgd")
    makers = {step.graph.names[op.outputs[0]]: op for op in step.graph.operations}
    assert makers["losses_score"].name == "abs"
    assert makers["losses_logits"].name == "sqr"


@pytest.mark.parametrize(
    ("short", "loss"),
    [
        ("mse", "mean_squared_error"),
        ("cross_entropy", "softmax_cross_entropy_with_labels"),
        ("kl_div(axis = 1)", "kullback_leibler"),
    ],
)
def test_names_of_other_libraries_lead_to_ours(short: str, loss: str) -> None:
    graph = nnef_grad.load(Path(__file__).parents[2] / "samples" / "mlp.nnef")
    with pytest.raises(nnef_grad.UsageError, match=f"did you mean '{loss}'"):
        nnef_grad.training_step(graph, loss=short, optimizer="sgd")
