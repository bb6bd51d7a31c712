"""The nodes of a program: the lines of the network, and the nodes, that they come from, and
marks for what stops gradients, which survive when a program is made functional: PyTorch
inlines the blocks without gradients then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from linecache import getlines
from operator import attrgetter, getitem
from pathlib import Path
from typing import Any

import torch

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.base.source import Source, Span
from nnef_grad.frontends.torch.complexes import counts
from nnef_grad.frontends.torch.internals import find_operator, schema

FRAME = re.compile(r'File "([^"]+)", line (\d+)')
# Files without the code of a network; Python's own, but for the packages that it has.
_NO_NETWORKS = (
    f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).parents[2]}{os.sep}",
    "torch/", "<",
)  # fmt: skip
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"


def is_network(file: str) -> bool:
    """Whether a file has code of a network."""
    is_of_python = file.startswith(_PYTHON) and "-packages" not in file
    return not is_of_python and not file.startswith(_NO_NETWORKS)


def span_of(node: Any) -> Span:
    """The line of the module that a node comes from: the last one that is not in torch."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if is_network(frame[0])]
    if not own:
        return Span(Source(f"<{node.name}>", ""), 0, 0)
    file, line = own[-1]
    return _line(file, int(line))


# The ways from a node: to what it is computed from, and to what is computed from it.
OPERANDS, USERS = attrgetter("all_input_nodes"), attrgetter("users")


def reachable(nodes: Iterable[Any], way: Callable[[Any], Any]) -> dict[Any, None]:
    """Nodes, and all that a way leads to; what is no node is left out."""
    waiting = [node for node in nodes if isinstance(node, torch.fx.Node)]
    reached = dict.fromkeys(waiting)
    while waiting:
        new = [node for node in way(waiting.pop()) if node not in reached]
        reached.update(dict.fromkeys(new))
        waiting += new
    return reached


@cache
def _line(file: str, number: int) -> Span:
    lines = getlines(file)
    if number > len(lines):
        return Span(Source(f"{file}:{number}", ""), 0, 0)
    start = sum(map(len, lines[: number - 1]))
    text = lines[number - 1].rstrip()
    indent = len(text) - len(text.lstrip())
    return Span(Source(file, "".join(lines)), start + indent, start + len(text))


# ---- Marks ----

LIBRARY = torch.library.Library("nnef_grad", "DEF")
LIBRARY.define("stop_gradient(Tensor x) -> Tensor")
LIBRARY.impl("stop_gradient", lambda x: x.clone(), "CompositeExplicitAutograd")
STOP = torch.ops.nnef_grad.stop_gradient.default

BLOCK = find_operator("higher_order.wrap_with_set_grad_enabled")
AUTOCAST = find_operator("higher_order.wrap_with_autocast")
# What calls a graph, and the place of the graph among its arguments.
_BLOCKS = {BLOCK: 1, AUTOCAST: 4}
_DETACH = find_operator("aten.detach.default")
_DETACH_IN_PLACE = find_operator("aten.detach_.default")


def mark_stops(
    module: Any, is_enabled: bool = True, fresh: Collection[Any] | None = None
) -> None:
    """Marks what no gradient flows through, in a graph and in the blocks that it has.

    In a block without gradients these are the results of its operations that are read
    outside of it, and what is written into tensors from outside.

    Args:
        fresh: placeholders of buffers, and of tensors that were made outside, as far as
            they carry no gradient; all buffers of a program.
    """
    graph = module.graph
    if fresh is None:
        fresh = {node for node in graph.nodes if _is_buffer(node)}
    carried = _Carried(fresh)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _BLOCKS:
            is_on = bool(node.args[0]) if node.target is BLOCK else is_enabled
            settings = _BLOCKS[node.target]
            block = getattr(module, node.args[settings].target)
            given = zip(_placeholders(block), node.args[settings + 1 :], strict=False)
            mark_stops(block, is_on, {p for p, x in given if carried.is_fresh(x)})
        elif node.target is _DETACH_IN_PLACE:
            _mark_from(graph, node)
        elif node.op == "call_function" and writes(node):
            _mark_hidden(graph, node, carried)
        carried.take(node)
    if not is_enabled:
        for node in list(graph.nodes):
            _mark_reads(graph, node, fresh)
    graph.lint()
    module.recompile()


def _placeholders(module: Any) -> list[Any]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


class _Carried:
    """Which tensors carry no gradient, at the node that was taken last: those that are given,
    and what is computed of such alone, until others are written into it.
    """

    def __init__(self, given: Collection[Any]) -> None:
        self.given, self.free = given, {*given}

    def is_free(self, node: Any) -> bool:
        """Whether a tensor carries no gradient."""
        *_, origin = _views(node)
        return node.target is STOP or (node in self.free and origin in self.free)

    def is_fresh(self, node: Any) -> bool:
        """Whether a tensor was given, or made in the graph, too: nobody else has it."""
        if not isinstance(node, torch.fx.Node):
            return False
        *_, origin = _views(node)
        return self.is_free(node) and (
            origin.op == "call_function" or origin in self.given
        )

    def take(self, node: Any) -> None:
        """Follows a node."""
        if node.op == "get_attr":
            self.free.add(node)
        if node.op != "call_function":
            return
        if _is_made(node) or all(map(self.is_free, node.all_input_nodes)):
            self.free.add(node)
            return
        targets = node.all_input_nodes if node.target in _BLOCKS else _written(node)
        # Schemas do not tell of all views, such as of `atleast_2d`: whatever has to do with
        # the tensor may be one, except through what has memory of its own.
        origins = reachable(targets, lambda x: () if _is_copy(x) else OPERANDS(x))
        views = reachable(origins, lambda x: (u for u in x.users if not _is_copy(u)))
        self.free -= views.keys()


def _is_copy(node: Any) -> bool:
    """Whether the result of a node is never a view: it is computed element by element."""
    own = schema(node.target)
    is_elementwise = own is not None and torch.Tag.pointwise in node.target.tags
    return is_elementwise and all(result.alias_info is None for result in own.returns)


def _is_made(node: Any) -> bool:
    """Whether a node makes a tensor that only has the shape of another one."""
    name = getattr(node.target, "__name__", "").partition(".")[0]
    return bool(name.endswith("_like") or name.startswith("new_"))


def _mark_from(graph: Any, node: Any) -> None:
    """Puts a mark where a tensor is detached in place: what comes later reads the mark."""
    (tensor,) = node.args
    later = [n for n in tensor.users if n > node]
    with graph.inserting_after(node):
        stop = graph.call_function(STOP, (tensor,))
    stop.meta = dict(tensor.meta)
    for user in later:
        user.replace_input_with(tensor, stop)
    node.replace_all_uses_with(stop)
    graph.erase_node(node)


def _mark_hidden(graph: Any, node: Any, carried: _Carried) -> None:
    """Marks what is written by what is detached. Refuses it if the tensor carries a gradient:
    a derivative would not know of it.
    """
    if "embedding_renorm" in str(node.target):
        # Refused by its own name.
        return
    for views in map(list, map(_views, _written(node))):
        if not any(view.target is _DETACH for view in views):
            continue
        if not carried.is_fresh(views[-1]):
            message = "a tensor is written by its 'data' or a detached tensor"
            advice = "write into a clone, or make a new tensor"
            raise UnsupportedError(f"{message}: {advice}", span_of(node))
        _mark_written(graph, node, carried.free)


def _mark_reads(graph: Any, node: Any, fresh: Collection[Any]) -> None:
    """Marks what leaves a block by a node."""
    if node.op == "output" or node.target is BLOCK:
        node.args = _marked(graph, node, node.args, _is_computed)
    elif node.op == "call_function" and writes(node):
        for target in _written(node):
            *_, origin = _views(target)
            if origin.op == "placeholder" and origin not in fresh:
                message = "a tensor is written into where gradients are disabled"
                advice = "make a new one, such as by torch.where"
                raise UnsupportedError(f"{message}: {advice}", span_of(node))
        _mark_written(graph, node, fresh)


def _mark_written(graph: Any, node: Any, free: Collection[Any]) -> None:
    """Marks what is written into a tensor by a node, unless it carries no gradient."""

    def is_meant(x: Any) -> bool:
        return _has_fractions(x) and x not in free

    parameters = schema(node.target).arguments
    node.args = tuple(
        x if _is_written(p) else _marked(graph, node, x, is_meant)
        for p, x in zip(parameters, node.args, strict=False)
    )


def _marked(graph: Any, node: Any, args: Any, is_meant: Callable[[Any], bool]) -> Any:
    """Arguments with a mark for each tensor that is meant."""

    def marked(argument: Any) -> Any:
        if not is_meant(argument):
            return argument
        with graph.inserting_before(node):
            stop = graph.call_function(STOP, (argument,))
        stop.meta = dict(argument.meta)
        return stop

    return torch.fx.node.map_arg(args, marked)


def _has_fractions(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not counts(value)


def _is_computed(node: Any) -> bool:
    """Whether a node is a tensor with fractions that an operation has computed. The results
    of a block inside have its marks.
    """
    is_of_block = any(source.target is BLOCK for source in node.all_input_nodes)
    return node.op == "call_function" and _has_fractions(node) and not is_of_block


def writes(node: Any) -> bool:
    """Whether a node calls an operation that writes into a tensor."""
    own = schema(node.target)
    return own is not None and own.is_mutable


def _is_written(parameter: Any) -> bool:
    """Whether an operation writes into an argument."""
    return parameter.alias_info is not None and parameter.alias_info.is_write


def _written(node: Any) -> list[Any]:
    """The tensors that an operation writes into, some of them in lists."""
    if not writes(node):
        return []
    parameters, nodes = schema(node.target).arguments, list[Any]()
    names = (p.name for p in parameters)
    by_name = dict(zip(names, node.args, strict=False)) | node.kwargs
    targets = [by_name.get(p.name) for p in parameters if _is_written(p)]
    torch.fx.node.map_arg(targets, nodes.append)
    return nodes


def _is_buffer(node: Any) -> bool:
    return node.op == "placeholder" and str(node.name).startswith("b_")


def _views(node: Any) -> Iterator[Any]:
    """A node, what it is a view of, and so on, as far as views have one operand."""
    yield node
    while node.op == "call_function" and node.all_input_nodes:
        own = schema(node.target)
        is_view = own is not None and any(r.alias_info is not None for r in own.returns)
        if not (is_view or node.target is getitem):
            return
        node = node.all_input_nodes[0]
        yield node
