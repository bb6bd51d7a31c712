"""Threads that compile at once write what one thread writes, whatever is done to what they
are returned.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from threading import Barrier
from typing import Any

import pytest
from support.all_models import all_models

import nnef_grad
from nnef_grad import NnefGradError
from nnef_grad.base.arrays import Data
from nnef_grad.base.process import Memo
from nnef_grad.emit import arguments, rule_results
from nnef_grad.targets import Lowered, forms, lower

THREADS = 8
# Every so many models, so that there are some of all kinds.
STEP = 5
TARGETS = ("khronos", "tract", "onnx")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads that are interrupted often, and memories that are full at once."""
    for module, name in (
        (arguments, "_checked"),
        (rule_results, "_standard"),
        (forms, "_chosen"),
    ):
        monkeypatch.setattr(module, name, Memo(50))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def compiled(text: str) -> list[str]:
    """What is written for a model: its derivative, for some targets."""
    written = []
    try:
        backward = nnef_grad.differentiate(nnef_grad.loads(text, unroll=0)).graph
        written.append(nnef_grad.dumps(backward))
        for target in TARGETS:
            lowered = lower(backward, target)
            written += [nnef_grad.dumps(lowered.graph), digest(lowered.data)]
            spoil(lowered)
    except NnefGradError as error:
        written.append(str(error))
    return written


def digest(data: Data) -> str:
    """What stands for arrays."""
    return " ".join(f"{k} {sha256(v.tobytes()).hexdigest()}" for k, v in data.items())


def spoil(lowered: Lowered) -> None:
    """Changes what was returned, as far as it lets itself be changed."""
    graph: Any = lowered.graph
    for mapping in (graph.names, *(op.attributes for op in graph.operations)):
        with suppress(TypeError):
            mapping.clear()
    for array in lowered.data.values():
        array.fill(7)


@pytest.mark.usefixtures("impatient")
def test_eight_threads_write_what_one_writes() -> None:
    texts = []
    for read in [*all_models().values()][::STEP]:
        try:
            texts.append(nnef_grad.dumps(read()))
        except NnefGradError:
            continue
    wanted = [compiled(text) for text in texts]
    together = Barrier(THREADS)

    def work(first: int) -> dict[int, list[str]]:
        """A thread begins at its own place, and comes to what others have begun with."""
        together.wait()
        order = [
            (first * len(texts) // THREADS + i) % len(texts) for i in range(len(texts))
        ]
        return {i: compiled(texts[i]) for i in order[: len(texts) // 2]}

    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(work, range(THREADS)):
            for index, written in found.items():
                assert written == wanted[index], texts[index]
