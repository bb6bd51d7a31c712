"""Graphs lowered for a target run in its runtimes, with the right numbers: every
operation, forward and backward. docs/runtimes.md and its table are made of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import pytest
from support.networks import SMALL, network_verdicts, stored_network
from support.operation_models import Model, models
from support.parts import PARTS, part_of
from support.runtimes.cases import Verdict
from support.runtimes.harness import (
    CONSUMERS,
    ENGINES,
    consumers_of,
    missing,
    needs,
)
from support.runtimes.matrix import DIRECTIONS, Matrix, matrix
from support.runtimes.page import by_operation, letters_of, page, table
from support.stored_models import run
from support.tables import FOLDER, rows_of

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.targets import TARGETS

PAGE, TABLE = FOLDER.parent / "runtimes.md", FOLDER / "runtimes.csv"

# Who is to run the graphs of a target. Those of the default are promised to nobody: who
# runs them is on the page.
PROMISED: dict[str, tuple[str, ...]] = {
    "nnef": (),
    "khronos": ("khronos", "session", "interpreter"),
    "tract": ("tract",),
    "tract-standard": ("tract",),
    "onnx": ("onnx", "openvino"),
    "onnx-portable": ("onnx", *ENGINES),
    "portable": tuple(CONSUMERS),
}


def test_every_target_is_promised_and_can_be_chosen() -> None:
    (option,) = (p for p in main.params if p.name == "target")
    assert isinstance(option.type, click.Choice)
    assert set(PROMISED) == set(TARGETS) == set(option.type.choices)


def in_part(part: int) -> tuple[Model, ...]:
    """The models of some operations, all of each."""
    operations = list(dict.fromkeys(model.operation for model in models()))
    chosen = part_of(operations, part)
    return tuple(model for model in models() if model.operation in chosen)


def results(target: str, direction: str, chosen: Sequence[Model]) -> Matrix:
    """What the runtimes of a target make of its graphs."""
    consumers = PROMISED[target] or tuple(CONSUMERS)
    needs(*(name for name in consumers if name in CONSUMERS))
    consumers = tuple(name for name in consumers if not missing(name))
    lower = partial(nnef_grad.lower, target=target)
    return matrix(chosen, DIRECTIONS[direction], lower=lower, consumers=consumers)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("target", PROMISED)
def test_every_operation_in_the_runtimes_of_a_target(
    target: str, direction: str, part: int, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--rewrite-cases"):
        pytest.skip("the page is being written")
    found = results(target, direction, in_part(part))
    wrong = [
        f"{model} in {consumer}: {verdict}"
        for model, row in found.items()
        for consumer, verdict in row.items()
        if consumer in PROMISED[target] and verdict.word != "ok"
    ]
    assert wrong == []
    rows = by_operation(found)
    in_the_table = column(target, direction)
    for name, row in rows.items():
        # The table has engines that may not be installed here.
        pairs = zip(
            PROMISED[target] or CONSUMERS, in_the_table[name].split(), strict=True
        )
        listed = {consumer: letter for consumer, letter in pairs if consumer in row}
        assert letters_of(row).split() == [*listed.values()], name


def column(target: str, direction: str) -> dict[str, str]:
    """What the table says of a target, by operation."""
    rows = rows_of("runtimes")
    return {
        row["operation"].strip("`"): row[target]
        for row in rows
        if row["graph"] == direction
    }


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("target", PROMISED)
def test_every_operation_is_in_the_table(target: str, direction: str) -> None:
    assert set(column(target, direction)) == {model.operation for model in models()}


def test_the_page(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite-cases"):
        found = {t: {d: results(t, d, models()) for d in DIRECTIONS} for t in PROMISED}
        networks = {name: network_results(name, tmp_path / name) for name in SMALL}
        PAGE.write_text(page(found, PROMISED, networks), "utf-8")
        TABLE.write_text(table(found), "utf-8")
    assert PAGE.exists()
    assert TABLE.exists()


def network_results(name: str, folder: Path) -> dict[str, Verdict]:
    """What the runtimes make of the backward graph of a network, by runtime."""
    network = stored_network(name, folder / "model")
    output = folder / "backward"
    run(network.folder, "-o", output, "--target", "portable")
    return network_verdicts(network, output, consumers_of("portable"))
