"""Random training steps: the first of them against torch, and that a recipe which is
slightly wrong is found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
from support.random_steps.__main__ import main
from support.random_steps.compare import NOT_FINITE, PASSED, SKIPPED, Outcome, compare
from support.random_steps.steps import RandomStep, make_step

from nnef_grad.language.library import FragmentFile
from nnef_grad.training import gradients, recipes, step
from nnef_grad.training.recipes import LOSS, OPTIMIZER

SEED = 1


@pytest.mark.parametrize("number", range(500))
def test_a_step(number: int) -> None:
    random_step = make_step(SEED, number)
    outcome = compare(random_step)
    if outcome.kind in (SKIPPED, NOT_FINITE):
        pytest.skip(outcome.kind)
    assert outcome.kind == PASSED, f"{outcome.message}\n{random_step.text}"


def test_a_seed_and_a_number_stand_for_one_step() -> None:
    first, again, other = (make_step(1, number) for number in (5, 5, 6))
    assert first.text == again.text
    assert first.text != other.text


def test_most_of_what_there_is_is_drawn() -> None:
    losses = {
        loss.recipe.partition("(")[0] for s in steps() for loss in s.losses.values()
    }
    files = [
        FragmentFile(Path(recipes.__file__).parent / k.file) for k in (LOSS, OPTIMIZER)
    ]
    known = {n for n, f in files[0].items() if f.parameters[0].name == "output"}
    assert losses == known - {n for n in known if n.endswith("_target")}
    optimizers = {s.optimizer[0] for s in steps()}
    assert optimizers == {
        n for n, f in files[1].items() if f.parameters[0].name == "variable"
    }
    options = {name for s in steps() for name in s.options}
    assert options == {
        *("state", "learning_rate", "clip_norm", "clip_value", "loss_scale"),
        *("accumulate", "l2", "groups", "freeze", "train"),
    }


def test_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--steps", "3", "--seed", "2"]) == 0
    assert "worst error" in capsys.readouterr().out
    assert main(["--replay", "2:1"]) == 0
    assert "passed" in capsys.readouterr().out


# ---- Planted errors ----


@lru_cache(maxsize=1)
def steps() -> list[RandomStep]:
    return [make_step(SEED, number) for number in range(150)]


def first_failure(takes_part: Callable[[RandomStep], bool], tries: int = 15) -> Outcome:
    """What is found of the first step that fails, among those that an error is in."""
    found = [s for s in steps() if takes_part(s)][:tries]
    assert found
    for random_step in found:
        outcome = compare(random_step)
        if outcome.failed:
            return outcome
    raise AssertionError(f"none of {len(found)} steps fails")


# In a file, what is right and what is planted; and the recipe that it is a part of.
PLANTED = {
    "eps inside the root": (
        OPTIMIZER,
        "scale = corrected + eps;",
        "scale = sqrt(sqr(corrected) + eps);",
        "adam",
    ),
    "no correction of the second moment": (
        OPTIMIZER,
        "corrected = deviation / divisor;",
        "corrected = deviation;",
        "adam",
    ),
    "a correction that never ends": (
        OPTIMIZER,
        "rate = learning_rate / correction1;",
        "rate = learning_rate / (correction1 + 0.001);",
        "adam",
    ),
    "decay after the step": (
        OPTIMIZER,
        "lost = learning_rate * weight_decay;",
        "lost = weight_decay;",
        "adamw",
    ),
    "nesterov without momentum": (
        OPTIMIZER,
        "decayed + momentum * new_velocity if nesterov",
        "decayed + new_velocity if nesterov",
        "momentum",
    ),
    "dampening from the first step on": (
        OPTIMIZER,
        "(1.0 - dampening * started)",
        "(1.0 - dampening)",
        "momentum",
    ),
    "a centred variance that is not centred": (
        OPTIMIZER,
        "new_square_average - squared_average if centered",
        "new_square_average if centered",
        "rmsprop",
    ),
    "a decay of the rate that begins too early": (
        OPTIMIZER,
        "(1.0 + lr_decay * steps)",
        "(1.0 + lr_decay * (steps + 1.0))",
        "adagrad",
    ),
    "a decay uphill": (
        OPTIMIZER,
        "downhill + weight_decay * variable",
        "downhill - weight_decay * variable",
        "sgd",
    ),
    "huber's delta": (
        LOSS,
        "near = min(size, delta);",
        "near = min(size, 1.0);",
        "huber",
    ),
    "huber's half": (LOSS, "(size - 0.5 * near)", "(size - 0.501 * near)", "huber"),
    "hinge's margin": (LOSS, "max(margin - agreement", "max(1.0 - agreement", "hinge"),
    "a sigmoid without its shift": (
        LOSS,
        "losses = shift + log(total)",
        "losses = log(total)",
        "sigmoid_cross_entropy",
    ),
    "the other class forgotten": (
        LOSS,
        "likelihood = target * yes + (1.0 - target) * no;",
        "likelihood = target * yes;",
        "binary_cross_entropy",
    ),
    "smoothing of the target alone": (
        LOSS,
        "(1.0 - label_smoothing) * cross_entropy + label_smoothing",
        "cross_entropy + label_smoothing",
        "softmax_cross_entropy",
    ),
    "the length of the target twice": (
        LOSS,
        "target_length = sqrt(",
        "target_length = 1.001 * sqrt(",
        "cosine_similarity",
    ),
}


@pytest.mark.parametrize("error", PLANTED)
def test_a_recipe_that_is_wrong_is_found(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, right, wrong, name = PLANTED[error]
    original = (Path(recipes.__file__).parent / kind.file).read_text("utf-8")
    assert right in original
    path = tmp_path / kind.file
    path.write_text(original.replace(right, wrong), "utf-8")
    built_in, planted = recipes._built_in, FragmentFile(path)
    monkeypatch.setattr(
        recipes, "_built_in", lambda f: planted if f == kind.file else built_in(f)
    )

    def takes_part(random_step: RandomStep) -> bool:
        written = [loss.recipe for loss in random_step.losses.values()]
        return any(
            text.startswith(f"{name}(") for text in [random_step.recipe, *written]
        )

    assert first_failure(takes_part, tries=60).kind == "wrong"


def test_a_bound_of_the_norm_that_is_forgotten_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_the_first_alone(draft: object, found: object, bound: float) -> float:
        return bound

    monkeypatch.setattr(gradients, "_factor", of_the_first_alone)
    assert first_failure(lambda s: "clip_norm" in s.options).kind == "wrong"


def test_a_scale_that_stays_in_the_gradients_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step, "of_each", lambda _, parts, *operands, word: parts)
    assert first_failure(lambda s: "loss_scale" in s.options).kind == "wrong"


def test_a_penalty_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "penalties", lambda graph, choice, l2: {})
    assert first_failure(lambda s: "l2" in s.options).kind == "wrong"
