"""What the step computes: the losses and all variables against torch's."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import nnef_grad
from support import reference
from support.random_graphs.graphs import RandomGraph
from support.training_steps import Evaluated

from .optimizers import torch_settings
from .steps import RATE, RandomStep

TOLERANCE = 1e-7


@dataclass(frozen=True)
class Outcome:
    """What became of a step: `passed`, `no derivative`, `no numbers`, or what is wrong."""

    kind: str
    message: str = ""
    error: float = 0.0

    @property
    def failed(self) -> bool:
        return self.kind not in (PASSED, SKIPPED, NOT_FINITE)


PASSED, SKIPPED, NOT_FINITE = "passed", "no derivative", "no numbers"


def compare(step: RandomStep) -> Outcome:
    """Trains in both, and compares the losses and all variables."""
    try:
        return _compared(step)
    except nnef_grad.NoDerivativeError as error:
        return Outcome(SKIPPED, error.message)
    except Exception as error:
        return Outcome(type(error).__name__, traceback.format_exc(limit=-3))


def _compared(step: RandomStep) -> Outcome:
    made = nnef_grad.training_step(
        nnef_grad.loads(step.graph.text),
        loss={name: loss.recipe for name, loss in step.losses.items()},
        optimizer=step.recipe,
        data={k: v.numpy() for k, v in step.graph.variables.items()},
        **step.options,
    )
    parts = [made] if made.apply is None else [made, made.apply]
    labels = {label for part in parts for label in part.labels.values()}
    ours = Evaluated(made)
    peer = _Peer(step, {k for k in step.graph.variables if k in labels})
    worst = 0.0
    for number, feeds in enumerate(step.feeds):
        rate = RATE * (1 + number)
        expected = peer.step(feeds, rate)
        if not peer.is_finite(expected):
            return Outcome(NOT_FINITE)
        fed = {name: value.numpy() for name, value in feeds.items()}
        reports = ours(fed, learning_rate=rate, loss_scale=64.0)
        found = torch.tensor(reports[made.outputs[0]])
        worst = max(worst, _error(found, found.new_tensor(expected)))
        for label, value in peer.parameters.items():
            if label not in ours.values:
                continue  # the losses do not depend on it
            given = torch.as_tensor(ours.values[label])
            worst = max(worst, _error(given, value.detach()))
        if worst > TOLERANCE:
            message = f"relative error {worst:.2g} after {number + 1} batches"
            return Outcome("wrong", f"{message}\n{nnef_grad.dumps(made.graph)}", worst)
    return Outcome(PASSED, error=worst)


def _error(found: Tensor, expected: Tensor) -> float:
    if not expected.numel():
        return 0.0
    difference = (found.double() - expected.double()).abs().max()
    return float(difference) / max(float(expected.double().abs().max()), 1e-3)


class _Peer:
    """The same in torch.

    Attributes:
        parameters: all variables, by label.
    """

    def __init__(self, step: RandomStep, trained: set[str]) -> None:
        self.parameters: dict[str, Tensor] = {}
        left_out = {*step.options.get("freeze", ()), *_running(step.graph)}
        for label, value in step.graph.variables.items():
            moves = value.is_floating_point() and label not in left_out
            self.parameters[label] = value.clone().requires_grad_(moves)
        self._trained = {k: p for k, p in self.parameters.items() if k in trained}
        self._step = step
        self._count = 0
        self._rates: list[bool] = []
        self._optimizer = self._make()

    def _make(self) -> torch.optim.Optimizer:
        name, settings, make = self._step.optimizer
        given = self._step.options.get("groups", {})
        groups = [
            {
                "params": [parameter],
                **torch_settings(name, {**settings, **given.get(label, {})}),
            }
            for label, parameter in self._trained.items()
        ]
        # Whose learning rate is not that of all.
        self._rates = ["lr" in group for group in groups]
        if name == "adagrad":
            return _adagrad(groups)
        return make(groups, RATE)

    def step(self, feeds: Mapping[str, Tensor], rate: float) -> float:
        """The loss of a batch, which is then learnt from."""
        options = self._step.options
        tensors = reference.evaluate(self._step.graph.text, feeds, self.parameters)
        total = sum(
            loss.peer(tensors[name], feeds[f"target_{name}"])
            for name, loss in self._step.losses.items()
        )
        for label, factor in options.get("l2", {}).items():
            total = total + 0.5 * factor * (self.parameters[label] ** 2).sum()
        assert isinstance(total, Tensor)
        count = options.get("accumulate", 1)
        (total / count).backward()
        self._count += 1
        if self._count % count == 0:
            self._learn(rate)
        return float(total.item())

    def _learn(self, rate: float) -> None:
        options, parameters = self._step.options, [*self._trained.values()]
        for label in self.parameters.keys() - self._trained.keys():
            gradient = self.parameters[label].grad
            assert gradient is None or not gradient.any(), f"'{label}' is not trained"
        for parameter in parameters:
            # What only rounding leads to has a gradient of zeros.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if "clip_value" in options:
            torch.nn.utils.clip_grad_value_(parameters, options["clip_value"])
        if "clip_norm" in options:
            torch.nn.utils.clip_grad_norm_(parameters, options["clip_norm"])
        for group, is_own in zip(
            self._optimizer.param_groups, self._rates, strict=True
        ):
            if not is_own:
                group["lr"] = options.get("learning_rate", rate)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def is_finite(self, loss: float) -> bool:
        """Whether there is something to compare."""
        values = [p for p in self._trained.values() if not bool(p.isfinite().all())]
        return bool(np.isfinite(loss)) and not values


def _running(graph: RandomGraph) -> Iterator[str]:
    """The labels of running means and variances."""
    labels = {
        s.outputs[0]: str(s.attributes["label"])
        for s in graph.statements
        if s.operation == "variable"
    }
    for statement in graph.statements:
        if statement.operation == "batch_normalization":
            yield from (labels[n] for n in statement.operands[1:3] if n in labels)


def _adagrad(groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    """torch has the first accumulators for all groups alone."""
    values = {group.pop("initial_accumulator_value", 0.0) for group in groups}
    (value,) = values
    return torch.optim.Adagrad(groups, lr=RATE, initial_accumulator_value=value)
