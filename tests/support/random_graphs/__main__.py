"""`python -m support.random_graphs --graphs 10000 --twice 1000 --seed 1 --jobs 2`: the gradients
of that many graphs against torch's; the exit code is 1 where some are wrong.

`--target portable` runs their backward graphs in the runtimes of a target instead, those of
`--order 2` as well; `--target onnx-portable --in tvm iree`, in engines of ONNX. With
`--open`, their batch and their number of steps are symbols, and they have loops: `--open
--target onnx`. With `--open images`, height and width are symbols too, and a table tells
where a number is needed.
`--replay 1:42` runs graph 42 of seed 1 alone, twice, and `--show 1:42` prints it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from . import open_graphs, open_images
from .compare import compare
from .generate import make_graph
from .open_compare import run_open
from .open_images_compare import run_images
from .run import report, run
from .runtimes import run_in_runtimes

# The kinds of graphs with symbols: how one is made, and how many are compared.
OPEN: dict[str, tuple[Callable[..., Any], Callable[..., int]]] = {
    "loops": (open_graphs.make_graph, run_open),
    "images": (open_images.make_graph, run_images),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 where something failed."""
    parser = argparse.ArgumentParser("random_graphs", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--twice", type=int, help="so many of them twice, or a tenth")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", help="run them in the runtimes of a target")
    parser.add_argument(
        "--open", nargs="?", const="loops", choices=[*OPEN], help="with symbols"
    )
    parser.add_argument("--in", nargs="+", dest="runtimes", help="in these instead")
    parser.add_argument("--order", type=int, default=1, help="of gradients in runtimes")
    parser.add_argument("--show", metavar="SEED:NUMBER", help="print a graph")
    parser.add_argument("--replay", metavar="SEED:NUMBER", help="run a graph alone")
    options = parser.parse_args(arguments)
    in_runtimes = partial(run_in_runtimes, runtimes=options.runtimes)
    made, compared = OPEN.get(options.open, (make_graph, in_runtimes))
    if options.show:
        print(made(*_numbers(options.show)).text)
        return 0
    if options.replay:
        return _replay(*_numbers(options.replay))
    if options.target:
        failed = compared(options.seed, options.graphs, options.target, options.order)
        return 1 if failed else 0
    twice = options.graphs // 10 if options.twice is None else options.twice
    found = run(options.seed, options.graphs, twice, options.jobs)
    print(found.summary())
    return 1 if found.failures else 0


def _numbers(name: str) -> tuple[int, int]:
    seed, number = name.split(":")
    return int(seed), int(number)


def _replay(seed: int, number: int) -> int:
    graph = make_graph(seed, number)
    for twice in (False, True):
        outcome = compare(graph, twice)
        if outcome.failed:
            print(report(graph, outcome, twice))
            return 1
    print(f"{graph.name}: {outcome.kind} {outcome.message} error {outcome.error:.2g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
