"""Checks, costs and reports: what the command lines say of gradients besides writing
them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import nnef_grad
from nnef_grad.base.errors import Problem, UsageError
from nnef_grad.base.frozen import NOTHING
from nnef_grad.commandline import console
from nnef_grad.commandline.opening import arrays_in
from nnef_grad.opening import Opened

WRONG_GRADIENT = 1
# In the place of a file of inputs.
RANDOM = "random"


@dataclass(frozen=True)
class Checking:
    """The options of checks and messages, and --force; see `nnef-grad --help`."""

    check: bool
    check_seed: int
    check_memory: float | None
    inputs: str | None
    stats: str | None
    report: str | None
    format: str
    quiet: bool
    force: bool

    @property
    def as_json(self) -> bool:
        """Whether messages are for programs."""
        return self.format == "json"

    @cached_property
    def progress(self) -> console.Progress:
        """The display of progress for a person."""
        return console.Progress(shown=not self.quiet and not self.as_json)

    def refuse(self, others: Sequence[str]) -> None:
        """Refuses what cannot be written or has no use, before anything is computed."""
        if self.inputs is not None and not self.check and self.report is None:
            raise UsageError("--inputs is for --check or --report: give one of them")
        if self.report is None:
            return
        from nnef_grad.reports import refuse_page

        refuse_page(self.report, overwrite=self.force)
        if os.path.realpath(self.report) in map(os.path.realpath, others):
            what = f"the report '{self.report}' is also MODEL, OUT or FORWARD"
            raise UsageError(what)

    def print_costs(
        self,
        graphs: Mapping[str, nnef_grad.Graph],
        halves: nnef_grad.Split | None = None,
        spared: nnef_grad.Recomputation | None = None,
    ) -> None:
        """Prints what graphs, halves and recomputed tensors cost, if wanted."""
        if self.stats is None:
            return
        from nnef_grad.autodiff.statistics import (
            operation_table,
            side_by_side,
            split_costs,
        )

        costs = {name: nnef_grad.statistics(graph) for name, graph in graphs.items()}
        by_operation = self.stats == "full"
        together = None if halves is None else split_costs(halves)
        if self.as_json:
            data = {n: c.as_data(by_operation=by_operation) for n, c in costs.items()}
            if together is not None:
                data["together"] = asdict(together)
            if spared is not None:
                data["recompute"] = spared.as_data()
            console.print_message(console.as_json(statistics=data))
            return
        for cost in costs.values() if by_operation else ():
            console.print_message(f"{cost.name}\n{operation_table(cost)}\n")
        for part in (side_by_side([*costs.values()]), together, spared):
            if part is not None:
                console.print_message(str(part))

    @contextmanager
    def examined(
        self,
        opened: Opened,
        graph: nnef_grad.Graph,
        backward: nnef_grad.Backward,
        *,
        constants: Mapping[str, Any] = NOTHING,
        shown: nnef_grad.Backward | None = None,
    ) -> Iterator[None]:
        """Compares gradients of a model, or of a graph that is made of it, with `constants`
        as what a target made variables; then the page of the report is complete before what
        is written meanwhile, and there after it. It may show another graph. A wrong
        gradient ends the program: the page shows it, and nothing else is written.
        """
        is_evaluated = self.check or self.inputs is not None
        gibibytes = self.check_memory
        own = opened.drawn(self.check_seed) if is_evaluated else {}
        drawn = {
            name: array for name, array in own.items() if name in graph.input_names
        }
        point: dict[str, Any] = {
            "inputs": drawn | _inputs(self.inputs, opened.named),
            "variables": {**opened.arrays, **constants} if is_evaluated else {},
            "seed": self.check_seed,
            "rules": opened.rules,
            "memory": None if gibibytes is None else int(gibibytes * 2**30),
        }
        checked = values = None
        if self.check:
            checked = self._checked(opened, graph, backward, point)
        elif is_evaluated:
            with self.progress.stage("evaluating gradients"):
                from nnef_grad.interpreter.gradcheck import spreads

                values = spreads(graph, backward, **point)
        with self.progress.stage("writing"), ExitStack() as pages:
            if self.report is not None:
                from nnef_grad.reports import page_after, page_of

                of = shown or backward
                rules, called = opened.rules, opened.names(of)
                text = page_of(graph, of, rules, checked, values, called=called)
                page = page_after(self.report, text, overwrite=self.force)
                pages.enter_context(page)
            if checked is None or checked.passed:
                yield
        if checked is not None and not checked.passed:
            sys.exit(WRONG_GRADIENT)

    def _checked(
        self,
        opened: Opened,
        graph: nnef_grad.Graph,
        backward: nnef_grad.Backward,
        point: Mapping[str, Any],
    ) -> nnef_grad.Checked:
        """How gradients compare, which is printed."""
        from nnef_grad.interpreter.gradcheck import Table

        shapes, tensors = opened.shapes(backward), backward.graph.tensors
        table = Table(
            (opened.called(name, gradient), shapes.get(name, tensors[gradient].shape))
            for name, gradient in backward.gradients.items()
        )

        def report(row: nnef_grad.CheckedGradient, done: int, total: int) -> None:
            self.progress.update(done, total)
            if not self.as_json:
                heading = [table.heading] if done == 1 else []
                line = table.row(opened.shown(row, shapes))
                self.progress.print("\n".join([*heading, line]))

        with self.progress.stage("checking gradients"):
            checked = nnef_grad.check(graph, backward, report=report, **point)
        shown = tuple(opened.shown(row, shapes) for row in checked.gradients)
        told = replace(checked, gradients=shown)
        as_json = console.as_json(check=told.as_data()) if self.as_json else None
        console.print_message(as_json or checked.conclusion)
        return checked

    def tell(self, warnings: Sequence[Problem], summary: str) -> None:
        """Writes warnings and a summary to stderr."""
        summary = "" if self.quiet else summary
        if self.as_json:
            told = [warning.as_data() for warning in warnings]
            console.print_message(console.as_json(warnings=told, summary=summary))
            return
        for text in (*(warning.render("warning") for warning in warnings), summary):
            if text:
                console.print_message(text)


def _inputs(
    path: str | None, named: Callable[[list[str]], list[str]]
) -> dict[str, Any]:
    """The arrays in a file that numpy.savez has written; none if all are to be random."""
    if path is None or path == RANDOM:
        return {}
    arrays = arrays_in(path)
    return dict(zip(named([*arrays]), arrays.values(), strict=True))
