"""Modules of PyTorch beside their graphs: outputs and gradients, in double precision."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import nnef_grad
from nnef_grad import interop
from support.architectures.arrival import double_precision

TOLERANCE = 1e-6


def compare(
    module: Any,
    inputs: Sequence[Any] | Mapping[str, Any],
    fresh: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    uses_mode: bool = True,
    **options: Any,
) -> Any:
    """Reads a module with some inputs, and compares its outputs and the gradients of its
    parameters and inputs with torch's, at these and at other inputs; for random gradients
    of the outputs.

    Args:
        module: in the mode in which it is read.
        inputs: the example inputs.
        fresh: other inputs; the examples themselves are used anyway.
        uses_mode: whether torch's single precision inside of the module is made double,
            by a mode that does not know branches.
        options: for `from_torch`.

    Returns:
        What `from_torch` has returned.
    """
    model = interop.from_torch(module, inputs, **options)
    backward = nnef_grad.differentiate(
        model.graph, wrt=_wrt(model), outputs=_outputs(model), with_outputs=True
    )
    for given in [inputs] if fresh is None else [inputs, fresh]:
        _compare_at(module, model, backward, given, seed, tolerance, uses_mode)
    return model


def _outputs(model: Any) -> list[str]:
    """The outputs that are no new values of buffers, and have gradients."""
    graph, updates = model.graph, {*model.updates.values()}
    pairs = zip(graph.output_names, graph.outputs, strict=True)
    return [n for n, y in pairs if y.dtype == "scalar" and n not in updates]


def _wrt(model: Any) -> list[str]:
    graph = model.graph
    inputs = [
        name
        for name, x in zip(graph.input_names, graph.inputs, strict=True)
        if x.dtype == "scalar" and name not in model.random
    ]
    return [*inputs, *model.trainable]


def _compare_at(
    module: Any,
    model: Any,
    backward: Any,
    given: Any,
    seed: int,
    tolerance: float,
    uses_mode: bool,
) -> None:
    """Compares outputs and gradients at some inputs."""
    exact = copy.deepcopy(module).double()
    # The graph has the parameters in single precision.
    for mine, theirs in zip(exact.parameters(), module.parameters(), strict=True):
        mine.data = theirs.data.float().double()
    moved = pytree.tree_map(
        _exact, dict(given) if isinstance(given, Mapping) else tuple(given)
    )
    leaves = [x for x in pytree.tree_leaves(moved) if isinstance(x, torch.Tensor)]
    args, kwargs = ((), moved) if isinstance(moved, Mapping) else (moved, {})
    with _double_precision(uses_mode):
        result = exact(*args, **kwargs)
    outputs = [y for y in pytree.tree_leaves(result) if isinstance(y, torch.Tensor)]
    names = model.graph.output_names[: len(outputs)]
    random = np.random.default_rng(seed)
    graph = model.graph
    fed = {
        name: x.detach().numpy()
        for name, x in zip(graph.input_names, _read(model, leaves), strict=True)
    }
    seeds, total = {}, torch.zeros((), dtype=torch.float64)
    for name, y in zip(names, outputs, strict=True):
        if y.is_floating_point():
            cotangent = random.standard_normal(tuple(y.shape))
            if name in backward.seeds:
                seeds[backward.seeds[name]] = cotangent
            if y.requires_grad:
                total = total + (y * torch.from_numpy(cotangent)).sum()
    if total.requires_grad:
        total.backward()
    needed = {
        n: v for n, v in {**fed, **seeds}.items() if n in backward.graph.input_names
    }
    found = nnef_grad.evaluate(backward.graph, needed, _double(model.data))
    for name, y in zip(names, outputs, strict=True):
        values = _output(model, backward, found, name, fed)
        _assert_close(values, y.detach().numpy(), f"output {name}", tolerance)
    by_name = dict(exact.named_parameters(remove_duplicate=False))
    gradients = {w: found[g] for w, g in backward.gradients.items()}
    for name, gradient in model.gradients_to_torch(gradients).items():
        wanted = by_name[name].grad
        wanted = torch.zeros_like(by_name[name]) if wanted is None else wanted
        _assert_close(gradient, wanted.numpy(), f"gradient of {name}", tolerance)
    for name, x in zip(graph.input_names, _read(model, leaves), strict=True):
        if name in gradients and x.is_floating_point():
            wanted = torch.zeros_like(x) if x.grad is None else x.grad
            _assert_close(
                gradients[name], wanted.numpy(), f"gradient of {name}", tolerance
            )


@contextmanager
def _double_precision(uses_mode: bool) -> Iterator[None]:
    """What is made inside of a module is of double precision, too."""
    torch.set_default_dtype(torch.float64)
    try:
        with double_precision() if uses_mode else nullcontext():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def _output(model: Any, backward: Any, found: Any, name: str, fed: Any) -> Any:
    if name in found:
        return found[name]
    return nnef_grad.evaluate(model.graph, fed, _double(model.data))[name]


def _read(model: Any, leaves: list[Any]) -> list[Any]:
    """The inputs that the graph has, among all: those that nothing depends on are gone."""
    places = model.places
    return [leaves[places[name]] for name in model.graph.input_names]


def _exact(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    made = x.detach().clone()
    if made.is_floating_point():
        made = made.double().requires_grad_()
    return made


def _double(data: Mapping[str, Any]) -> dict[str, Any]:
    return {label: np.asarray(array, np.float64) for label, array in data.items()}


def _assert_close(found: Any, wanted: Any, what: str, tolerance: float) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape, f"{what}: {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind in "bi":
        assert np.array_equal(found, wanted), f"{what}: {found} is not {wanted}"
        return
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    error = float(np.max(np.abs(found - wanted), initial=0.0)) / scale
    assert error <= tolerance, f"{what}: off by {error:.2e}: {found} is not {wanted}"
