"""The page that says how each standard operation is differentiated, made of the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnef_grad.autodiff.rule_files import SUFFIX
from nnef_grad.autodiff.rules import Rules, derivative_library
from nnef_grad.language.library import standard
from nnef_grad.ops import DECOMPOSITIONS, RULES
from nnef_grad.ops.traits import DECISIONS, SOURCES, STEPS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
HEAD = """# How each operation is differentiated

All {count} operations of the NNEF 1.0.5 standard library. The page is made of the rules, and
a test fails where it does not agree with them.

- **rule**: a derivative of its own, written in NNEF in
  [`derivatives.nnef`](../nnef_grad/autodiff/derivatives.nnef), or in Python beside the
  operation's shape function where it needs shapes.
- **body**: its definition is differentiated, from the standard library or, where it needs
  shapes, in Python.
- **zero**: a step function. The derivative is zero wherever there is one.
- **none**: there is nothing to differentiate. `SOURCES` have no operands; the results of
  `DECISIONS` are truth values and indices.

What has no derivative is listed by name in [`ops/traits.py`](../nnef_grad/ops/traits.py):
it is never for want of a rule.

Every operation that a rule or a body uses is in the table, so every backward graph can be
differentiated again. Where the derivative is a choice, [the conventions](conventions.md) say
which.

| operation | how | where |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [f"| `{name}` | {how(name)} | {where(name)} |" for name in standard()]
    return HEAD.format(count=len(rows)) + "\n".join(rows) + "\n"


def how(name: str) -> str:
    """How an operation is differentiated."""
    if name in SOURCES | DECISIONS:
        return "none"
    if name in STEPS:
        return "zero"
    if Rules().rule(name) is not None:
        return "rule and body" if name in DECOMPOSITIONS else "rule"
    return "body"


LISTED = {"SOURCES": SOURCES, "DECISIONS": DECISIONS, "STEPS": STEPS}


def where(name: str) -> str:
    """The files that say so, with what stands there."""
    places = [
        f"`{table}` in ops/traits.py" for table in LISTED if name in LISTED[table]
    ]
    if name + SUFFIX in derivative_library():
        places.append(f"`{name}{SUFFIX}` in derivatives.nnef")
    elif name in RULES:
        places.append(_python(RULES[name]))
    if name in DECOMPOSITIONS:
        places.append(_python(DECOMPOSITIONS[name].build))
    if not places and how(name) == "body":
        places.append("stdlib.nnef")
    return ", ".join(places)


def _python(function: object) -> str:
    names = (getattr(function, "__module__"), getattr(function, "__name__"))  # noqa: B009
    module, name = names
    return f"`{name}` in {module.removeprefix('nnef_grad.').replace('.', '/')}.py"


def test_the_page_lists_all_operations(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite-cases"):
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page()


@pytest.mark.parametrize("name", sorted(standard()))
def test_an_operation_is_on_the_page(name: str) -> None:
    row = next(r for r in page().splitlines() if r.startswith(f"| `{name}` |"))
    assert row.split(" | ")[1] in {"rule", "body", "rule and body", "zero", "none"}
    assert where(name)
