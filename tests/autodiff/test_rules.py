"""Every standard operation has a decision on its derivative, and every rule keeps the
convention.
"""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import nnef
import pytest
from support.checks import document
from support.standard import scalar_operands

import nnef_grad
from nnef_grad.autodiff.rules import (
    DERIVATIVES,
    SUFFIX,
    Rules,
    signature_problems,
)
from nnef_grad.language.library import STDLIB
from nnef_grad.language.types import OPERATIONS
from nnef_grad.ops import DECOMPOSITIONS, RULES, SHAPES
from nnef_grad.ops.traits import DECISIONS, FLAT, SOURCES

# No operation has a derivative by omission: the others have a rule or a body.
NOT_DIFFERENTIABLE = SOURCES | DECISIONS | FLAT


def has_derivative(name: str) -> bool:
    by_body = name in DECOMPOSITIONS or STDLIB[name].body is not None
    rule = Rules().rule(name)
    return by_body or (rule is not None and not rule.is_zero)


@pytest.mark.parametrize("name", sorted(STDLIB))
def test_a_standard_operation_has_a_shape_and_a_derivative_or_is_listed(
    name: str,
) -> None:
    assert name in SHAPES
    assert has_derivative(name) == (name not in NOT_DIFFERENTIABLE)


@pytest.mark.parametrize("name", sorted(DERIVATIVES))
def test_a_rule_has_the_parameters_of_its_operation(name: str) -> None:
    operation = STDLIB[name.removesuffix(SUFFIX)]
    assert list(signature_problems(DERIVATIVES[name], operation)) == []


@pytest.mark.parametrize("name", sorted(DERIVATIVES))
def test_a_rule_gives_a_gradient_for_each_scalar_operand(name: str) -> None:
    operation = name.removesuffix(SUFFIX)
    assert [r.name for r in DERIVATIVES[name].results] == [
        f"d{operand}" for operand in scalar_operands(operation)
    ]


def test_an_operation_has_one_rule() -> None:
    assert not {name + SUFFIX for name in RULES} & set(DERIVATIVES)


def test_the_khronos_parser_reads_the_rules() -> None:
    library = "".join(f.path.read_text("utf-8") for f in (STDLIB, DERIVATIVES))
    text = "version 1.0;\ngraph net( x ) -> ( y ) { x = external(shape = [1]); y = relu(x); }"
    assert nnef.parse_string(text, stdlib=library).name == "net"


PACKAGE = Path(nnef_grad.__file__).parent


def emitted() -> set[str]:
    """The operations that the rules and bodies name."""
    rules = DERIVATIVES.path.read_text("utf-8")
    found = set(re.findall(r"\b(\w+)(?:<\w+>)?\(", re.sub(r"#.*", "", rules)))
    for path in sorted((PACKAGE / "ops").glob("*.py")):
        found |= set(_named(ast.parse(path.read_text("utf-8"))))
    return found & set(STDLIB)


def _named(tree: ast.AST) -> list[str]:
    """The first arguments of the calls of `emit`."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    firsts = (c.args[0] for c in calls if ast.unparse(c.func) == "emit" and c.args)
    return [a.value for a in firsts if isinstance(a, ast.Constant)]  # type: ignore[misc]


def test_what_rules_emit_has_a_rule_or_a_body() -> None:
    used = emitted() | {name for name in OPERATIONS.values() if name in STDLIB}
    assert {"conv", "deconv", "matmul", "select", "desample", "pad"} <= used
    for name in used:
        assert has_derivative(name) or name in NOT_DIFFERENTIABLE, name


def test_rules_can_be_sent_to_another_process() -> None:
    rules = pickle.loads(pickle.dumps(nnef_grad.Rules()))
    graph = nnef_grad.loads(document("x = external(shape = [2]); y = exp(x);"))
    backward = nnef_grad.differentiate(graph, rules=rules)
    assert nnef_grad.dumps(backward) == nnef_grad.dumps(nnef_grad.differentiate(graph))
