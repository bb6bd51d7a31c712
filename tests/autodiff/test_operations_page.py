"""The page that says how each standard operation is differentiated, made of the rules."""

from __future__ import annotations

import pytest
from support.formulas import formulas
from support.operations_page import how, page, row, table, where
from support.tables import FOLDER, hold

from nnef_grad.base.source import Source
from nnef_grad.language.library import STDLIB
from nnef_grad.language.parser import parse_fragments

PAGE, TABLE = FOLDER.parent / "operations.md", FOLDER / "operations.csv"


def test_the_page_lists_all_operations(request: pytest.FixtureRequest) -> None:
    rewrite = request.config.getoption("--rewrite-cases")
    hold({PAGE: page(), TABLE: table()}, rewrite=rewrite)


@pytest.mark.parametrize("name", sorted(STDLIB))
def test_an_operation_is_in_the_table(name: str) -> None:
    assert how(name) in {"rule", "body", "rule and body", "zero", "none"}
    assert where(name)
    *_, derivative, remark, rule = row(name)
    assert bool(derivative or remark or rule) == (how(name) != "none")


@pytest.mark.parametrize(
    ("body", "typeset"),
    [
        (
            "dx = dy * (1.0 - y * y);",
            [r"\bar{x} = \bar{y} \cdot \left(1 - y \cdot y\right)"],
        ),
        ("a = -x; dx = dy - a;", [r"\bar{x} = \bar{y} - \left(-x\right)"]),
        (
            "a = dy / x; dx = a - (y - x);",
            [r"\bar{x} = \frac{\bar{y}}{x} - \left(y - x\right)"],
        ),
        (
            "a = x * y; dx = a + a * dy;",
            [r"a = x \cdot y", r"\bar{x} = a + a \cdot \bar{y}"],
        ),
        (
            "mask = x < 0.0; dx = select(mask, dy, 0.0);",
            [
                r"\bar{x} = \begin{cases} \bar{y} & \text{if } x < 0 \\ 0 & \text{otherwise} \end{cases}"
            ],
        ),
    ],
)
def test_a_rule_as_a_formula(body: str, typeset: list[str]) -> None:
    text = f"fragment f_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> ) {{ {body} }}"
    (rule,) = parse_fragments(Source("rule", text))
    assert formulas(rule) == typeset
