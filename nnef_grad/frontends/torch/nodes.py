"""The nodes of a program: the lines of the network, and the nodes, that they come from, and
marks for what stops gradients, which survive when a program is made functional: PyTorch
inlines the blocks without gradients then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from linecache import getlines
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.base.source import Source, Span
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
_DETACH = find_operator("aten.detach.default")
_DETACH_IN_PLACE = find_operator("aten.detach_.default")


def mark_stops(module: Any, is_enabled: bool = True) -> None:
    """Marks what no gradient flows through, in a graph and in the blocks that it has.

    In a block without gradients these are the results of its operations that are read
    outside of it, and what is written into tensors from outside.
    """
    graph = module.graph
    for node in [node for node in graph.nodes if node.op == "call_function"]:
        if node.target is BLOCK:
            mark_stops(getattr(module, node.args[1].target), bool(node.args[0]))
        elif node.target is AUTOCAST:
            mark_stops(getattr(module, node.args[4].target), is_enabled)
        elif node.target is _DETACH_IN_PLACE:
            _mark_from(graph, node)
        elif writes(node):
            _refuse_hidden(node)
    if not is_enabled:
        for node in list(graph.nodes):
            _mark_reads(graph, node)
    graph.lint()
    module.recompile()


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


def _refuse_hidden(node: Any) -> None:
    """Refuses to write by what is detached: a derivative would not know of it."""
    if "embedding_renorm" in str(node.target):
        # Refused by its own name.
        return
    for views in map(list, map(_views, _written(node))):
        is_detached = any(view.target is _DETACH for view in views)
        if is_detached and not _is_buffer(views[-1]):
            message = "a tensor is written by its 'data' or a detached tensor"
            advice = "write into a clone, or make a new tensor"
            raise UnsupportedError(f"{message}: {advice}", span_of(node))


def _mark_reads(graph: Any, node: Any) -> None:
    """Marks what leaves a block by a node."""
    if node.op == "output" or node.target is BLOCK:
        node.args = _marked(graph, node, node.args)
    elif node.op == "call_function" and writes(node):
        for target in _written(node):
            *_, origin = _views(target)
            if origin.op == "placeholder" and not _is_buffer(origin):
                message = "a tensor is written into where gradients are disabled"
                advice = "make a new one, such as by torch.where"
                raise UnsupportedError(f"{message}: {advice}", span_of(node))
        parameters = schema(node.target).arguments
        node.args = tuple(
            x if _is_written(p) else _marked(graph, node, x)
            for p, x in zip(parameters, node.args, strict=False)
        )


def _marked(graph: Any, node: Any, args: Any) -> Any:
    """Arguments with a mark for each tensor that was computed in the block."""

    def marked(argument: Any) -> Any:
        if not _is_computed(argument):
            return argument
        with graph.inserting_before(node):
            stop = graph.call_function(STOP, (argument,))
        stop.meta = dict(argument.meta)
        return stop

    return torch.fx.node.map_arg(args, marked)


def _is_computed(node: Any) -> bool:
    """Whether a node is a tensor with fractions that an operation has computed. The results
    of a block inside have its marks.
    """
    value = node.meta.get("val")
    is_tensor = isinstance(value, torch.Tensor) and value.is_floating_point()
    is_of_block = any(source.target is BLOCK for source in node.all_input_nodes)
    return node.op == "call_function" and is_tensor and not is_of_block


def writes(node: Any) -> bool:
    """Whether a node calls an operation that writes into a tensor."""
    own = schema(node.target)
    return own is not None and own.is_mutable


def _is_written(parameter: Any) -> bool:
    """Whether an operation writes into an argument."""
    return parameter.alias_info is not None and parameter.alias_info.is_write


def _written(node: Any) -> list[Any]:
    """The tensors that an operation writes into, some of them in lists."""
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
        if own is None or all(r.alias_info is None for r in own.returns):
            return
        node = node.all_input_nodes[0]
        yield node
