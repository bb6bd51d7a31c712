"""The models of all kinds that the tests have, as graphs: operations, cases, samples,
documents of tract's dialect with loops and symbols, recurrent layers, published networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import nnef_grad
from bench.published import PUBLISHED
from nnef_grad import Graph
from support import (
    cases,
    dialect_models,
    operation_models,
    symbolic_loops,
    symbolic_models,
)

ROOT = Path(__file__).parents[2]
Models = Mapping[str, Callable[[], Graph]]


def all_models() -> Models:
    """What reads each model, by a name. Loops stay loops."""
    loads, load = nnef_grad.loads, nnef_grad.load
    written = cases.cases("backward")
    return {
        **{m.name: partial(loads, m.text) for m in operation_models.models()},
        **{f"case-{p.stem}": partial(loads, cases.split(p)[0]) for p in written},
        **{
            f"sample-{p.stem}": partial(load, p)
            for p in sorted((ROOT / "samples").glob("*.nnef"))
        },
        **{f"dialect-{m.name}": partial(_stored, m) for m in dialect_models.models()},
        **{
            f"symbols-{name}": partial(loads, symbolic_models.document(statements))
            for name, statements in symbolic_models.MODELS.items()
        },
        **{
            f"layer-{name}-{chunk}": partial(loads, document, unroll=0)
            for name, cell in symbolic_loops.CELLS.items()
            for chunk in (1, -1)
            for document in [symbolic_loops.document(cell, "T", 1, chunk)]
        },
        **{
            f"published-{name}": partial(_text, text)
            for name, text in PUBLISHED.items()
        },
    }


def _text(text: Callable[[], str]) -> Graph:
    return nnef_grad.loads(text())


def _stored(model: dialect_models.Model) -> Graph:
    with TemporaryDirectory() as folder:
        return nnef_grad.load(model.write(Path(folder) / "model"), unroll=0)
