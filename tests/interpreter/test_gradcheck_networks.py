"""The check in networks, where every step crosses kinks: right gradients pass, and what is
wrong in one rule or in one layer is found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from support.googlenet import googlenet
from support.networks import SMALL, small_network
from support.planted import Change, found, places, planted, scaled

import nnef_grad

# Those of Khronos are large: checking one takes as long as a thousand small graphs.
NAMES = ["googlenet", *(pytest.param(n, marks=pytest.mark.thorough) for n in SMALL)]


@cache
def graph(name: str) -> nnef_grad.Graph:
    """A network for small images."""
    if name == "googlenet":
        return nnef_grad.loads(googlenet(image=32, thinner=8))
    return nnef_grad.loads(small_network(name))


@pytest.mark.parametrize("name", NAMES)
def test_right_gradients_pass(name: str) -> None:
    backward = nnef_grad.differentiate(graph(name))
    checked = nnef_grad.check(graph(name), backward)
    assert {g.verdict for g in checked.gradients} == {"ok"}
    assert max(g.error for g in checked.gradients) < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_that_is_off_by_a_factor_is_found(name: str) -> None:
    assert missed(name, scaled(1.001), list(places(graph(name)))) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_wrong_sign_is_found(name: str) -> None:
    """In one layer: those of two cancel."""
    names = [operation.name for operation in graph(name).operations]
    at = [p for p in places(graph(name)) if p[1] or names.count(p[0]) == 1]
    assert missed(name, scaled(-1.0), at) == []


def missed(
    name: str, change: Change, planted_at: list[tuple[str, str | None]]
) -> list[tuple[str, str | None]]:
    rules = ((place, planted(place[0], change, place[1])) for place in planted_at)
    return [at for at, wrong in rules if found(graph(name), wrong).verdict != "FAILED"]


# ---- Other errors ----


def wrong_mask(
    emit: Any, operation: nnef_grad.Operation, received: Sequence[Any], right: Any
) -> Sequence[Any]:
    """Of relu, positive from 1 on."""
    (x,), (dy,) = operation.inputs, received
    return [emit("select", emit("gt", x, 1.0), dy, 0.0)]


def wrong_argmax(
    emit: Any, operation: nnef_grad.Operation, received: Sequence[Any], right: Any
) -> Sequence[Any]:
    """Of max_pool: it goes to the smallest element of each window."""
    (x,), (dy,) = operation.inputs, received
    smallest = emit("argmax_pool", emit("neg", x), **operation.attributes)
    attributes = {**operation.attributes, "border": "constant", "output_shape": x.shape}
    return [emit("desample", dy, smallest, **attributes)]


@pytest.mark.parametrize(
    ("operation", "change"), [("relu", wrong_mask), ("max_pool", wrong_argmax)]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_decision_is_found(name: str, operation: str, change: Change) -> None:
    at = [place for place in places(graph(name)) if place[0] == operation]
    assert missed(name, change, at) == []


def test_a_forgotten_reduction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the terms, in place of their sum."""

    def first(emit: Any, gradient: Any, shape: Any) -> list[Any]:
        pairs = enumerate(zip(gradient.shape, shape, strict=True))
        axes = [axis for axis, (whole, part) in pairs if whole != part]
        ends = {"begin": [0] * len(axes), "end": [1] * len(axes)}
        return [emit("slice", gradient, axes=axes, **ends) if axes else gradient]

    batch = nnef_grad.loads(googlenet(image=32, batch=2, thinner=8))
    bias = batch.names[batch.variables[-1]]
    assert found(batch, nnef_grad.Rules(), [bias]).verdict == "ok"
    monkeypatch.setattr(
        sys.modules["nnef_grad.autodiff.differentiate"], "unbroadcast", first
    )
    assert found(batch, nnef_grad.Rules(), [bias]).verdict == "FAILED"
