"""Tests of the first operation of each that computes the same."""

from __future__ import annotations

import pytest
from support.checks import document

import nnef_grad
from nnef_grad.emit import emitter
from nnef_grad.emit.arguments import Call, settings_key
from nnef_grad.emit.emitter import ValueTable
from nnef_grad.graph.ir import Operation


def operations(*statements: str) -> list[Operation]:
    """The operations of statements about x."""
    body = "\n".join(["x = external(shape = [2, 3]);", *statements])
    names = [statement.split(" = ")[0] for statement in statements]
    return list(nnef_grad.loads(document(body, "x", ", ".join(names))).operations[1:])


def found(known: ValueTable, op: Operation) -> Operation | None:
    call = Call(op.definition, op.operands, op.settings, op.dtype)
    return known.find(call, settings_key(call))


def test_the_first_of_equal_operations_is_found() -> None:
    a, b, c, d = operations(
        "a = mul(x, 2.0);", "b = mul(x, 3.0);", "c = mul(x, 2.0);", "d = exp(x);"
    )
    known = ValueTable()
    assert found(known, a) is None
    for op in (a, b):
        known.add(op)
    assert found(known, c) is a
    assert found(known, b) is b
    assert found(known, d) is None
    known.add(c)
    assert found(known, c) is a


def test_operations_are_the_first_or_like_an_earlier_one() -> None:
    a, b, c = operations("a = mul(x, 2.0);", "b = mul(x, 3.0);", "c = mul(x, 2.0);")
    known = ValueTable()
    assert [known.first(op) for op in (a, b, c)] == [a, b, a]


def test_what_begins_like_no_other_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed: list[object] = []
    monkeypatch.setattr(emitter, "operation_key", lambda *call: keyed.append(call))
    known = ValueTable()
    for op in operations("a = exp(x);", "b = sin(x);", "c = add(a, b);"):
        known.first(op)
    assert keyed == []
