"""The page about training: its tables are those of the losses and optimizers. What else
it shows is tested as of any page. `--rewrite-cases` brings it up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

import nnef_grad
from nnef_grad.base.source import Source
from nnef_grad.language import syntax
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.types import TensorType
from nnef_grad.training import recipes
from nnef_grad.training.losses import TARGET
from nnef_grad.training.recipes import LOSS, OPTIMIZER, Kind

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "training.md"
SAMPLE = ROOT / "samples" / "mlp.nnef"
TABLES = re.compile(r"(<!-- (losses|optimizers) -->\n)(?:\|.*\n)*")
# What the fragments do not say: the formula of each loss, and its name in torch.
LOSSES = {
    "mean_squared_error": ("(y - t)²", "MSELoss"),
    "mean_absolute_error": ("abs(y - t)", "L1Loss"),
    "huber": (
        "(y - t)² / 2 for abs(y - t) up to delta, then linear",
        "HuberLoss",
    ),
    "cosine_similarity": (
        "1 - Σ y t / sqrt(Σ y² Σ t²)",
        "1 - CosineSimilarity",
    ),
    "hinge": ("max(margin - y t, 0), for t of 1 or -1", ""),
    "binary_cross_entropy": ("-t log(y) - (1 - t) log(1 - y)", "BCELoss"),
    "sigmoid_cross_entropy": (
        "`binary_cross_entropy` of sigmoid(y)",
        "BCEWithLogitsLoss",
    ),
    "categorical_cross_entropy": ("-Σ t log(y)", ""),
    "softmax_cross_entropy": ("-Σ t log(softmax(y))", "CrossEntropyLoss"),
    "softmax_cross_entropy_with_labels": (
        "-Σ t log(softmax(y)), with class numbers as targets",
        "CrossEntropyLoss",
    ),
    "kullback_leibler": ("t (log(t) - y), for the logarithm y", "KLDivLoss"),
}
OPTIMIZERS = {
    "sgd": "SGD",
    "momentum": "SGD, with momentum",
    "adagrad": "Adagrad",
    "rmsprop": "RMSprop",
    "adam": "Adam",
    "adamw": "AdamW",
}


def fragments(kind: Kind) -> dict[str, syntax.Fragment]:
    """The losses or the optimizers, and what they call."""
    path = Path(recipes.__file__).parent / kind.file
    found = parse_fragments(Source(kind.file, path.read_text("utf-8")))
    return {fragment.name: fragment for fragment in found}


def of_kind(kind: Kind) -> dict[str, syntax.Fragment]:
    """The losses or the optimizers alone."""
    return {
        name: fragment
        for name, fragment in fragments(kind).items()
        if tuple(p.name for p in fragment.operands[:2]) == kind.begins
    }


def losses() -> Iterator[Sequence[str]]:
    """The rows of the table of losses."""
    known = fragments(LOSS)
    for name, fragment in of_kind(LOSS).items():
        formula, in_torch = LOSSES[name]
        target = fragment.parameters[1].type
        assert isinstance(target, TensorType)
        shape = " [N, ...]" if name + TARGET in known else ""
        kind = f"{target.dtype}{shape}"
        yield f"`{name}`", formula, kind, settings_of(fragment), in_torch


def optimizers() -> Iterator[Sequence[str]]:
    """The rows of the table of optimizers."""
    for name, fragment in of_kind(OPTIMIZER).items():
        found = state_of(fragment)
        own, shared = (
            ", ".join(
                f"`{label.removeprefix(start)}`{use}"
                for label, use in found.items()
                if label.startswith(start)
            )
            for start in ("layer1/weight/", f"{name}/")
        )
        yield f"`{name}`", settings_of(fragment), own, shared, OPTIMIZERS[name]


def settings_of(fragment: syntax.Fragment) -> str:
    """The settings of a fragment, with their defaults."""
    return ", ".join(
        f"`{p.name} = {default_of(p)}`"
        for p in fragment.parameters
        if p.default is not None
    )


def default_of(parameter: syntax.Parameter) -> str:
    assert parameter.default is not None
    return parameter.default.span.text


def state_of(fragment: syntax.Fragment) -> dict[str, str]:
    """The labels of the state of an optimizer; for each, the setting that wants it, if
    the default settings do not.
    """
    name = fragment.name
    found = dict.fromkeys(labels_of_state(name), "")
    for parameter in fragment.parameters:
        if parameter.default is not None:
            other = "true" if default_of(parameter) == "false" else "0.5"
            for label in labels_of_state(f"{name}({parameter.name} = {other})"):
                found.setdefault(label, f" ({parameter.name})")
    return found


@cache
def labels_of_state(optimizer: str) -> list[str]:
    """The labels of all that a step changes."""
    graph = nnef_grad.load(SAMPLE)
    step = nnef_grad.training_step(graph, loss="huber", optimizer=optimizer)
    return [step.labels[name] for name in step.state]


def table(name: str) -> str:
    head, rows = ROWS[name]
    cells = [head, ["---"] * len(head), *rows()]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


ROWS: dict[str, tuple[list[str], Callable[[], Iterator[Sequence[str]]]]] = {
    "losses": (
        ["loss", "per element or example", "target", "settings", "in torch"],
        losses,
    ),
    "optimizers": (
        ["optimizer", "settings", "state per variable", "shared", "in torch"],
        optimizers,
    ),
}


def test_the_tables_are_up_to_date(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text("utf-8")
    current = TABLES.sub(lambda m: m[1] + table(m[2]), text)
    if request.config.getoption("--rewrite-cases"):
        PAGE.write_text(current, "utf-8")
    else:
        assert current == text
