"""The page about training: its tables are those of the losses and optimizers, and all that
it shows runs. `--rewrite-cases` brings it up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from support.pages import invoke, run_examples, runs, up_to_date

import nnef_grad
from nnef_grad import interop
from nnef_grad.language import syntax
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.types import TensorType
from nnef_grad.source import Source
from nnef_grad.step_cli import main
from nnef_grad.training import recipes
from nnef_grad.training.losses import TARGET
from nnef_grad.training.recipes import LOSS, OPTIMIZER, Kind

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "training.md"
SAMPLE = ROOT / "samples" / "mlp.nnef"
TABLES = re.compile(r"(<!-- (losses|optimizers) -->\n)(?:\|.*\n)*")
SHOWN = re.compile(r"(<!-- (head|errors) of: (.*?) -->\n```\n)(.*?)(```\n)", re.DOTALL)

# What the fragments do not say: the formula of each loss, and its name in torch.
LOSSES = {
    "mean_squared_error": ("(y - t)²", "MSELoss"),
    "mean_absolute_error": ("abs(y - t)", "L1Loss"),
    "huber": (
        "(y - t)² / 2 for abs(y - t) up to delta, linear from there on",
        "HuberLoss",
    ),
    "cosine_similarity": (
        "1 - Σ y t / sqrt(Σ y² Σ t²)",
        "1 - CosineSimilarity",
    ),
    "hinge": ("max(margin - y t, 0), for t of 1 or -1", ""),
    "binary_cross_entropy": ("-t log(y) - (1 - t) log(1 - y)", "BCELoss"),
    "sigmoid_cross_entropy": ("that of sigmoid(y)", "BCEWithLogitsLoss"),
    "categorical_cross_entropy": ("-Σ t log(y)", ""),
    "softmax_cross_entropy": ("that of softmax(y)", "CrossEntropyLoss"),
    "softmax_cross_entropy_with_labels": (
        "that of softmax(y), for the number of a class",
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
        ["loss", "of each element or example", "target", "settings", "in torch"],
        losses,
    ),
    "optimizers": (
        ["optimizer", "settings", "state of each variable", "shared", "in torch"],
        optimizers,
    ),
}


def head(result: Result) -> str:
    """The head of the document that the command writes."""
    text, _, _ = result.stdout.partition("\n{")
    return text + "\n"


def errors(result: Result) -> str:
    """What the command says, and nothing else happens."""
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


SHOW = {"head": head, "errors": errors}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The models of the page."""
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package)
    graph = nnef_grad.load(SAMPLE)
    generator = np.random.default_rng(0)
    data = {
        str(op.attributes["label"]): generator.standard_normal(
            op.outputs[0].shape, dtype=np.float32
        )
        for op in graph.operations
        if op.name == "variable"
    }
    nnef_grad.save(graph, tmp_path / "model", data=data)
    nnef_grad.save(graph, tmp_path / "quantized", data=data)
    entry = '"hidden": linear_quantize(min = 0.0, max = 6.0, bits = 8);\n'
    (tmp_path / "quantized" / "graph.quant").write_text(entry, "utf-8")
    interop.to_onnx(graph, tmp_path / "model.onnx", data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    def change(text: str) -> str:
        text = TABLES.sub(lambda m: m[1] + table(m[2]), text)
        return SHOWN.sub(lambda m: m[1] + SHOW[m[2]](invoke(main, m[3])) + m[5], text)

    up_to_date(PAGE, change, request)


def test_the_examples_of_the_page_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_examples(PAGE, folder, {"nnef-grad-step": runs(main)})
    assert "100 0." in capsys.readouterr().out
    trained = nnef_grad.load_data(folder / "trained")
    assert sorted(trained) == sorted(nnef_grad.load_data(folder / "model"))
