"""Compiled graphs, as autograd sees them.

The gradient of a graph is a graph: backward runs the derived program by the same
function, so that autograd can differentiate it again, to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import Function

from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.graph.ir import Graph
from nnef_grad.torch.runtimes import Runtime


class Program:
    """A graph without variables, compiled by a runtime, and the gradients of it that
    were asked for so far.
    """

    def __init__(self, graph: Graph, runtime: Runtime) -> None:
        self.graph = graph
        self.run = runtime.compile(graph)
        self._runtime = runtime
        self._gradients: dict[tuple[str, ...], Program] = {}

    def __call__(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs on inputs that were checked; autograd knows their gradients."""
        found: tuple[torch.Tensor, ...] = _Call.apply(self, *inputs)
        return found

    def gradients(self, wrt: tuple[str, ...]) -> Program:
        """The program whose inputs are those of this one, then the gradients of its
        scalar outputs, and whose outputs are the gradients of the inputs `wrt`.
        """
        if wrt not in self._gradients:
            backward = differentiate(self.graph, wrt=wrt)
            self._gradients[wrt] = Program(backward.graph, self._runtime)
        return self._gradients[wrt]


class _Call(Function):  # type: ignore[misc]
    """One run of a program: f(program, *inputs) -> outputs."""

    @staticmethod
    def forward(program: Program, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(program.run([value.detach().contiguous() for value in inputs]))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.program, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        graph = ctx.program.graph
        needed = ctx.needs_input_grad[1:]
        pairs = zip(graph.inputs, needed, strict=True)
        derived = ctx.program.gradients(tuple(t.name for t, needs in pairs if needs))
        seeds = [
            gradient
            for tensor, gradient in zip(graph.outputs, gradients, strict=True)
            if tensor.dtype == "scalar"
        ]
        found = iter(derived([*ctx.saved_tensors, *seeds]))
        return None, *(next(found) if needs else None for needs in needed)
