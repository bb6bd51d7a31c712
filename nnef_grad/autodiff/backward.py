"""A backward graph: what it is asked for, of which outputs, with respect to which tensors,
and what it is when it is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, NamedTuple, Union

from nnef_grad.autodiff.example_axes import PerExample
from nnef_grad.autodiff.merge_numbers import merge_numbers, with_known_numbers
from nnef_grad.autodiff.unmask import unmask
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rule_results import counted
from nnef_grad.emit.simplify import restore
from nnef_grad.emit.verifier import verify_order
from nnef_grad.emit.zeros import without_residuals
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.display import html
from nnef_grad.graph.ir import (
    Graph,
    Operation,
    Quantization,
    Shape,
    Tensor,
    shape_of,
)
from nnef_grad.graph.names import advice_on
from nnef_grad.graph.passes import (
    carry_quantization,
    count_uses,
    prune,
    put_inputs_first,
)
from nnef_grad.graph.pipeline import told
from nnef_grad.graph.rewriting import Fate, sweep
from nnef_grad.language.labels import is_constant

Wrt = Union[Literal["all", "inputs", "variables"], str, Sequence[str]]
# The derivatives that a graph may have.
Kind = Literal[
    "gradient", "jacobian", "jvp", "hvp", "hessian", "saliency", "penalty", "laplacian",
    "divergence",
]  # fmt: skip
GROUPS = ("all", "inputs", "variables")

# The most elements of a matrix that the gradient of a gather has without a warning.
MAX_ELEMENTS = 100_000_000


class Broadcast(NamedTuple):
    """A broadcast of the forward graph: of a tensor, by the operation with a first result."""

    operand: str
    result: str


@dataclass(frozen=True, repr=False)
class Backward:
    """A backward graph and the names of its interface.

    Attributes:
        graph: the backward graph.
        seeds: for each differentiated output of the forward graph, the input that its
            gradient is fed to; empty for a seed of ones.
        gradients: for each tensor differentiated with respect to, the output that holds
            its gradient.
        warnings: what the user should know, a sentence each.
        reductions: the number of broadcast operands that were summed down to their
            shapes.
        outputs: the outputs that were differentiated.
        stopped: the tensors that were treated as constants.
        loops: the forward loops that collect what their derivatives need, after their
            own results.
        kind: the kind of derivative: by default gradients, products of Jacobians with
            seeds.
        broadcasts: for each tensor that was summed or squeezed down to the shape of a
            broadcast operand, the broadcasts that it undoes.
        per_example: whether there is a gradient for each example of what all share.
        example_axes: the axes that count examples then, in tensors of the forward graph, by
            name; None for what they share.
    """

    graph: Graph
    seeds: Mapping[str, str]
    gradients: Mapping[str, str]
    warnings: tuple[str, ...]
    reductions: int
    outputs: tuple[str, ...]
    stopped: tuple[str, ...] = ()
    loops: tuple[Operation, ...] = ()
    kind: Kind = "gradient"
    broadcasts: Mapping[str, tuple[Broadcast, ...]] = field(default_factory=dict)
    per_example: bool = False
    example_axes: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def axes(self) -> PerExample:
        """The `per_example` of the derivatives of this graph for each example."""
        if not self.per_example:
            return False
        graph, own = self.graph, self.example_axes
        ends = {*graph.input_names, *graph.output_names}
        named = {name: axis for name, axis in own.items() if name in ends}
        named |= {seed: own.get(x) or 0 for x, seed in self.seeds.items()}
        return named | {d: self.axis(x) for x, d in self.gradients.items()}

    @property
    def is_like_operands(self) -> bool:
        """Whether a derivative has the shape of what it is with respect to, after an axis of
        examples where there is one for each.
        """
        return self.kind in ("gradient", "hvp", "saliency", "penalty")

    def axis(self, name: str) -> int:
        """The axis that counts examples in what a tensor has: its gradient, for example."""
        if self.kind in ("jacobian", "hessian", "divergence"):
            return 0
        return (
            self.example_axes.get(self.outputs[0] if self.kind == "laplacian" else name)
            or 0
        )

    def __repr__(self) -> str:
        plural = {"gradient": "gradients", "jacobian": "Jacobians"}
        return f"<{plural.get(self.kind, self.kind)} of {', '.join(self.outputs)} in {repr(self.graph)[1:]}"

    def __str__(self) -> str:
        return str(self.graph)

    @property
    def noun(self) -> str:
        """The word for one of its results."""
        return "gradient" if self.kind in ("gradient", "jacobian") else "output"

    def _repr_html_(self) -> str:
        return html(self.graph, repr(self)[1:-1])


@public
def summary(graph: Graph, backward: Backward) -> str:
    """A summary in one line: operations, reductions and gradients."""
    before, after = (
        counted(len(g.operations), "operation") for g in (graph, backward.graph)
    )
    reductions = counted(backward.reductions, "reduction")
    results = counted(len(backward.gradients), backward.noun)
    return f"{graph.name}: {before} in, {after} out, {reductions} inserted, {results}"


def finished(
    graph: Graph,
    forward: Graph,
    emit: Emitter,
    reserved: Iterable[str],
    ones: Iterable[Tensor] = (),
) -> Graph:
    """The graph emitted for a forward graph, some of whose tensors are ones, without what
    is unused, with its names.
    """
    used = without_residuals(prune(graph), forward.names, emit.is_new)
    simplified = unmask(restore(used, emit.simplified), emit.is_new)
    graph = used if simplified is used else prune(simplified)
    graph = merge_numbers(
        with_known_numbers(graph, dict.fromkeys(ones, 1.0), emit), emit
    )
    graph = _without_needless_copies(graph, forward, emit.opaque)
    names = emit.assigned_names(graph.operations, reserved)
    return completed(replace(graph, names=names), forward.quantization)


def completed(graph: Graph, quantization: Mapping[str, Quantization]) -> Graph:
    """The graph with its inputs first, verified, with the quantization of tensors."""
    graph = put_inputs_first(graph)
    verify_order(graph)
    told("differentiate", graph)
    return replace(graph, quantization=carry_quantization(quantization, graph))


def _without_needless_copies(
    graph: Graph, forward: Graph, named: Iterable[Tensor]
) -> Graph:
    """The graph with gradients in place of what is only used to be copied to them. What
    the forward graph computes stays: a half of the derivative may get it from the other.
    So do named tensors: the gradient may be differentiated with respect to them.
    """
    gradients = {*graph.outputs}.difference(forward.outputs)
    proper = (op for op in graph.operations if op.name == "copy" and op.inputs)
    ends = ((op.inputs[0], op.outputs[0]) for op in proper)
    copies = {tensor: copy for tensor, copy in ends if copy in gradients}
    if not copies:
        return graph
    uses = count_uses(graph)
    before = (op for op in forward.operations if op.name != "constant")
    fixed = {*graph.inputs, *named, *(t for op in before for t in op.outputs)}
    copies = {t: c for t, c in copies.items() if uses[t] == 1 and t not in fixed}
    made = {copy: tensor for tensor, copy in copies.items()}

    def without_copy(op: Operation) -> Fate:
        copy = op.outputs[0]
        return {made[copy]: copy} if copy in made else op

    return sweep(graph, without_copy)


def wrt_tensors(graph: Graph, wrt: Wrt) -> tuple[Tensor, ...]:
    """The tensors that `wrt` names; see `differentiate`."""
    labelled = zip(graph.variables, graph.labels.values(), strict=True)
    parameters = (tensor for tensor, label in labelled if not is_constant(label))
    inputs, variables = _scalars(graph.inputs), _scalars(parameters)
    groups = {"all": (*inputs, *variables), "inputs": inputs, "variables": variables}
    if not isinstance(wrt, str) or wrt not in groups:
        names = [wrt] if isinstance(wrt, str) else wrt
        return scalars_named(graph, graph.tensors, names, "tensor")
    if not groups[wrt]:
        what = "inputs or variables" if wrt == "all" else wrt
        raise UsageError(f"graph '{graph.name}' has no scalar {what}")
    return groups[wrt]


def differentiated_outputs(
    graph: Graph, outputs: Sequence[str] | None
) -> tuple[Tensor, ...]:
    """The outputs that are differentiated; see `differentiate`."""
    if outputs is not None:
        by_name = dict(zip(graph.output_names, graph.outputs, strict=True))
        return scalars_named(graph, by_name, outputs, "output")
    scalars = _scalars(graph.outputs)
    if not scalars:
        what = "has no scalar output: there is nothing to differentiate"
        raise UsageError(f"graph '{graph.name}' {what}")
    return scalars


def _scalars(candidates: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(t for t in candidates if t.dtype == "scalar")


def scalars_named(
    graph: Graph, among: Mapping[str, Tensor], names: Sequence[str], what: str
) -> tuple[Tensor, ...]:
    """The scalar tensors of a graph, among some of them, that have some names.

    Raises:
        UsageError: a name is unknown, named twice, or that of a tensor of another type.
    """
    if not names:
        raise UsageError(f"no {what} is named")
    for index, name in enumerate(names):
        if name not in among:
            message = f"the graph has no {what} '{name}'"
            if what == "tensor" and name in GROUPS:
                raise UsageError(f"{message}: the group '{name}' stands alone")
            names = [*among, *(GROUPS if what == "tensor" else ())]
            raise UsageError(f"{message}{advice_on(graph, name, names)}")
        if (dtype := among[name].dtype) != "scalar":
            message = f"'{name}' is a tensor of type {dtype}"
            raise UsageError(f"{message}: only scalar tensors have gradients")
        if name in names[:index]:
            raise UsageError(f"{what} '{name}' is named twice")
    return tuple(among[name] for name in names)


# ---- What may need more memory than a runtime has ----


def large_matrices(graph: Graph, gathers: Iterable[Operation]) -> Iterator[str]:
    """Warnings of large matrices with which the gradients of gathers are products."""
    left = [*gathers]
    for op in graph.operations if left else ():
        onehot = op.outputs[0]
        is_onehot = op.name == "select" and op.operands[1:] == (1.0, 0.0)
        if not is_onehot or nominal(prod(onehot.shape)) <= MAX_ELEMENTS:
            continue
        alike = [g for g in left if _rows_and_extent(g) == onehot.shape]
        for gather in alike[-1:]:
            left.remove(gather)
            size = " x ".join(map(str, onehot.shape))
            what = f"the gradient of '{graph.names[gather.inputs[0]]}' is a product"
            matrix = f"'{graph.names[onehot]}', {size} zeros and ones"
            why = "no standard operation adds to elements at indices"
            yield f"{what} with {matrix}: {why}"


def _rows_and_extent(gather: Operation) -> Shape:
    """The shape of the matrix that the gradient of a gather may be a product with."""
    table, indices = gather.inputs[0], gather.operands[1]
    return prod(shape_of(indices)), table.shape[gather.attributes["axis"]]
