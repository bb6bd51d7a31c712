"""The page about dialects, which is made of their tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dialect_differences import LANGUAGE, OPERATIONS
from support.dialect_models import models

from nnef_grad.emit.bodies import LONGEST, SHORT
from nnef_grad.frontends.tract import operations as _operations  # noqa: F401
from nnef_grad.frontends.tract.evaluation import EXPANSIONS
from nnef_grad.frontends.tract.library import IDIOM_FILE, IDIOMS, REFUSED, TRACT_LIBRARY

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
HEAD = """# Dialects

nnef-grad reads one dialect of NNEF: that of [tract](https://github.com/sonos/tract), which
[torch-to-nnef](https://github.com/sonos/torch-to-nnef) writes. [From PyTorch to tract](tract.md) shows how to differentiate and train such
exports.

A document is in the dialect if it has a line such as `extension tract_registry tract_core;`, or if you say so (`--dialect tract`,
`dialect="tract"`). `--dialect nnef` reads any document strictly. The graph has only standard operations, except long loops, so every option,
every target and derivatives of any order work as usual.

Declarations of the dialect do not give the types of values, so nnef-grad evaluates the document: it computes values that depend only on
shapes and numbers, and turns the others into operations. `nnef_grad.load` also reads the data of the model, because some attributes are in
data files.

Symbolic extents, such as `B` or `(S + 1)/2`, stay so through derivatives of any order: one backward graph serves [every size](open-sizes.md)
that the document accepts. `--target tract` writes them; the other NNEF targets need numbers. `--symbol B=8` gives a number, as do `--batch`
and `--input-shape` for the symbols of inputs.

"""
NOTES = f"""## Approximations and bounds

- `tract_core_erf`, which the standard lacks, becomes a rational function times an exponential. Its error is 6e-9, that of its derivative
  6e-7, as in single precision, and that of its second derivative 2e-5. The fragment `tract_gelu` becomes `gelu`, which is exact at any order.
- `tract_core_scan` is unrolled up to {LONGEST:,} steps, with `--target tract` up to {SHORT}, with `--unroll N` (`unroll=N` of `load`) up to N.
  Longer loops, and those with a symbolic number of steps, stay loops.
- Elements at computed indices are selected by comparing the indices with all positions along an axis, because the standard gathers rows and
  scatters nothing. The indices of `tract_core_scatter_elements` and `tract_core_scatter_nd` must differ if the reduction is `none`.
- `tract_core_grid_sample` computes a weight of each element for each point, along each axis, so extents are multiplied by the number of
  points. Bicubic sampling requires zeros around the image.
- Numbers in half and double precision are scalars: a runtime computes in its own precision. Documents do not contain PyTorch's `detach`, so
  gradients pass through it.
- `tract_core_topk` returns up to 1,024 elements.
- tract writes parameters of up to 8 elements as numbers, which are not trained, unless with its option `--nnef-extern-all-constants`. A
  training step that finds such biases says so.

## Names

tract writes any text as a name, in quotes after an `i`: `i"conv2d_5/kernel:0.0"` (`with_extended_identifier_syntax`, in its command
`--nnef-extended-identifier`). A graph keeps these names: options and reports have them, gradients are called after them, such as
`i"grad_conv2d_5/kernel:0.0"`, and a document that is read and written again has them too. `--target tract` writes them, with the line
`extension tract_registry tract_core;`, and ONNX files have them as they are. Other readers of NNEF do not know them: for all other targets,
other characters become underscores, in what `lower` returns too, and options still take the names of the document. Options separate names
by commas: a name that has one can be given in Python only.

tract does not read all that it writes: in a string or a name it ends at a quote of either kind, which nnef-grad escapes.

## Written again

What is read from a document of the dialect, `dumps` and `save` write in the dialect, for tract: constants are nested arrays, inputs and results
have the data types of the document, and what tract lacks becomes what it has, as `--target tract` has it. `lower(graph, "nnef")` makes the
graph standard. Derivatives are standard, unless they are lowered for tract. Fully masked rows of a softmax differ: they are NaN in tract,
and equal shares here, as the largest number stands for infinity.

## Loops

A loop that is not unrolled is an operation of the graph, with a graph as its body. Its derivative is another loop, from the last step to the
first, whose body is the second half of the derivative of the body; the first loop collects the fewest values that it needs. The gradient of
a weight is a sum over all steps, computed for products as one product after the loop. The derivative can be differentiated again.
Computations that are the same at each step move before the loop; results and states that nothing needs are removed.

The body does not see a selection after the loop: if the selection makes a gradient zero and a slope in the body is infinite, the gradient
of the loop is NaN. Select in the body, or unroll the loop.

`dumps` and `save` write a loop as `tract_core_scan` and its body as a fragment, which can be read again. Only `--target tract` keeps loops.
For other targets, for Jacobians, and where tract computes something else, loops of up to {LONGEST:,} steps are unrolled:

- tract moves a computation on a collected part out of the loop, but not its direction: parts collected from both ends
  in one loop come in the wrong order.
- tract takes states in the order of the results, whatever their names: a document with another order is refused.
- A loop in the body of another keeps its states from turn to turn; without `reset_every_turn = true` it is refused.

"""


def page() -> str:
    return HEAD + NOTES + "\n".join([*language(), *standard(), *own(), ""]) + refused()


def language() -> Iterator[str]:
    yield "## The language\n"
    yield "| what | for example | is read as |\n|---|---|---|"
    yield from (f"| {d.what} | `{d.example}` | {d.reading} |" for d in LANGUAGE)
    yield ""


def standard() -> Iterator[str]:
    yield "## Standard operations that differ\n"
    yield "| operation | in tract |\n|---|---|"
    yield from (f"| `{name}` | {text} |" for name, text in OPERATIONS.items())
    yield "\nThese fragments of torch-to-nnef become standard operations:"
    pairs = (
        f"`{name}` is `{IDIOMS.get(name, name)}`"
        for name in IDIOM_FILE
        if name not in EXPANSIONS
    )
    yield f"{', '.join(pairs)}.\n"


def own() -> Iterator[str]:
    yield "## Operations of tract's registries\n"
    yield "Bodies are in [`tract.nnef`](../nnef_grad/frontends/tract/tract.nnef).\n"
    yield "| operation | is read as |\n|---|---|"
    for name, fragment in TRACT_LIBRARY.items():
        yield f"| `{name}({', '.join(p.name for p in fragment.parameters)})` | {_how(name)} |"
    yield ""


def _how(name: str) -> str:
    function = EXPANSIONS.get(name)
    if function is None:
        return "its body"
    lines = " ".join((function.__doc__ or "").split())
    return lines.rstrip(".")


def refused() -> str:
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in REFUSED.items())
    return f"## Refused\n\n| operation | why, and what to do |\n|---|---|\n{rows}"


def test_the_page_is_that_of_the_tables(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite-cases"):
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page()


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
