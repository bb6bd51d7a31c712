"""What the tests of gradients share: compile a model, run both graphs in the reference
evaluator, compare with autograd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nnef
import torch

import nnef_grad
from support import reference

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Checked:
    """A compiled model, the values it was run on, the gradients that it gave, by tensor,
    and the largest relative error among them.
    """

    text: str
    backward: nnef_grad.Backward
    gradients: Mapping[str, torch.Tensor]
    feeds: Mapping[str, torch.Tensor]
    variables: Mapping[str, torch.Tensor]
    seeds: Mapping[str, torch.Tensor]
    error: float = 0.0


def document(body: str, inputs: str = "x", outputs: str = "y") -> str:
    """The text of a graph from its statements."""
    return f"version 1.0;\ngraph net( {inputs} ) -> ( {outputs} )\n{{\n{body}\n}}\n"


def check_gradients(
    text: str,
    *,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    feeds: Mapping[str, torch.Tensor] | None = None,
    variables: Mapping[str, torch.Tensor] | None = None,
    seeds: Mapping[str, torch.Tensor] | None = None,
    high: int = 2,
    transform: Any = None,
    wrt: str | Sequence[str] = "all",
    shapes: bool = True,
    **options: Any,
) -> Checked:
    """Compiles a model and compares each gradient with torch's, for random values and
    random cotangents.

    Args:
        text: the model.
        seed: of the random values.
        tolerance: of the relative error, in the maximum norm.
        feeds, variables, seeds: values for some tensors, variables by label, seeds by
            output, in place of random ones.
        high: integer inputs are below it.
        transform: applied to the random scalar feeds and variables, to keep away from
            kinks or out of a domain's edge.
        wrt, options: handed to `nnef_grad.differentiate`.
        shapes: whether the shape inference of the Khronos parser is right for all
            operations of the emitted graph.
    """
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, wrt=wrt, **options)
    emitted = nnef_grad.dumps(backward)
    accept(emitted, backward.graph, shapes)

    generator = torch.Generator().manual_seed(seed)
    fed, labelled = reference.random_feeds(text, generator, high=high)
    if transform is not None:
        fed = {
            name: transform(value) if value.is_floating_point() else value
            for name, value in fed.items()
        }
        labelled = {
            name: transform(value) if value.is_floating_point() else value
            for name, value in labelled.items()
        }
    fed.update(feeds or {})
    labelled.update(variables or {})
    forward = reference.evaluate(text, fed, labelled)
    cotangents = _cotangents(graph, backward, options, forward, generator)
    cotangents.update(seeds or {})

    seed_feeds = {name: cotangents[output] for output, name in backward.seeds.items()}
    computed = reference.evaluate(emitted, {**fed, **seed_feeds}, labelled)
    gradients = {tensor: computed[name] for tensor, name in backward.gradients.items()}
    expected = reference.gradients(text, fed, labelled, list(gradients), cotangents)
    errors = [
        close(gradient, wanted, tolerance, f"the gradient of {tensor}\n{emitted}")
        for (tensor, gradient), wanted in zip(gradients.items(), expected, strict=True)
    ]
    inferred(graph, forward)
    inferred(backward.graph, computed)
    return Checked(emitted, backward, gradients, fed, labelled, cotangents, max(errors))


def _cotangents(
    graph: nnef_grad.Graph,
    backward: nnef_grad.Backward,
    options: Mapping[str, Any],
    forward: Mapping[str, torch.Tensor],
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    names = (
        backward.seeds
        or options.get("outputs")
        or [graph.names[t] for t in graph.outputs if t.dtype == "scalar"]
    )
    if backward.seeds:
        return {
            name: torch.randn(
                forward[name].shape, generator=generator, dtype=torch.float64
            )
            for name in names
        }
    return {name: torch.ones_like(forward[name]) for name in names}


def check_twice(
    text: str, *, wrt: str | Sequence[str] = "all", **options: Any
) -> Checked:
    """Compares the gradients, and those of the backward graph: derivatives of order
    two.
    """
    first = check_gradients(text, wrt=wrt, **options)
    kept = {
        key: options[key]
        for key in ("seed", "high", "shapes", "tolerance")
        if key in options
    }
    feeds = {
        **first.feeds,
        **{name: first.seeds[output] for output, name in first.backward.seeds.items()},
    }
    return check_gradients(first.text, feeds=feeds, variables=first.variables, **kept)


def close(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: float, what: str
) -> float:
    """Asserts equal shapes, and a relative error in the maximum norm within the
    tolerance; returns the error.
    """
    assert tuple(actual.shape) == tuple(expected.shape), (
        f"{what}: shape {list(actual.shape)}, not {list(expected.shape)}"
    )
    scale = max(float(expected.abs().max()), 1e-3) if expected.numel() else 1.0
    error = float((actual - expected).abs().max()) / scale if expected.numel() else 0.0
    assert error <= tolerance, f"{what}: relative error {error:.3g}"
    return error


def inferred(graph: nnef_grad.Graph, computed: Mapping[str, torch.Tensor]) -> None:
    """Asserts that every tensor has the shape that the compiler found for it."""
    for name, tensor in graph.tensors.items():
        # A tensor inside a fragment has one name here and another there.
        if name not in computed:
            continue
        shape = tuple(computed[name].shape)
        assert shape == tensor.shape, f"'{name}': {tensor.shape} inferred, not {shape}"


def accept(text: str, graph: nnef_grad.Graph, shapes: bool = True) -> None:
    """Asserts that the Khronos parser takes the text, and that its shape inference
    finds the shapes that ours has found.
    """
    parsed = nnef.parse_string(text)
    if not shapes:
        return
    nnef.infer_shapes(parsed)
    for name, tensor in graph.tensors.items():
        found = tuple(parsed.tensors[name].shape)
        assert found == tensor.shape, (
            f"'{name}' has shape {tensor.shape}, and Khronos' inference gives {found}\n{text}"
        )
