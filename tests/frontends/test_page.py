"""The table of what differs in tract's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dialect_differences import LANGUAGE, OPERATIONS
from support.dialect_models import models
from support.tables import FOLDER, csv_of, hold

from nnef_grad.emit.bodies import LONGEST, most_steps
from nnef_grad.frontends.tract import operations as _operations  # noqa: F401
from nnef_grad.frontends.tract.evaluation import EXPANSIONS
from nnef_grad.frontends.tract.library import IDIOM_FILE, IDIOMS, REFUSED, TRACT_LIBRARY

PAGE, TABLE = FOLDER.parent / "dialects.md", FOLDER / "tract.csv"
COLUMNS = ("what", "kind", "for example", "is read as, or is refused because")


def table() -> str:
    return csv_of(COLUMNS, [*language(), *standard(), *own(), *refused()])


def language() -> Iterator[list[str]]:
    for d in LANGUAGE:
        yield [d.what, "the language", f"`{d.example}`", d.reading]


def standard() -> Iterator[list[str]]:
    for name, text in OPERATIONS.items():
        yield [f"`{name}`", "a standard operation", "", text.rstrip(".")]
    for name in IDIOM_FILE:
        if name not in EXPANSIONS:
            reading = f"the standard's `{IDIOMS.get(name, name)}`"
            yield [f"`{name}`", "a fragment of torch-to-nnef", "", reading]


def own() -> Iterator[list[str]]:
    for name, fragment in TRACT_LIBRARY.items():
        call = f"`{name}({', '.join(p.name for p in fragment.parameters)})`"
        yield [f"`{name}`", "an operation of tract", call, _how(name)]


def _how(name: str) -> str:
    function = EXPANSIONS.get(name)
    if function is None:
        return "its body in tract.nnef"
    lines = " ".join((function.__doc__ or "").split())
    return lines.rstrip(".")


def refused() -> Iterator[list[str]]:
    for name, why in REFUSED.items():
        yield [f"`{name}`", "refused", "", why]


def test_the_table_is_that_of_the_tables(request: pytest.FixtureRequest) -> None:
    hold({TABLE: table()}, rewrite=request.config.getoption("--rewrite-cases"))


def test_the_page_says_how_far_loops_are_unrolled() -> None:
    targets = (f"`--target {t}` up to {most_steps(t)}" for t in ("tract", "onnx"))
    limits = f"up to {LONGEST:,} steps, {', '.join(f'with {x}' for x in targets)}, with"
    assert limits in PAGE.read_text("utf-8")


# The model, or the test of test_reading.py, that has each difference of the language.
COVERED = {
    "extension lines of tract": "test_metadata_are_comments",
    "symbols as extents": "test_a_symbol_gets_a_number",
    "extended identifiers": "test_names_of_any_text",
    "strings of any text": "test_properties_are_comments",
    "names in a loop that tract has changed": "scan_renamed",
    "data types of inputs and results": "test_a_document_is_written_with_them_again",
    "inputs without elements": "test_a_cache_of_length_0_is_left_out",
    "other extension lines": "test_what_is_ignored_is_a_warning",
    "fragments and operator expressions without their extension lines": "fragments",
    "metadata": "test_metadata_are_comments",
    "fragments named like standard operations": "redefined",
    "attributes without keyword": "positional_attributes",
    "unknown keywords": "ignored_keyword",
    "one value instead of an array": "positional_attributes",
    "arrays instead of tuples": "lists_for_tuples",
    "integers instead of scalars": "test_integers_in_the_place_of_scalars",
    "literals instead of tensors": "literal_as_tensor",
    "NaN": "test_what_is_no_number",
    "a name assigned twice": "name_twice",
    "variables as attributes": "number_from_data",
    "variables of one number in double precision": "test_a_number_of_python_is_no_variable",
    "negative axes": "test_axes_that_are_counted_from_the_end",
    "variables of integers and truth values": "integer_variable",
    "integers in arithmetic": "integer_division",
    "infinity": "infinity",
}


def test_every_difference_of_the_language_has_a_test() -> None:
    files = map(
        Path(__file__).with_name,
        (
            "test_reading.py",
            "test_dumps.py",
            "test_symbols.py",
            "test_data_types_of_inputs.py",
            "test_written_again.py",
        ),
    )
    tests = "".join(file.read_text("utf-8") for file in files)
    known = {model.name for model in models()}
    assert [*COVERED] == [difference.what for difference in LANGUAGE]
    missing = [
        n for n in COVERED.values() if n not in known and f"def {n}(" not in tests
    ]
    assert missing == []
