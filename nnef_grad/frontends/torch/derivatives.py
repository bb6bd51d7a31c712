"""Derivatives that a module takes of its own values, as physics-informed networks and forces
do: while it is exported, a mark stands for each; where its program is read, our calculus takes
its place. The transforms of `torch.func` are written with gradients, and `vmap` with one call
for each example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from itertools import chain
from typing import Any

import torch

from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.emit.bodies import body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.torch.call import Call, is_drawn
from nnef_grad.frontends.torch.complexes import Complex
from nnef_grad.frontends.torch.internals import Operator, find_operator, pytree
from nnef_grad.frontends.torch.linearity import ADVICE, refuse_other_than_linear
from nnef_grad.frontends.torch.nodes import LIBRARY, OPERANDS, USERS, reachable
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.learning import facts_learned
from nnef_grad.graph.names import NameSupply
from nnef_grad.language.identifiers import plain_name

Function = Callable[..., Any]

LIBRARY.define("gradient(Tensor[] ys, Tensor[] xs, Tensor[] dys) -> Tensor[]")
LIBRARY.define(
    "transposed(Tensor[] vs, Tensor[] gs, Tensor[] us, str function) -> Tensor[]"
)
LIBRARY.define("variable(Tensor x) -> Tensor")
LIBRARY.define("held(Tensor x) -> Tensor")
_KIND = "CompositeExplicitAutograd"
LIBRARY.impl("gradient", lambda ys, xs, dys: list(map(torch.empty_like, xs)), _KIND)
LIBRARY.impl(
    "transposed", lambda vs, gs, us, function: list(map(torch.empty_like, gs)), _KIND
)
LIBRARY.impl("variable", lambda x: x.clone(), _KIND)
LIBRARY.impl("held", lambda x: x.clone(), _KIND)
GRADIENT = find_operator("nnef_grad.gradient.default")
# The same, of what must be linear: of the backward function of a function.
TRANSPOSED = find_operator("nnef_grad.transposed.default")
VARIABLE = find_operator("nnef_grad.variable.default")
# What no gradient flows through, so that an operand less it is zero.
HELD = find_operator("nnef_grad.held.default")


# ---- What a module calls ----


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Any = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[torch.Tensor, ...]:
    """As `torch.autograd.grad`: no gradient flows through a result unless its graph is made."""
    ys, xs = (x if isinstance(x, (tuple, list)) else [x] for x in (outputs, inputs))
    is_list = isinstance(grad_outputs, (tuple, list))
    given = grad_outputs if is_list else [grad_outputs] * len(ys)
    if is_grads_batched:
        found: tuple[torch.Tensor, ...] = _vmap(
            lambda *dys: grad(ys, xs, dys, create_graph=create_graph),
            0, 0, "error", None, *given,
        )  # fmt: skip
        return found
    dys = [
        torch.ones_like(y) if dy is None else dy
        for y, dy in zip(ys, given, strict=True)
    ]
    found = GRADIENT(list(ys), list(xs), dys)
    return tuple(found if create_graph else map(torch.Tensor.detach, found))


def grad_unstopped(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    """The same where nothing stops gradients: its results are those of its arguments."""
    given = signature(grad).bind(*args, **kwargs)
    given.arguments["create_graph"] = True
    return grad(*given.args, **given.kwargs)


def _applied(
    function: Function, args: Sequence[Any], argnums: Any, has_aux: bool, kwargs: Any
) -> tuple[Any, Any, list[Any]]:
    """Variables in place of some arguments, what a function makes of them, and what else."""
    is_one = isinstance(argnums, int)
    every = range(len(args)) if argnums is None else argnums
    places: Sequence[int] = [argnums] if is_one else every
    given = list(args)
    for place in places:
        given[place] = pytree.tree_map_only(torch.Tensor, VARIABLE, args[place])
    with torch.enable_grad():
        result = function(*given, **kwargs)
    y, *aux = result if has_aux else (result,)
    variables = tuple(given[place] for place in places)
    return variables[0] if is_one else variables, y, aux


def _grad_and_value(
    function: Function, argnums: Any, has_aux: bool, args: Any, kwargs: Any
) -> tuple[Any, Any]:
    variables, y, aux = _applied(function, args, argnums, has_aux, kwargs)
    leaves, spec = pytree.tree_flatten(variables)
    found = pytree.tree_unflatten(grad(y, leaves, create_graph=True), spec)
    return found, (y, *aux) if has_aux else y


def _vjp(
    function: Function, *primals: Any, argnums: Any = None, has_aux: bool = False
) -> tuple[Any, ...]:
    variables, y, aux = _applied(function, primals, argnums, has_aux, {})
    leaves, spec = pytree.tree_flatten(variables)
    ys = pytree.tree_leaves(y)

    def pulled(cotangents: Any, *_: Any, **__: Any) -> Any:
        dys = pytree.tree_leaves(cotangents)
        return pytree.tree_unflatten(grad(ys, leaves, dys, create_graph=True), spec)

    return (y, pulled, *aux)


def _jvp(
    function: Function,
    primals: Any,
    tangents: Any,
    argnums: Any,
    *,
    strict: bool = False,
    has_aux: bool,
) -> tuple[Any, ...]:
    """The derivative in a direction: that of a gradient with respect to its cotangents."""
    y, pulled, *aux = _vjp(function, *primals, argnums=argnums, has_aux=has_aux)
    ys, spec = pytree.tree_flatten(y)
    dys = [VARIABLE(torch.zeros_like(y)) for y in ys]
    gradients = pytree.tree_leaves(pulled(dys))
    moved = grad(gradients, dys, pytree.tree_leaves(tangents), create_graph=True)
    return (y, pytree.tree_unflatten(moved, spec), *aux)


def _vmap(
    function: Function,
    in_dims: Any,
    out_dims: Any,
    randomness: str,
    _: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """One call for each example, which draws random numbers of its own."""
    if randomness == "same":
        advice = "draw outside of it, and give what is drawn to the function"
        raise UnsupportedError(f"torch.vmap(randomness='same') is not read: {advice}")
    leaves, spec = pytree.tree_flatten((args, kwargs))
    axes = [*_axes(in_dims, args), *[0] * len(pytree.tree_leaves(kwargs))]
    pairs = [*zip(leaves, axes, strict=True)]
    (count,) = {x.shape[axis] for x, axis in pairs if axis is not None}
    if not isinstance(count, int):
        raise UnsupportedError("torch.vmap needs a known number of examples")
    results: list[list[Any]] = []
    for n in range(count):
        given = [x if axis is None else x.select(axis, n) for x, axis in pairs]
        own_args, own_kwargs = pytree.tree_unflatten(given, spec)
        result, of_result = pytree.tree_flatten(function(*own_args, **own_kwargs))
        results.append(result)
    last = pytree.tree_unflatten(result, of_result)
    stacked = [
        torch.stack(list(parts), axis)
        for axis, *parts in zip(_axes(out_dims, last), *results, strict=True)
    ]
    return pytree.tree_unflatten(stacked, of_result)


def _axes(axes: Any, values: Any) -> list[Any]:
    """The axis of each leaf of values, of a structure with an axis for several."""
    if axes is None or isinstance(axes, int):
        return [axes] * len(pytree.tree_leaves(values))
    keys = values if isinstance(values, dict) else range(len(values))
    return [leaf for key in keys for leaf in _axes(axes[key], values[key])]


# What torch.func calls, also in functions that were made before: where, and what else.
TRANSFORMS: tuple[tuple[str, str, Function], ...] = (
    ("_functorch.eager_transforms", "grad_and_value_impl", _grad_and_value),
    ("_functorch.eager_transforms", "_vjp_with_argnums", _vjp),
    ("_functorch.eager_transforms", "_jvp_with_argnums", _jvp),
    ("_functorch.apis", "vmap_impl", _vmap),
)


# ---- What takes their place in a graph ----

# Reading a node counts as the computation of so many elements: each of several gradients of
# each other doubles the work.
_WORK = 1_000


_OF_GRADIENTS = (
    "a function with a backward function of its own is called on gradients in that of"
)


def gradients(reading: Any, call: Call, results: Mapping[Any, Any]) -> list[Any]:
    """The gradients at a node. The nodes that lead from xs to ys are read again, on inputs of
    their own: xs may be one tensor of the graph with others.

    Args:
        results: the values of nodes, or what makes them.
    """
    ys, xs, dys, *function = call.node.args
    own = _between(xs, ys)
    _refuse(call, xs, own)
    if function:
        is_plain = all(node.target is not TRANSPOSED for node in own)
        call.require(is_plain, f"{_OF_GRADIENTS} '{function[0]}'; {ADVICE}")
    ends = [*xs, *ys, *(x for node in own for x in _reads(node))]
    around = {node: reading.value(results, node) for node in ends if node not in own}
    is_real = not any(isinstance(x, Complex) for x in around.values())
    call.require(
        is_real, "a derivative has complex numbers around it: give it their parts"
    )
    values = [call.tensor_of(around[x]) for x in xs]
    others = {
        node: x
        for node, x in around.items()
        if isinstance(x, Tensor) and node not in xs
    }
    reading.spend(_WORK * len(own))

    emitter, supply = Emitter(reading.emitter.opset), NameSupply()
    fed = [*zip(xs, values, strict=True), *others.items()]
    for node, x in fed:
        name = supply.fresh(plain_name(node.name))
        around[node] = emitter.emit_named(name, "external", x.dtype, shape=[*x.shape])
    inputs = tuple(around[node] for node, _ in fed)
    with reading.emitting(emitter):
        for node in own:
            reading.take(around, node)
        outputs = tuple(
            reading.returned(reading.value(around, y), supply.fresh("y")) for y in ys
        )
    operations = tuple(emitter.operations)
    names = emitter.assigned_names(operations, emitter.names.values())
    graph = Graph("inner", inputs, outputs, operations, names, facts=facts_learned())
    if function:
        refuse_other_than_linear(graph, len(xs), *function)
    backward = differentiate(graph, wrt=graph.input_names[: len(xs)])
    seeds = zip(
        graph.output_names, (reading.value(results, dy) for dy in dys), strict=True
    )
    named = dict(zip(graph.input_names, (x for _, x in fed), strict=True))
    named |= {
        backward.seeds[y]: call.tensor_of(dy) for y, dy in seeds if y in backward.seeds
    }
    whole = backward.graph
    inner = [op for op in whole.operations if op.name != "external"]
    body = body_of(whole.inputs, inner, whole.outputs, whole.names.__getitem__)
    operands = [named[name] for name in whole.input_names]
    found = instantiate(body, reading.emitter, operands, naming=str, fill=True)
    assert found is not None
    return [*found]


def _between(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    """The nodes that lead from xs to ys, in order. What is drawn has no gradient, nor is it
    drawn again.
    """
    after, before = reachable(xs, USERS), reachable(ys, OPERANDS)
    between = (n for n in xs[0].graph.nodes if n in after and n in before)
    return [n for n in between if n not in xs and not is_drawn(n.target)]


def _reads(node: Any) -> Iterator[Any]:
    """The nodes that a node depends on: a derivative, also on those that it reads again."""
    yield from node.all_input_nodes
    if node.target in (GRADIENT, TRANSPOSED):
        ys, xs, *_ = node.args
        yield from chain.from_iterable(map(_reads, _between(xs, ys)))


def _refuse(call: Call, xs: Sequence[Any], own: Sequence[Any]) -> None:
    """Refuses what would be another derivative if its nodes are read again."""
    is_outside = call.node.graph is call.reading.nodes[0].graph
    call.require(is_outside, "a derivative in a branch is not read")
    for x in xs:
        are_apart = reachable(x.users, USERS).keys().isdisjoint(xs)
        call.require(are_apart, "variables of a derivative depend on each other")
    for node in own:
        is_random = isinstance(node.target, Operator) and _IS_RANDOM in node.target.tags
        call.require(not is_random, "what is differentiated drops elements at random")


_IS_RANDOM = torch.Tag.nondeterministic_seeded
