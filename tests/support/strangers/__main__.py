"""The census: `python -m support.strangers [package ...]`, in the folder `tests/`.

It prints a line for each run, one in evaluation and one in training mode: `right`, `refused`
with the message, `wrong`, `bug` for another exception, or `torch` where torch itself fails.
"""

from __future__ import annotations

import copy
import multiprocessing
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

import nnef_grad
from nnef_grad.frontends.torch.linearity import ADVICE
from support.torch_gradients import compare
from support.torch_modules import Draw

CATALOG = Path(__file__).parent / "catalog"
# Of one run.
SECONDS = 120
# Of differences in double precision.
STEP = 1e-6


class Stranger(NamedTuple):
    """A module of a package: an expression, and one for its inputs; others stand before it."""

    package: str
    imports: str
    module: str
    inputs: str


def strangers(package: str) -> Iterator[Stranger]:
    """Those of a package. A line `module | inputs`; one without inputs is imported."""
    imports = ""
    for line in (CATALOG / f"{package}.txt").read_text("utf-8").splitlines():
        module, separator, inputs = line.rpartition(" | ")
        if separator:
            yield Stranger(package, imports, module, inputs)
        else:
            imports += f"{line}\n"


def outcome(stranger: Stranger, trains: bool) -> str:
    """What becomes of a module: a word, and a message."""
    try:
        names = _names(stranger)
        module, given, _ = _made(stranger, names, trains)
        _run_in_torch(module, given)
        # What a module has kept of its results could not be copied.
        module, given, fresh = _made(stranger, names, trains)
    except Exception as error:
        return f"torch: {type(error).__name__}: {error}"
    try:
        try:
            compare(module, given, fresh)
        except nnef_grad.NnefGradError as refusal:
            if ADVICE not in str(refusal):
                raise
            return _right_or_refused(module, given, fresh, refusal)
    except nnef_grad.NnefGradError as error:
        return f"refused: {error}"
    except AssertionError as error:
        return _of_torch_or_wrong(module, given, error)
    except Exception as error:
        return f"bug: {type(error).__name__}: {error}"
    return "right: "


def _run_in_torch(module: Any, given: Any) -> None:
    """A forward and a backward pass."""
    args = {} if not isinstance(given, dict) else given
    leaves = tree_leaves(module(*([] if args else given), **args))
    sums = [x.sum() for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    if sums:
        sum(x.real if x.is_complex() else x for x in sums).backward()


def _right_or_refused(module: Any, given: Any, fresh: Any, refusal: Any) -> str:
    """By the advice, unless a backward function is that of something else."""
    try:
        compare(module, given, fresh, allow_own_backward=True)
    except AssertionError:
        return f"refused: {refusal}"
    return "right: "


def _of_torch_or_wrong(module: Any, given: Any, error: Exception) -> str:
    if not _agrees_with_itself(module, given):
        return "torch: its gradients are not those of its own differences"
    return f"wrong: {error}"


def _agrees_with_itself(module: Any, given: Any) -> bool:
    """Whether gradients of torch are its differences, along a direction of all parameters:
    not where forward writes into the data of what autograd has kept, for instance.
    """
    exact = copy.deepcopy(module).double()
    gradients: list[Any] = [x for x in exact.parameters() if x.requires_grad]
    if not gradients:
        return True
    _weighted_sum(exact, given).backward()
    random = torch.Generator().manual_seed(0)
    directions = [
        torch.randn(x.shape, generator=random, dtype=torch.float64) for x in gradients
    ]
    slope = sum(
        float((x.grad * d).sum())
        for x, d in zip(gradients, directions, strict=True)
        if x.grad is not None
    )
    ends = []
    for step in (STEP, -STEP):
        moved = copy.deepcopy(module).double()
        own = (x for x in moved.parameters() if x.requires_grad)
        for x, direction in zip(own, directions, strict=True):
            x.data += step * direction
        ends.append(float(_weighted_sum(moved, given)))
    difference = (ends[0] - ends[1]) / (2 * STEP)
    return abs(slope - difference) <= 1e-3 * max(1.0, abs(difference))


def _weighted_sum(module: Any, given: Any) -> Any:
    """Of all outputs, with the same numbers each time, in double precision."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    exact = tree_map(_double, given)
    args = exact if isinstance(exact, dict) else {}
    leaves = tree_leaves(module(*([] if args else exact), **args))
    torch.set_default_dtype(torch.float32)
    ys = [y for y in leaves if isinstance(y, torch.Tensor) and y.is_floating_point()]
    return sum((torch.randn_like(y) * y).sum() for y in ys)


def _double(x: Any) -> Any:
    is_real = isinstance(x, torch.Tensor) and x.is_floating_point()
    return x.double() if is_real else x


def _names(stranger: Stranger) -> dict[str, Any]:
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "used": _used}
    for line in stranger.imports.splitlines():
        # What a release lacks is missed where it is used.
        with suppress(ImportError, AttributeError):
            exec(line, names)
    return names


def _used(module: Any, *inputs: Any) -> Any:
    """A module that has run, as one that sets its parameters at its first input has."""
    module(*inputs)
    return module


def _made(stranger: Stranger, names: dict[str, Any], trains: bool) -> tuple[Any, ...]:
    """A module, the inputs that it is read with, and others."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    module = eval(stranger.module, names).float().train(trains)
    inputs = [eval(stranger.inputs, names | {"draw": Draw(seed)}) for seed in (1, 2)]
    pairs = (x if isinstance(x, (list, tuple, dict)) else [x] for x in inputs)
    return (module, *pairs)


def _run(stranger: Stranger, trains: bool, pipe: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    pipe.send(outcome(stranger, trains))


def run(stranger: Stranger, trains: bool) -> str:
    """The outcome in a process of its own."""
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_run, args=(stranger, trains, theirs))
    process.start()
    theirs.close()
    try:
        found = mine.recv() if mine.poll(SECONDS) else "slow: "
    except EOFError:
        found = "bug: the process has ended"
    process.kill()
    process.join()
    return " ".join(str(found).split())


def main(packages: list[str]) -> None:
    """Runs the modules of packages; without names, of all."""
    counts: Counter[str] = Counter()
    multiprocessing.set_start_method("fork")
    for package in packages or sorted(path.stem for path in CATALOG.glob("*.txt")):
        for stranger in strangers(package):
            # Once, not in each process.
            _names(stranger)
            for trains in (False, True):
                found = run(stranger, trains)
                counts[found.partition(":")[0]] += 1
                mode = "train" if trains else "eval"
                print(package, mode, stranger.module, found, sep=" | ", flush=True)
    print(dict(counts), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
