"""Reports: a graph and its gradient as a page to look at.

The page is one file that loads nothing: a template, a style sheet and scripts in
page/, and the contents as JSON (contents.py). What stands beside what is decided here
(blocks.py, folds.py); where it is drawn, in the page, with the layout of dagre
(page/vendor).
"""

from __future__ import annotations

from pathlib import Path

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Rules
from nnef_grad.collector import collector_paused
from nnef_grad.graph.ir import Graph
from nnef_grad.reports.contents import contents
from nnef_grad.reports.template import page
from nnef_grad.storage.files import PathLike, write_texts

__all__ = ["report"]


@collector_paused()
def report(
    graph: Graph,
    backward: Backward,
    path: PathLike,
    *,
    rules: Rules | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a page that shows a graph and its backward graph side by side, with what
    they cost. A browser opens it without a network. Writing is atomic.

    Args:
        graph: the forward graph.
        backward: its backward graph, from `differentiate` or `jacobian`; its graph may be
            a lowered one.
        path: the file to write, HTML.
        rules: the rules that the graph was differentiated with, if not the standard ones
            alone: the page shows their texts.
        overwrite: whether to replace an existing file.

    Raises:
        UsageError: the file exists and must not be replaced, or cannot be written.
    """
    rules = rules if rules is not None else Rules()
    text = page(contents(graph, backward, rules))
    write_texts({Path(path): text}, overwrite=overwrite)
