"""Every standard operation has a decision on its derivative, and every rule keeps the
convention.
"""

from __future__ import annotations

import re
from pathlib import Path

import nnef
import pytest

import nnef_grad
from nnef_grad.typecheck import check_fragments
from nnef_grad.library import standard
from nnef_grad.ops import RULES, SHAPES
from nnef_grad.rules import SUFFIX, Rules, calculus, signature_problems

# Primitive operations on scalars that a later version differentiates; they stop the
# compiler with an error.
UNDECIDED = {"multilinear_upsample", "avg_roi_pool", "max_roi_pool", "roi_resample"}


def scalar_operands(name: str) -> list[str]:
    operands = standard()[name].operands
    return [p.name for p in operands if re.search(r"<(scalar|\?|)>", str(p.type))]


@pytest.mark.parametrize("name", sorted(standard()))
def test_a_standard_operation_has_a_shape_and_a_derivative(name: str) -> None:
    assert name in SHAPES
    has_rule = Rules().find(name) is not None or standard()[name].body is not None
    assert has_rule or not scalar_operands(name) or name in UNDECIDED
    assert name not in UNDECIDED or not has_rule


@pytest.mark.parametrize("name", sorted(calculus()))
def test_a_rule_has_the_parameters_of_its_operation(name: str) -> None:
    operation = standard()[name.removesuffix(SUFFIX)]
    assert list(signature_problems(calculus()[name], operation)) == []


@pytest.mark.parametrize("name", sorted(calculus()))
def test_a_rule_gives_a_gradient_for_each_scalar_operand(name: str) -> None:
    operation = name.removesuffix(SUFFIX)
    assert [r.name for r in calculus()[name].results] == [
        f"d{operand}" for operand in scalar_operands(operation)
    ]


def test_the_rules_and_the_standard_library_are_well_typed() -> None:
    rules = {**standard(), **calculus()}
    assert check_fragments(rules.values(), rules) == []


def test_an_operation_has_one_rule() -> None:
    assert not {name + SUFFIX for name in RULES} & set(calculus())


def test_the_khronos_parser_reads_the_rules() -> None:
    folder = Path(nnef_grad.__file__).parent
    library = (folder / "stdlib.nnef").read_text("utf-8") + (
        folder / "derivatives.nnef"
    ).read_text("utf-8")
    text = "version 1.0;\ngraph net( x ) -> ( y ) { x = external(shape = [1]); y = relu(x); }"
    assert nnef.parse_string(text, stdlib=library).name == "net"


def test_what_a_rule_in_nnef_emits_has_a_derivative_itself() -> None:
    text = (Path(nnef_grad.__file__).parent / "derivatives.nnef").read_text("utf-8")
    code = re.sub(r"#.*", "", text)
    called = set(re.findall(r"\b(\w+)\(", code)) & set(standard())
    assert {"matmul", "select", "exp"} <= called
    for name in called - UNDECIDED:
        assert Rules().find(name) is not None, name
