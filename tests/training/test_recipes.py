"""The files of losses and optimizers: definitions that are read one by one, types, form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.training_steps import RECIPES, own

from nnef_grad.base.errors import NnefGradError
from nnef_grad.base.source import Source
from nnef_grad.commandline.fmt_cli import main as format_files
from nnef_grad.language.check_document import check_fragments
from nnef_grad.language.library import STDLIB, FragmentFile, extended
from nnef_grad.language.parser import parse_fragments
from nnef_grad.training.recipes import (
    LOSS,
    OPTIMIZER,
    Kind,
    _built_in,
    read_recipe,
    state_parameters,
    with_settings,
)

KINDS = [LOSS, OPTIMIZER]
FILES = [_built_in(kind.file).path for kind in KINDS]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_definitions_read_one_by_one_are_those_of_the_whole_file(path: Path) -> None:
    whole = parse_fragments(Source(path.name, path.read_text("utf-8")))
    lazy = FragmentFile(path)
    assert [f.name for f in whole] == list(lazy)
    assert all(lazy[f.name] == f for f in whole)


@pytest.mark.parametrize("path", [*FILES, RECIPES], ids=lambda path: path.name)
def test_definitions_have_no_mistake(path: Path) -> None:
    fragments = parse_fragments(Source(path.name, path.read_text("utf-8")))
    assert not check_fragments(fragments, extended(fragments, STDLIB))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_definition_hides_an_operation_of_the_standard(path: Path) -> None:
    assert not {*FragmentFile(path)} & {*STDLIB}


@pytest.mark.parametrize("path", [*FILES, RECIPES], ids=lambda path: path.name)
def test_the_files_have_the_form_of_the_formatter(path: Path) -> None:
    result = CliRunner().invoke(format_files, ["--check", str(path)])
    assert result.exit_code == 0, result.output


def names(kind: Kind) -> Iterable[str]:
    """The recipes of a file, without what they call."""
    for name, fragment in _built_in(kind.file).items():
        first = fragment.parameters[: len(kind.begins)]
        if tuple(p.name for p in first) == kind.begins:
            yield name


def test_what_the_project_has() -> None:
    assert [*names(LOSS)] == [
        *("mean_squared_error", "mean_absolute_error", "huber", "cosine_similarity"),
        *("hinge", "binary_cross_entropy", "sigmoid_cross_entropy"),
        *("categorical_cross_entropy", "softmax_cross_entropy"),
        *("softmax_cross_entropy_with_labels", "kullback_leibler"),
    ]
    assert [*names(OPTIMIZER)] == [
        *("sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw")
    ]


# ---- Settings ----


def test_settings_are_expressions_of_their_types() -> None:
    recipe = read_recipe("adam(beta1 = 1.0 - 0.25, amsgrad = true, eps = 1)", OPTIMIZER)
    assert recipe.settings == {"beta1": 0.75, "amsgrad": True, "eps": 1.0}
    assert type(recipe.settings["eps"]) is float
    assert recipe.name == "adam"
    assert not recipe.is_own


def test_a_recipe_in_a_file() -> None:
    recipe = read_recipe(own("focal( gamma = 2 )"), LOSS)
    assert (recipe.name, recipe.settings, recipe.is_own) == (
        "focal",
        {"gamma": 2.0},
        True,
    )


def test_a_loss_in_a_file_uses_those_of_the_project(tmp_path: Path) -> None:
    path = tmp_path / "mine.nnef"
    path.write_text(
        "fragment half( output: tensor<scalar>, target: tensor<scalar> )\n"
        "-> ( losses: tensor<scalar> )\n"
        "{\n    losses = 0.5 * mean_squared_error(output, target);\n}\n"
    )
    assert read_recipe(f"{path}:half", LOSS).name == "half"


def test_further_settings_go_before_those_there_are() -> None:
    recipe = with_settings(
        read_recipe("adam(beta1 = 0.5, eps = 0.1)", OPTIMIZER), "eps = 0.2, beta2 = 0.3"
    )
    assert recipe.settings == {"beta1": 0.5, "eps": 0.2, "beta2": 0.3}


def test_the_state_of_an_optimizer_is_told_by_what_it_returns() -> None:
    found = {
        name: [p.name for p in state_parameters(_built_in(OPTIMIZER.file)[name])]
        for name in names(OPTIMIZER)
    }
    moments = ["first_moment", "second_moment", "largest", "correction1", "correction2"]
    assert found == {
        "sgd": [],
        "momentum": ["velocity", "started"],
        "adagrad": ["sum", "steps"],
        "rmsprop": ["square_average", "average", "velocity"],
        "adam": moments,
        "adamw": moments,
    }


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "(", "huber(", "huber)", "huber()()", "huber;", "huber(delta = )"),
        *("1", "huber.", "a b", ":huber", ".nnef:huber", "huber(delta = delta)"),
        *("huber(delta = [0.5])", "huber(delta = 'a')", "huber(delta = 1e999)"),
        *("huber(weight = 0.5", "huber(" + "(" * 2000, "é", 'huber(reduction = "mean)'),
    ],
)
def test_what_is_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(NnefGradError):
        read_recipe(text, LOSS)
