"""Prints which consumers run the models of operations.txt, and what the others say.

Run it in the folder of the tests: python -m support.runtimes --models '^conv-'
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from support.operation_models import Model, models
from support.runtimes.blame import blamed
from support.runtimes.cases import brief
from support.runtimes.harness import CONSUMERS, ENGINES, SECONDS, missing
from support.runtimes.matrix import DIRECTIONS, Lower, Matrix, example, matrix


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    consumers = [name for name in options.consumers if _is_there(name)]
    chosen = [m for m in models() if re.search(options.models, m.name)]
    for direction in options.directions:
        print("\n".join(report(direction, chosen, consumers, options)))


def report(
    direction: str,
    chosen: Sequence[Model],
    consumers: Sequence[str],
    options: argparse.Namespace,
) -> Iterator[str]:
    """The lines on the forward or the backward graphs."""
    found = matrix(
        chosen,
        DIRECTIONS[direction],
        lower=lowering(options.target) if options.target else None,
        consumers=consumers,
        seconds=options.seconds,
    )
    target = f", lowered for {options.target}" if options.target else ""
    yield f"== {direction} graphs{target}"
    yield from table(found, consumers)
    yield from details(found)
    if options.blame:
        yield from culprits(direction, found, chosen, options)
    yield from counts(found, consumers)


def table(found: Matrix, consumers: Sequence[str]) -> Iterator[str]:
    """A row a model, a column a consumer."""
    for name, row in {"model": None, **found}.items():
        words = consumers if row is None else [row[c].word for c in consumers]
        yield "".join([f"{name:32}", *(f"{word:14}" for word in words)]).rstrip()


def details(found: Matrix) -> Iterator[str]:
    """What went wrong, a line for each consumer that failed on a model."""
    for name, row in found.items():
        for consumer, (word, detail, _) in row.items():
            if word != "ok":
                yield f"{name}, {consumer}: {word}: {brief(detail)}"


def culprits(
    direction: str,
    found: Matrix,
    chosen: Sequence[Model],
    options: argparse.Namespace,
) -> Iterator[str]:
    """For each failure, the operations on which the consumer fails when it gets them
    alone.
    """
    lower = lowering(options.target) if options.target else None
    for model in chosen:
        for consumer, verdict in found[model.name].items():
            if verdict.word in ("ok", "not lowered"):
                continue
            case = example(model, DIRECTIONS[direction], lower).case
            operations = blamed(consumer, case, options.seconds)
            for operation in operations:
                yield f"{model.name}, {consumer}, alone: {operation}"
            if not operations:
                yield f"{model.name}, {consumer}: each operation alone is right"


def counts(found: Matrix, consumers: Sequence[str]) -> Iterator[str]:
    """How many graphs of each verdict there are, a line a consumer."""
    for consumer in consumers:
        words = Counter(row[consumer].word for row in found.values())
        listed = (f"{count} {word}" for word, count in words.most_common())
        yield f"{consumer}: {', '.join(listed)}"


def lowering(target: str) -> Lower:
    """The compiler's own rewriting of graphs for a target."""
    targets = import_module("nnef_grad.targets")
    return partial(targets.lower, target=target)


def _is_there(consumer: str) -> bool:
    if absent := missing(consumer):
        print(f"{consumer} is left out, for want of {absent}")
    return not absent


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m support.runtimes")
    parser.add_argument("--target", help="what graphs are lowered for")
    parser.add_argument("--models", default="", help="those whose names match it")
    several: dict[str, Any] = {"nargs": "+", "choices": [*CONSUMERS, *ENGINES]}
    parser.add_argument("--consumers", **several, default=[*CONSUMERS])
    several["choices"] = [*DIRECTIONS]
    parser.add_argument("--directions", **several, default=[*DIRECTIONS])
    parser.add_argument("--blame", action="store_true", help="find the operations")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for a graph")
    return parser


if __name__ == "__main__":
    main()
