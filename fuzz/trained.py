"""What must hold of a training step, whatever its settings: it is refused with a message; or
what is written of it can be read again, and it trains as the same model does under other
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

import nnef_grad
from fuzz.broken import Broken
from fuzz.clock import Clock
from fuzz.inputs import Input
from fuzz.steps import Names, renamed
from fuzz.written import read_again, statements
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.ir import Graph
from nnef_grad.language.labels import is_constant
from nnef_grad.storage.files import text_of
from nnef_grad.training import Step, run

STEPS = 3
# Gradients of many batches may be added up: then some of them are.
MOST_BATCHES = 8
# The same operations in the same order have the same results.
TOLERANCE = 1e-12

Array = Any
Data = dict[str, Array]


class Trained(NamedTuple):
    """The loss of each step, and the values of the variables after the last one, in the
    order in which they are declared.
    """

    losses: list[float]
    values: list[Array]


def examine_step(item: Input, clock: Clock) -> None:
    """Trains under the given names and under plain ones, and compares.

    Raises:
        NnefGradError: the step is refused under the given names.
        Broken: it is another step.
    """
    text, options = text_of(BytesIO(item.data), "<fuzz>").text, item.options["step"]
    names: Names = options["names"]
    found = trained(text, options, names, clock)
    try:
        wanted = trained(text, _with_constants(options), {}, clock)
    except NnefGradError as error:
        raise Broken("refused under plain names alone", error.message) from error
    clock.stop()
    _compare(found, wanted, names)


def _compare(found: Trained, wanted: Trained, names: Names) -> None:
    details = f"{dict(names)}: {found.losses} and not {wanted.losses}"
    if not _close(found.losses, wanted.losses):
        raise Broken("other losses under other names", details)
    pairs = zip(found.values, wanted.values, strict=True)
    if not all(_close(one, other) for one, other in pairs):
        raise Broken("other values under other names", details)


def _close(found: Array, wanted: Array) -> bool:
    return bool(np.allclose(found, wanted, TOLERANCE, 1e-300, equal_nan=True))


def _with_constants(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for plain names: a variable stays that would have the label of a
    constant, unless it is named among those to train.
    """
    settings, names = options["settings"], options["names"]
    constants = [plain for plain, word in names.items() if is_constant(word)]
    if not constants or settings.get("train") is not None:
        return dict(options)
    frozen = settings.get("freeze", ())
    listed = [frozen] if isinstance(frozen, str) else [*frozen]
    return {**options, "settings": {**settings, "freeze": [*listed, *constants]}}


# ---- The training ----


def trained(
    text: str, options: Mapping[str, Any], names: Names, clock: Clock
) -> Trained:
    """The losses and the values of some steps in numpy, in double precision."""
    clock(len(text))
    given = {n: renamed(options[n], names) for n in ("settings", "quant")}
    graph = nnef_grad.loads(renamed(text, names), quant=given["quant"])
    values = _values(graph)
    data = DATA[options["data"]](values)
    clock(len(text), check=True)
    step = nnef_grad.training_step(graph, data=data, **given["settings"])
    parts = [part for part in (step, step.apply) if part is not None]
    # No text of NNEF is a graph without inputs.
    for part in [part for part in parts if part.inputs]:
        written = nnef_grad.dumps(part.graph)
        # What is written for tract is read as what the standard has for it.
        is_standard = "tract_registry" not in written
        if read_again(written) != statements(written) and is_standard:
            raise Broken("what is written is read as another step")
    with np.errstate(all="ignore"):
        training = run(
            step,
            _batches(step, given["settings"]["loss"]),
            runtime="numpy",
            dtype=np.float64,
            **_rates(options),
        )
        losses = list(training)
    after = {label.lower(): value for label, value in training.data.items()}
    known = [label.lower() for label in graph.labels.values()]
    return Trained(losses, [after[label] for label in known if label in after])


def _values(graph: Graph) -> Data:
    """Values of the variables, by label: positive ones for what may be a variance."""
    random = np.random.default_rng(0)
    drawn = [random.standard_normal(t.shape).astype("f4") for t in graph.variables]
    positive = [abs(x) + np.float32(0.1) if x.shape[:1] == (1,) else x for x in drawn]
    return dict(zip(graph.labels.values(), positive, strict=True))


DATA: Mapping[str, Callable[[Data], Data | None]] = {
    "all": lambda data: data,
    "double": lambda data: {n: x.astype("f8") / 3.0 for n, x in data.items()},
    "none": lambda _: None,
    "empty": lambda _: {},
    "missing": lambda data: dict([*data.items()][1:]),
    "shape": lambda data: {n: x.reshape(-1) for n, x in data.items()},
    "integers": lambda data: {n: x.astype("i4") for n, x in data.items()},
    "logical": lambda data: {n: x > 0.0 for n, x in data.items()},
    "more": lambda data: {**data, "p99": np.zeros(3)},
    "nan": lambda data: {n: x * np.nan for n, x in data.items()},
}


def _batches(step: Step, loss: Any) -> list[list[Array]]:
    """Batches of the inputs of the model, and the targets after them."""
    count = len(step.model.inputs) + (len(loss) if isinstance(loss, Mapping) else 1)
    random = np.random.default_rng(1)
    tensors = step.graph.inputs[:count]
    return [
        [
            random.uniform(0.05, 0.95, tensor.shape)
            if tensor.dtype == "scalar"
            else random.integers(0, 2, tensor.shape)
            for tensor in tensors
        ]
        for _ in range(min(STEPS * step.accumulate, MOST_BATCHES))
    ]


def _rates(options: Mapping[str, Any]) -> dict[str, Any]:
    """The learning rate, if it is no number of the step, and the scale of the loss."""
    rates = {"loss_scale": _schedule(options["scale"])}
    if options["settings"].get("learning_rate") is None:
        rates["learning_rate"] = _schedule(options["rate"])
    return rates


def _schedule(rate: Any) -> Any:
    """A number; or, for two of them, one that is multiplied by the other at each step."""
    if not isinstance(rate, list):
        return rate
    first, factor = rate
    return lambda steps: first * factor**steps
