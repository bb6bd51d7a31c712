"""The export of a module by torch-to-nnef, and its gradients in torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

import nnef_grad
from support.dialect_models import stored_values
from support.exports.modules import Exported

Array = npt.NDArray[Any]


class Export(NamedTuple):
    """A module as it was exported.

    Attributes:
        folder: the model.
        graph: what the reader makes of it.
        backward: the gradients of the inputs and all variables.
        inputs: of both graphs, with random gradients of the results.
        results: of the module, in torch, in double precision.
        gradients: of the inputs, and of the variables that hold parameters, by the names
            of the backward graph; also in torch.
    """

    folder: Path
    graph: nnef_grad.Graph
    backward: nnef_grad.Graph
    inputs: dict[str, Array]
    results: dict[str, Array]
    gradients: dict[str, Array]

    @property
    def data(self) -> dict[str, Array]:
        """The data of the variables, by label."""
        return {
            **stored_values(self.graph, self.folder),
            **stored_values(self.backward, self.folder),
        }

    @property
    def computed(self) -> dict[str, Array]:
        """What the interpreter computes for the backward graph."""
        return nnef_grad.evaluate(self.backward, self.inputs, self.data)


def export(exported: Exported, folder: Path, batch: str = "") -> Export:
    """Exports a module with random parameters, reads it, and differentiates both.

    Args:
        exported: the module.
        folder: where it is written.
        batch: a symbol for the first extent of all inputs, which is then read as one
            more than it was when the module was exported.
    """
    module, path = _exported(exported, folder, [batch] if batch else [])
    values = exported.values(more=1 if batch else 0)
    symbols = {batch: len(values[0])} if batch else None
    graph = nnef_grad.load(path, symbols=symbols)
    backward = nnef_grad.differentiate(graph, wrt="all").graph
    return _beside_torch(path, graph, backward, module.double(), values)


def export_open(
    exported: Exported,
    folder: Path,
    symbols: Sequence[str],
    extents: Iterable[Sequence[int]],
) -> Iterator[Export]:
    """Exports a module with random parameters, reads it with its symbols, and
    differentiates it once.

    Args:
        exported: the module.
        folder: where it is written.
        symbols: the first extents of all inputs.
        extents: numbers of the symbols, for each of which torch computes gradients.
    """
    module, path = _exported(exported, folder, symbols)
    graph = nnef_grad.load(path)
    backward = nnef_grad.differentiate(graph, wrt="all").graph
    for numbers in extents:
        values = exported.values_of(numbers)
        yield _beside_torch(path, graph, backward, module.double(), values)


def _exported(
    exported: Exported, folder: Path, symbols: Sequence[str]
) -> tuple[nn.Module, Path]:
    torch.manual_seed(0)
    module = exported.make().eval()
    _fill(module)
    with warnings.catch_warnings():
        # Of torch, about how it computes; each is said once.
        warnings.simplefilter("ignore")
        return module, write_export(module, exported, folder, symbols)


def write_export(
    module: nn.Module, exported: Exported, folder: Path, symbols: Sequence[str] = ()
) -> Path:
    """Exports a module, and returns the folder of the model. Where the program of tract would be, which torch-to-nnef
    downloads in order to check what it has written, is a script that knows its version.
    """
    t2n = pytest.importorskip(
        "torch_to_nnef", reason="torch-to-nnef: pip install --group dialect"
    )
    program = folder / "tract"
    program.write_text(f"#!/bin/sh\necho tract {exported.target}\n")
    program.chmod(0o755)
    values = exported.values()
    inputs = [f"x{place}" for place in range(len(values))]
    outputs = [f"y{place}" for place in range(len(_flat(module(*values))))]
    target = t2n.TractNNEF(
        exported.target,
        check_io=False,
        specific_tract_binary_path=program,
        dynamic_axes={n: dict(enumerate(symbols)) for n in inputs} if symbols else None,
    )
    written = t2n.export_model_to_nnef(
        deepcopy(module),  # whose parameters get names
        tuple(values),
        str(folder / "model.nnef"),
        target,
        input_names=inputs,
        output_names=outputs,
        compression_level=None,
        log_level=logging.CRITICAL,
    )
    return Path(written)


# ---- Parameters that can be told apart ----


def _fill(module: nn.Module) -> None:
    """Gives all elements of all parameters different values, which are exact in single
    precision: variables are found by them, since exports cut and rename parameters.
    """
    random = np.random.default_rng(1)
    count = sum(p.numel() for p in module.parameters())
    odd = iter(1 + 2 * random.permutation(count))
    with torch.no_grad():
        for parameter in module.parameters():
            shape = tuple(parameter.shape)
            own = np.array([next(odd) for _ in range(parameter.numel())]).reshape(shape)
            width = max(4, own[0].size) if own.ndim else 4
            # A power of two leaves odd numbers as different as they were.
            scale = 2.0 ** np.round(np.log2(0.5 / count / np.sqrt(width)))
            parameter.copy_(torch.tensor(own * scale * random.choice([-1, 1], shape)))
        for name, buffer in module.named_buffers():
            if "running" in name:
                buffer.copy_(torch.tensor(random.random(buffer.shape) + 0.5))
        for part in module.modules():
            _simplify(part)


def _simplify(part: nn.Module) -> None:
    """Leaves out what an export does not say."""
    if isinstance(part, nn.Embedding):
        # The row for padding has a gradient in NNEF, which knows of no padding.
        part.padding_idx = None
    if isinstance(part, nn.RNNBase):
        kept = part.hidden_size if isinstance(part, nn.GRU) else 0
        for name, parameter in part.named_parameters():
            if name.startswith("bias_hh"):
                # It is added to the other bias, but for the last part of a GRU.
                parameter[: len(parameter) - kept] = 0.0


class _Elements:
    """The gradients of elements, by their values."""

    def __init__(self, parameters: list[tuple[Array, Array]]) -> None:
        self.wholes = parameters
        values, gradients = (
            np.concatenate([np.zeros(0), *(pair[place].ravel() for pair in parameters)])
            for place in (0, 1)
        )
        order = np.argsort(values)
        self.values, self.gradients = values[order], gradients[order]

    def gradient(self, data: Array) -> Array | None:
        """The gradient of a variable; None if it is no parameter, nor part of one."""
        for values, gradient in self.wholes:
            if values.size == data.size and np.array_equal(
                values.ravel(), data.ravel()
            ):
                return gradient.reshape(data.shape)
        if not len(self.values):
            return None
        places = np.searchsorted(self.values, data).clip(max=len(self.values) - 1)
        is_found = np.array_equal(self.values[places], data)
        return self.gradients[places] if is_found else None


# ---- The gradients of torch ----


def _beside_torch(
    folder: Path,
    graph: nnef_grad.Graph,
    backward: nnef_grad.Graph,
    module: nn.Module,
    values: list[Tensor],
) -> Export:
    given = [
        v.double().requires_grad_() if v.is_floating_point() else v for v in values
    ]
    results = _flat(module(*given))
    names = graph.output_names
    random = torch.Generator().manual_seed(2)
    cotangents = {
        f"grad_{name}": torch.randn(r.shape, generator=random).double()
        for name, r in zip(names, results, strict=True)
        if r.requires_grad
    }
    differentiable = [r for r in results if r.requires_grad]
    parameters = [*module.parameters()]
    wanted = [*parameters, *(v for v in given if v.requires_grad)]
    gradients = torch.autograd.grad(
        differentiable, wanted, [*cotangents.values()], allow_unused=True
    )
    arrays = [_array(g, like) for g, like in zip(gradients, wanted, strict=True)]
    pairs = zip((p.detach().numpy() for p in parameters), arrays, strict=False)
    elements = _Elements([*pairs])
    inputs = {f"x{place}": v.numpy() for place, v in enumerate(values)}
    outputs = {n: r.detach().numpy() for n, r in zip(names, results, strict=True)}
    feeds = {**inputs, **{n: c.numpy() for n, c in cotangents.items()}, **outputs}
    of_inputs = iter(arrays[len(parameters) :])
    expected = {
        f"grad_x{place}": next(of_inputs)
        for place, v in enumerate(given)
        if v.requires_grad
    }
    for name, data in _trained(graph, folder):
        gradient = elements.gradient(data)
        if gradient is not None:
            expected[f"grad_{name}"] = gradient
    known = {*backward.output_names}
    return Export(
        folder,
        graph,
        backward,
        {name: feeds[name] for name in (*graph.input_names, *backward.input_names)},
        outputs,
        {n: g for n, g in expected.items() if n in known},
    )


def _trained(graph: nnef_grad.Graph, folder: Path) -> Iterator[tuple[str, Array]]:
    """The variables that results depend on, but for those of zeros alone, which are
    states at the beginning.
    """
    data, live = stored_values(graph, folder), {*graph.outputs}
    for op in reversed(graph.operations):
        if live.intersection(op.outputs):
            live.update(op.inputs)
            if op.name == "variable":
                array = data[op.attributes["label"]]
                if array.any():
                    yield graph.names[op.outputs[0]], array.astype(float)


def _array(gradient: Tensor | None, like: Tensor) -> Array:
    made: Array = (
        (torch.zeros_like(like) if gradient is None else gradient).detach().numpy()
    )
    return made


def _flat(results: Any) -> list[Tensor]:
    """The tensors of a result, which may be nested."""
    if isinstance(results, Tensor):
        return [results]
    return [tensor for part in results for tensor in _flat(part)]
