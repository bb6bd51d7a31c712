"""The page about dialects, which is made of their tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dialect_differences import LANGUAGE, OPERATIONS
from support.dialect_models import models

from nnef_grad.emit.loops import LONGEST, SHORT
from nnef_grad.frontends.reading import EXPANSIONS
from nnef_grad.frontends.tract import operations as _operations  # noqa: F401
from nnef_grad.frontends.tract.library import IDIOMS, REFUSED, idioms, tract_library

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
HEAD = """# Dialects

nnef-grad reads one dialect of NNEF, which [tract](https://github.com/sonos/tract) reads and
[torch-to-nnef](https://github.com/sonos/torch-to-nnef) writes. A document is in the dialect if it has a line such as
`extension tract_registry tract_core;`, or if you say so (`--dialect tract`, `dialect="tract"`); `--dialect nnef` reads any document
strictly. The graph that comes out has operations of the standard only, so that everything else works as ever: every option, every target,
derivatives of any order. The one exception is a long loop. Documents without a dialect are read strictly.

A document of the dialect is evaluated: its declarations do not say what types its values have. Values that follow from shapes and numbers are
computed while it is read; those that follow from tensors become operations. `nnef_grad.load` reads the data of the model as well, because
some attributes are in data files.

Extents with symbols, such as `B` or `2 * S + 1`, stay symbols, through derivatives of any order: one backward graph serves every
batch, and `--target tract` writes it. A symbol stands for any number from 1 on. Where an operation needs the number (to split a batch in two,
say), the message names it; other targets need it always. `--symbol B=8` gives it, and so do `--batch` and `--input-shape`, for the symbols in
the shapes of inputs.

[tract.md](tract.md) goes from a PyTorch module to gradients and training steps that tract runs.

A test makes this page from the tables of the dialect in [`nnef_grad/frontends/tract/`](../nnef_grad/frontends/tract). Other tests compare every
operation with tract itself.

"""
NOTES = f"""## Approximations and bounds

- `tract_core_erf`, which the standard lacks, is a rational function times an exponential. Its error is 6e-9, that of its derivative 6e-7, as in
  single precision, and that of its second derivative 2e-5. The fragment `tract_gelu` becomes `gelu`, which is exact at any order.
- `tract_core_scan` of up to {LONGEST:,} steps becomes these steps, one after the other: up to {SHORT} with `--target tract`, up to N with
  `--unroll N` (`unroll=N` of `load`). Longer loops, and those with a symbolic number of steps, stay loops.
- Elements at computed indices are compared with all positions along an axis: the standard gathers rows, and scatters nothing. The
  indices of `tract_core_scatter_elements` and `tract_core_scatter_nd` must differ where the reduction is `none`.
- `tract_core_grid_sample` has a weight of each element for each point, along each axis: extents are multiplied by the number of points. It
  is bicubic where there are zeros around the image.
- Numbers of half and of double precision are scalars: a runtime computes with its own precision. Documents do not contain
  PyTorch's `detach`: gradients go through it.
- `tract_core_topk` has up to 128 elements.

## Loops

A loop that stays one is an operation of the graph, with a graph for its body. Its derivative is another loop, from the last step to the
first: its body is the second half of the derivative of the body, and the first loop collects the fewest values that it needs. Gradients of weights are sums over all steps: of products they are one product after the loop. The derivative has a derivative again,
and so on. Computations that are the same at each step move before the loop; those that no result needs, states too, are left out.

A choice after a loop is not known in its body: where the choice makes a gradient zero, and a slope in the body is infinite, the
gradient of the loop is NaN. Choose in the body, or unroll the loop.

`dumps` and `save` write a loop as `tract_core_scan`, and its body as a fragment, which is read again. Only `--target tract` keeps it. For
all other targets, for Jacobians, and where tract computes something else, it becomes its steps, up to {LONGEST:,} of them:

- tract moves a computation on a collected part out of the loop, but not its direction: parts collected from both ends,
  in one loop, come in a wrong order.
- It takes states in the order of the results, whatever their names are: a document with another order is refused.
- A loop in the body of another one keeps its states from turn to turn, unless it has `reset_every_turn = true`: without that it is
  refused.

"""


def page() -> str:
    return HEAD + "\n".join([*language(), *standard(), *own(), ""]) + NOTES + refused()


def language() -> Iterator[str]:
    yield "## The language\n"
    yield "| what | for example | is read as |\n|---|---|---|"
    yield from (f"| {d.what} | `{d.example}` | {d.reading} |" for d in LANGUAGE)
    yield ""


def standard() -> Iterator[str]:
    yield "## Operations of the standard that differ\n"
    yield "| operation | in tract |\n|---|---|"
    yield from (f"| `{name}` | {text} |" for name, text in OPERATIONS.items())
    yield "\nFragments of torch-to-nnef that are operations of the standard, to the letter, are these:"
    pairs = (
        f"`{name}` is `{IDIOMS.get(name, name)}`"
        for name in idioms()
        if name not in EXPANSIONS
    )
    yield f"{', '.join(pairs)}.\n"


def own() -> Iterator[str]:
    yield "## Operations of tract's registries\n"
    yield "| operation | is read as |\n|---|---|"
    for name, fragment in tract_library().items():
        yield f"| `{name}({', '.join(p.name for p in fragment.parameters)})` | {_how(name)} |"
    yield ""


def _how(name: str) -> str:
    function = EXPANSIONS.get(name)
    if function is None:
        return "its body in [`tract.nnef`](../nnef_grad/frontends/tract/tract.nnef)"
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
    "other extension lines": "test_what_is_ignored_is_a_warning",
    "fragments and operator expressions without their extension lines": "fragments",
    "metadata": "test_metadata_are_comments",
    "fragments named like operations of the standard": "redefined",
    "attributes without keyword": "positional_attributes",
    "keywords that are no parameter": "ignored_keyword",
    "one value in the place of an array": "positional_attributes",
    "arrays in the place of tuples": "lists_for_tuples",
    "integers in the place of scalars": "test_integers_in_the_place_of_scalars",
    "literals in the place of tensors": "literal_as_tensor",
    "a name that is assigned twice": "name_twice",
    "variables as attributes": "number_from_data",
    "variables of one number in double precision": "test_a_number_of_python_is_no_variable",
    "axes that are counted from the end": "test_axes_that_are_counted_from_the_end",
    "variables of integers and truth values": "integer_variable",
    "integers in arithmetic": "integer_division",
    "infinity": "infinity",
}


def test_every_difference_of_the_language_has_a_test() -> None:
    tests = (Path(__file__).parent / "test_reading.py").read_text("utf-8")
    known = {model.name for model in models()}
    assert [*COVERED] == [difference.what for difference in LANGUAGE]
    missing = [
        n for n in COVERED.values() if n not in known and f"def {n}(" not in tests
    ]
    assert missing == []
