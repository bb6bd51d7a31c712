"""Compiled graphs, as autograd sees them.

Gradients are graphs too. Those that `backward()` asks for are computed in two halves: the
forward half saves what the backward half needs, so that nothing is computed twice. Those
that are to be differentiated in their turn (`create_graph`) are the outputs of another
program, a function of the same inputs: so there are gradients of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import compress
from typing import Any

import torch
from torch.autograd import Function

from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.split import split
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.ir import Graph
from nnef_grad.runtimes import Runtime

Tensors = Sequence[torch.Tensor]
Run = Callable[[Tensors], list[torch.Tensor]]


class Program:
    """A graph without variables, and those of its gradients that were asked for."""

    def __init__(
        self, graph: Graph, runtime: Runtime, recompute: float | None = None
    ) -> None:
        self.graph = graph
        self._how = runtime, recompute
        self._gradients: dict[tuple[str, ...], Program] = {}
        self._halves: dict[tuple[str, ...], Halves | None] = {}

    def __call__(self, inputs: Tensors) -> tuple[torch.Tensor, ...]:
        """The outputs on inputs that were checked; autograd knows their gradients."""
        moving = [value.requires_grad for value in inputs]
        wrt = tuple(compress(self.graph.input_names, moving))
        halves = self.halves(wrt) if wrt and torch.is_grad_enabled() else None
        results: tuple[torch.Tensor, ...] = _Call.apply(self, halves, *inputs)
        return results[: len(self.graph.outputs)]

    @cached_property
    def run(self) -> Run:
        """The outputs on inputs, without their gradients."""
        return _compiled(self.graph, self._how[0])

    def gradients(self, wrt: tuple[str, ...]) -> Program:
        """The program whose inputs are those of this one, then the gradients of its
        scalar outputs, and whose outputs are the gradients of the inputs `wrt`.
        """
        if wrt not in self._gradients:
            backward = differentiate(self.graph, wrt=wrt).graph
            self._gradients[wrt] = Program(backward, *self._how)
        return self._gradients[wrt]

    def halves(self, wrt: tuple[str, ...]) -> Halves | None:
        """The same in two halves. None where there are no gradients: an operation that
        has no derivative is an error as soon as somebody asks for it, and not before.
        """
        if wrt not in self._halves:
            try:
                self._halves[wrt] = Halves(self.graph, wrt, *self._how)
            except NnefGradError:
                self._halves[wrt] = None
        return self._halves[wrt]


class Halves:
    """The gradients with respect to the inputs `wrt` in two halves. The forward half
    gives the outputs, and what is saved: `saved` are its places.
    """

    def __init__(
        self,
        graph: Graph,
        wrt: tuple[str, ...],
        runtime: Runtime,
        recompute: float | None,
    ) -> None:
        halves = split(graph, differentiate(graph, wrt=wrt, recompute=recompute))
        results, needed = halves.forward.output_names, halves.backward.input_names
        self.wrt = wrt
        self.forward = _compiled(halves.forward, runtime)
        self.saved = tuple(results.index(name) for name in halves.saved)
        self._needed = tuple(name in needed for name in graph.input_names)
        self._backward = halves.backward
        self._runtime = runtime

    def gradients(self, inputs: Tensors, saved: Tensors, seeds: Tensors) -> Tensors:
        """The gradients, from the inputs, from what was saved, and from the gradients of
        the scalar outputs.
        """
        needed = compress(inputs, self._needed)
        return self._run([*saved, *needed, *seeds])

    @cached_property
    def _run(self) -> Run:
        return _compiled(self._backward, self._runtime)


class _Call(Function):  # type: ignore[misc]
    """f(program, halves, *inputs) -> the outputs, then what is saved besides: torch knows
    what a function saves if it is an input or an output.
    """

    @staticmethod
    def forward(
        program: Program, halves: Halves | None, *inputs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        run = program.run if halves is None else halves.forward
        return tuple(run(inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.program, ctx.halves, *values = inputs
        saved = [] if ctx.halves is None else [output[i] for i in ctx.halves.saved]
        ctx.save_for_backward(*values, *saved)
        # What is saved receives no gradient: no zeros for it.
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        graph, needed = ctx.program.graph, ctx.needs_input_grad[2:]
        seeds = _seeds(graph, gradients)
        if not seeds:
            return (None, None, *(None for _ in needed))
        # Once: checkpoints compute them here.
        kept = ctx.saved_tensors
        inputs, saved = kept[: len(needed)], kept[len(needed) :]
        if ctx.halves is not None and not torch.is_grad_enabled():
            wrt, results = ctx.halves.wrt, ctx.halves.gradients(inputs, saved, seeds)
        else:
            wrt = tuple(compress(graph.input_names, needed))
            results = ctx.program.gradients(wrt)([*inputs, *seeds])
        named = dict(zip(wrt, results, strict=True))
        pairs = zip(graph.input_names, needed, strict=True)
        return (None, None, *(named[name] if needs else None for name, needs in pairs))


def _seeds(graph: Graph, gradients: Sequence[torch.Tensor | None]) -> Tensors:
    """The gradients of the scalar outputs, or zeros; empty if none was used."""
    one = next((g for g in gradients if g is not None), None)
    if one is None:
        return []
    return [
        one.new_zeros(tensor.shape) if gradient is None else gradient
        # What is saved comes after the outputs.
        for tensor, gradient in zip(graph.outputs, gradients, strict=False)
        if tensor.dtype == "scalar"
    ]


def _compiled(graph: Graph, runtime: Runtime) -> Run:
    """A graph in a runtime, as a function of tensors, which share the memory of arrays."""
    run = runtime.compile(graph, threads=torch.get_num_threads())

    def call(inputs: Tensors) -> list[torch.Tensor]:
        results = run([value.detach().numpy() for value in inputs])
        return [*map(torch.from_numpy, results)]

    return call
