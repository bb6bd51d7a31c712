"""The lines of a network, and the nodes, that nodes of its program come from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache
from linecache import getlines
from pathlib import Path
from typing import Any

import torch

from nnef_grad.base.source import Source, Span

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent)


def span_of(node: Any) -> Span:
    """The line of the module that a node comes from: the last one that is not in torch."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith((_TORCH, "torch/", "<"))]
    if not own:
        return Span(Source(f"<{node.name}>", ""), 0, 0)
    file, line = own[-1]
    return _line(file, int(line))


def sources(nodes: Iterable[Any]) -> Collection[Any]:
    """Nodes, and all that they are computed from; what is no node is left out."""
    waiting = [node for node in nodes if isinstance(node, torch.fx.Node)]
    found = dict.fromkeys(waiting)
    while waiting:
        new = [node for node in waiting.pop().all_input_nodes if node not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return found


@cache
def _line(file: str, number: int) -> Span:
    lines = getlines(file)
    if number > len(lines):
        return Span(Source(f"{file}:{number}", ""), 0, 0)
    start = sum(map(len, lines[: number - 1]))
    text = lines[number - 1].rstrip()
    indent = len(text) - len(text.lstrip())
    return Span(Source(file, "".join(lines)), start + indent, start + len(text))
