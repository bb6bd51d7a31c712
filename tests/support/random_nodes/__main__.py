"""`python -m support.random_nodes --graphs 3000 --seed 1`: random nodes of ONNX against ONNX
Runtime, and gradients of every third against differences. Failures are printed as text.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from .compare import compare


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 where something failed."""
    parser = argparse.ArgumentParser("random_nodes", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    failed = 0
    for number in range(options.first, options.first + options.graphs):
        outcome = compare(options.seed, number, with_gradient=number % 3 == 0)
        counts[outcome.kind] += 1
        failed += outcome.failed
        if outcome.failed:
            print(f"---- {options.seed}:{number}\n{outcome.report()}", flush=True)
        if outcome.kind == "refused":
            refusals[outcome.message] += 1
    for message, count in refusals.most_common():
        print(f"{count:6} refused: {message}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
