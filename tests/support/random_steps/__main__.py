"""Random training steps against torch: a random graph, a loss for each of some outputs, an
optimizer with random settings, and what a step does besides.

`python -m support.random_steps --steps 500 --seed 1` runs that many; the exit code is 1
where some are wrong. `--replay 1:42` runs step 42 of seed 1 alone, and prints it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

import torch

from .compare import compare
from .steps import make_step


def run(seed: int, steps: int) -> int:
    """Prints what fails, and a summary; returns how many failed."""
    kinds: Counter[str] = Counter()
    used: Counter[str] = Counter()
    worst, failed = 0.0, 0
    for number in range(steps):
        step = make_step(seed, number)
        outcome = compare(step)
        kinds[outcome.kind] += 1
        used.update(loss.recipe.partition("(")[0] for loss in step.losses.values())
        used[step.optimizer[0]] += 1
        used.update([*step.options])
        worst = max(worst, outcome.error)
        if outcome.failed:
            failed += 1
            print(f"{outcome.kind}: {outcome.message}\n{step.text}", flush=True)
    print(f"seed {seed}: {dict(kinds)}, worst error {worst:.2g}")
    print(", ".join(f"{name} {count}" for name, count in sorted(used.items())))
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 where something failed."""
    parser = argparse.ArgumentParser("random_steps", description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", metavar="SEED:NUMBER", help="run a step alone")
    options = parser.parse_args(arguments)
    if options.replay:
        step = make_step(*map(int, options.replay.split(":")))
        outcome = compare(step)
        print(
            f"{step.text}\n{outcome.kind} {outcome.message} error {outcome.error:.2g}"
        )
        return int(outcome.failed)
    return int(run(options.seed, options.steps) > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
