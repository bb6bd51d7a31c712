"""Graphs of one operation, evaluated by the interpreter and by the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nnef_grad
from nnef_grad.interpreter import evaluate
from support import reference
from support.checks import document

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Shape = list[int]

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-12

# What an input is, by the first letter of its name; others are scalar.
TYPES = {"i": "integer", "m": "logical"}
Case = tuple[str, dict[str, Shape]]
INF, NAN = math.inf, math.nan


def model(statement: str, **shapes: Shape) -> str:
    """A graph of one operation on inputs of the given shapes, in their order."""
    targets, operation = statement.split(" = ", 1)
    declared = [
        f"    {name} = external<{TYPES.get(name[0], 'scalar')}>(shape = {list(shape)});"
        for name, shape in shapes.items()
    ]
    body = "\n".join([*declared, f"    {targets} = {operation};"])
    outputs = targets.strip("[]()")
    return document(body, inputs=", ".join(shapes), outputs=outputs)


def operation_of(statement: str) -> str:
    return statement.split(" = ", 1)[1].split("(")[0].split("<")[0]


def feeds(text: str, seed: int = 0, high: int = 2) -> dict[str, Array]:
    generator = torch.Generator().manual_seed(seed)
    fed, _ = reference.random_feeds(text, generator, high=high)
    return {name: value.numpy() for name, value in fed.items()}


def torch_values(text: str, fed: Arrays) -> dict[str, Array]:
    """What the reference computes for all tensors."""
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in fed.items()}
    return {k: v.numpy() for k, v in reference.evaluate(text, tensors, {}).items()}


def close(actual: Array, expected: Array, tolerance: float = TOLERANCE) -> None:
    """Equal shapes and types; integers, infinities and NaN in the same places, and
    otherwise a small error, relative to the largest element.
    """
    assert actual.shape == expected.shape
    assert actual.dtype.kind == expected.dtype.kind
    if actual.dtype.kind != "f":
        assert np.array_equal(actual, expected)
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    scale = max(np.abs(expected[finite]).max(initial=0.0), 1e-3)
    np.testing.assert_allclose(
        actual[finite], expected[finite], rtol=tolerance, atol=tolerance * scale
    )


def all_close(actual: Arrays, expected: Arrays, tolerance: float = TOLERANCE) -> None:
    for name, value in actual.items():
        close(value, expected[name], tolerance)


def run(statement: str, fed: Mapping[str, Any], **shapes: Shape) -> list[Array]:
    return list(evaluate(nnef_grad.loads(model(statement, **shapes)), fed).values())
