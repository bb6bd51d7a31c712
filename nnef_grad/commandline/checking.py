"""Checks, costs and reports: what the command lines say of gradients besides writing
them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nnef_grad
from nnef_grad.base.errors import UsageError
from nnef_grad.base.frozen import NOTHING
from nnef_grad.commandline import console
from nnef_grad.commandline.opening import Opened
from nnef_grad.commandline.progress import Progress

WRONG_GRADIENT = 1
# In the place of a file of inputs.
RANDOM = "random"


@dataclass(frozen=True)
class Checking:
    """The options under the heading "Checking"; see `nnef-grad --help`."""

    check: bool
    check_seed: int
    check_memory: float | None
    inputs: str | None
    stats: str | None
    report: str | None

    @property
    def evaluates(self) -> bool:
        """Whether gradients are evaluated."""
        return self.check or self.inputs is not None

    def refuse(self, others: Sequence[str], force: bool) -> None:
        """Refuses what cannot be written or has no use, before anything is computed."""
        if self.inputs is not None and not self.check and self.report is None:
            raise UsageError("--inputs is for --check or --report: give one of them")
        if self.report is None:
            return
        from nnef_grad.reports import refuse_page

        refuse_page(self.report, overwrite=force)
        if os.path.realpath(self.report) in map(os.path.realpath, others):
            what = f"the report '{self.report}' is also MODEL, OUT or FORWARD"
            raise UsageError(what)

    def print_costs(
        self,
        graphs: Mapping[str, nnef_grad.Graph],
        *,
        as_json: bool,
        halves: nnef_grad.Split | None = None,
        spared: nnef_grad.Recomputation | None = None,
    ) -> None:
        """Prints what graphs cost, and two halves together, and what computing tensors
        again adds, if that is wanted.
        """
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
        if as_json:
            data = {n: c.as_data(by_operation=by_operation) for n, c in costs.items()}
            if together is not None:
                data["together"] = asdict(together)
            if spared is not None:
                data["recompute"] = spared.as_data()
            console.print_message(console.as_json(statistics=data))
            return
        for found in costs.values() if by_operation else ():
            console.print_message(f"{found.name}\n{operation_table(found)}\n")
        console.print_message(side_by_side([*costs.values()]))
        if together is not None:
            console.print_message(str(together))
        if spared is not None:
            console.print_message(str(spared))

    @contextmanager
    def examined(
        self,
        opened: Opened,
        graph: nnef_grad.Graph,
        backward: nnef_grad.Backward,
        progress: Progress,
        *,
        constants: Mapping[str, Any] = NOTHING,
        as_json: bool,
        force: bool,
        shown: nnef_grad.Backward | None = None,
    ) -> Iterator[None]:
        """Compares gradients; then the page of the report is complete before what is
        written meanwhile, and there after it. A wrong gradient ends the program: the page
        shows it, and nothing else is written.

        Args:
            opened: the model.
            graph: the forward graph: that of the model, or one that is made of it.
            backward: its backward graph.
            progress: what a person looks at meanwhile.
            constants: the data of what a target made variables, by label.
            as_json: whether the comparison is printed for programs.
            force: whether the page may replace a file.
            shown: what the page shows in the place of the backward graph.
        """
        point: dict[str, Any] = {
            "inputs": _inputs(self.inputs, opened.named),
            "variables": {**opened.arrays, **constants} if self.evaluates else {},
            "seed": self.check_seed,
            "rules": opened.rules,
            "memory": None if self.check_memory is None else _bytes(self.check_memory),
        }
        checked = values = None
        if self.check:
            checked = _checked(graph, backward, progress, as_json, point)
        elif self.inputs is not None:
            with progress.stage("evaluating gradients"):
                from nnef_grad.interpreter.gradcheck import spreads

                values = spreads(graph, backward, **point)
        with progress.stage("writing"), ExitStack() as pages:
            if self.report is not None:
                from nnef_grad.reports import page_after, page_of

                text = page_of(graph, shown or backward, opened.rules, checked, values)
                pages.enter_context(page_after(self.report, text, overwrite=force))
            if checked is None or checked.passed:
                yield
        if checked is not None and not checked.passed:
            sys.exit(WRONG_GRADIENT)


def _bytes(gibibytes: float) -> int:
    return int(gibibytes * 2**30)


def _checked(
    graph: nnef_grad.Graph,
    backward: nnef_grad.Backward,
    progress: Progress,
    as_json: bool,
    point: Mapping[str, Any],
) -> nnef_grad.Checked:
    """How gradients compare, which is printed."""
    from nnef_grad.interpreter.gradcheck import Table

    made = backward.graph
    shapes = (made.tensors[name].shape for name in backward.gradients.values())
    table = Table(zip(backward.gradients.values(), shapes, strict=True))

    def report(found: nnef_grad.CheckedGradient, done: int, total: int) -> None:
        progress.update(done, total)
        if not as_json:
            heading = [table.heading] if done == 1 else []
            progress.print("\n".join([*heading, table.row(found)]))

    with progress.stage("checking gradients"):
        checked = nnef_grad.check(graph, backward, report=report, **point)
    if as_json:
        console.print_message(console.as_json(check=checked.as_data()))
    else:
        console.print_message(checked.conclusion)
    return checked


def _inputs(
    path: str | None, named: Callable[[list[str]], list[str]]
) -> Mapping[str, Any]:
    """The arrays in a file that numpy.savez has written; none are given if all are to be
    random.
    """
    if path is None or path == RANDOM:
        return {}
    import numpy as np

    try:
        if Path(path).suffix != ".npz":
            raise ValueError("it is not called x.npz")
        with np.load(path, allow_pickle=False) as stored:
            return dict(zip(named([*stored]), stored.values(), strict=True))
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror or error}") from None
    except Exception as error:
        what = f"'{path}' has no arrays of numpy.savez: {error}"
        raise UsageError(what) from None
