"""What a consumer is given, what becomes of it, and whether that is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Failure = Literal["refused", "crashed", "timed out"]
Word = Literal[
    "ok",
    "wrong",
    "wrong shape",
    "lost outputs",
    "refused",
    "crashed",
    "timed out",
    "not lowered",
]

# Consumers compute in float32.
TOLERANCE = 1e-4
# What ought to vanish is compared with this: it is the rounding of larger numbers.
SCALE = 1e-2
LENGTH = 400


@dataclass(frozen=True)
class Case:
    """A graph with its data.

    Attributes:
        text: the document.
        inputs: an array for each input, by name: of floats for a scalar tensor, of
            integers for an integer one, of bools for a logical one. Each consumer gets
            the precision that it wants.
        variables: the same for each variable, by the label as it is written.
    """

    text: str
    inputs: Mapping[str, Array]
    variables: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """A model as it is stored, with its inputs.

    Attributes:
        folder: a folder with graph.nnef and the files of its variables.
        inputs: an array for each input, as in a case.
    """

    folder: Path
    inputs: Mapping[str, Array]


@dataclass(frozen=True)
class Outcome:
    """What a consumer made of a case.

    Attributes:
        shapes: those of the outputs that there are, by name; empty if it failed.
        outputs: the outputs themselves, if numbers are computed.
        failure: how it failed, if it did.
        message: what it said then: the error, or the signal and the end of stderr.
        others: what it made of the case in other settings, by what these are called.
    """

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    outputs: Mapping[str, Array] = field(default_factory=dict)
    failure: Failure | None = None
    message: str = ""
    others: Mapping[str, Outcome] = field(default_factory=dict)


class Verdict(NamedTuple):
    """Whether a consumer is right.

    Attributes:
        word: the verdict.
        detail: the first output that is not as expected, or what the consumer said.
        error: the largest relative error of an output, in the maximum norm.
    """

    word: Word
    detail: str = ""
    error: float = 0.0


def compare(
    outcome: Outcome, expected: Mapping[str, Array], tolerance: float = TOLERANCE
) -> Verdict:
    """The verdict on an outcome: the first that is not right, of those in all settings.

    Args:
        outcome: of a case.
        expected: each output by name, in double precision.
        tolerance: of the error of an output, relative to its largest number.
    """
    verdict = _compare(outcome, expected, tolerance)
    for setting, other in outcome.others.items():
        if verdict.word == "ok":
            word, detail, error = compare(other, expected, tolerance)
            told = "" if word == "ok" else f"{setting}: {detail}"
            verdict = Verdict(word, told, max(error, verdict.error))
    return verdict


def _compare(
    outcome: Outcome, expected: Mapping[str, Array], tolerance: float
) -> Verdict:
    """The verdict on an outcome in one setting."""
    if outcome.failure is not None:
        return Verdict(outcome.failure, outcome.message)
    lost = [name for name in expected if name not in outcome.shapes]
    if lost:
        return Verdict("lost outputs", ", ".join(lost))
    for name, array in expected.items():
        if outcome.shapes[name] != array.shape:
            shapes = f"{list(outcome.shapes[name])}, not {list(array.shape)}"
            return Verdict("wrong shape", f"{name}: {shapes}")
    return _compare_numbers(outcome.outputs, expected, tolerance)


def _compare_numbers(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float
) -> Verdict:
    errors = {name: relative_error(outputs[name], expected[name]) for name in outputs}
    worst = max(errors.values(), default=0.0)
    for name, error in errors.items():
        if error > tolerance:
            return Verdict("wrong", f"{name}: relative error {error:.2g}", worst)
    return Verdict("ok", error=worst)


def brief(message: str) -> str:
    """A message on one line. The beginning and the end of a long one tell the most."""
    line = " ".join(message.split())
    half = LENGTH // 2
    return line if len(line) <= LENGTH else f"{line[:half]} [...] {line[-half:]}"


def relative_error(actual: Array, expected: Array) -> float:
    """The largest difference over the largest number; infinite where one is finite and
    the other one is not.
    """
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    if not np.isfinite(actual[finite]).all():
        return float("inf")
    difference = np.abs(actual[finite] - expected[finite]).max(initial=0.0)
    return float(difference / np.abs(expected[finite]).max(initial=SCALE))
