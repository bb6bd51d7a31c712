"""Forward and backward graphs as model folders, and rows of networks one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nnef_grad
from bench import nets
from bench.processes import FailedError
from bench.rows import Measured, Skipped
from bench.settings import Settings
from nnef_grad import Graph
from nnef_grad.graph.extents import as_numbers


class Pair(NamedTuple):
    """The folders of a forward model and of its backward model, with the shapes of
    their inputs, in order.
    """

    folders: dict[str, str]
    shapes: dict[str, list[tuple[int, ...]]]


def write_pair(
    graph: Graph,
    wrt: Sequence[str],
    targets: Mapping[str, str],
    folder: Path,
    data: Mapping[str, Any] | None = None,
) -> Pair:
    """Writes the models of a network, each lowered for its target: the `forward` model,
    and the `backward` model, which has the gradients of these variables. Their data are
    random, if not given.
    """
    data = nets.random_data(graph) if data is None else data
    backward = nnef_grad.differentiate(graph, wrt=wrt).graph
    pair = Pair({}, {})
    for name, model in {"forward": graph, "backward": backward}.items():
        lowered = nnef_grad.lower(model, targets[name])
        nnef_grad.save(lowered.graph, folder / name, data={**data, **lowered.data})
        pair.folders[name] = str(folder / name)
        pair.shapes[name] = [
            as_numbers(tensor.shape) for tensor in lowered.graph.inputs
        ]
    return pair


def each(
    part: str,
    names: Iterable[str],
    rows: Callable[[str, int, Settings], Measured],
    settings: Settings,
) -> Measured:
    """The rows of each network that is wanted, for each batch, or why there are none."""
    for net in filter(settings.wants, names):
        for batch in settings.batches:
            try:
                yield from rows(net, batch, settings)
            except FailedError as error:
                yield Skipped(part, f"{net}, batch {batch}", str(error))
