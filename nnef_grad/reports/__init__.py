"""Reports: a graph and its gradient as a page to look at.

The page is one file that loads nothing: a template, a style sheet and scripts in
page/, and the contents as JSON (contents.py). What stands beside what is decided here
(blocks.py, folds.py); where it is drawn, in the page, with the layout of dagre
(page/vendor).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.errors import UsageError
from nnef_grad.base.frozen import frozen
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.graph.ir import Graph
from nnef_grad.reports.contents import contents
from nnef_grad.reports.template import page
from nnef_grad.reports.values import values_shown
from nnef_grad.storage.files import PathLike, new_files, refuse_existing, writing

if TYPE_CHECKING:
    import numpy.typing as npt

    from nnef_grad.interpreter.gradcheck import Checked
    from nnef_grad.interpreter.spread import Spread

SUFFIXES = (".html", ".htm")


@frozen(eq=False)
class Page:
    """A page that was written. A notebook shows it where it is the last value of a cell.

    Attributes:
        path: the file.
        text: what is in it.
    """

    path: Path
    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 45rem; border: 0"
        text = escape(self.text)
        return (
            f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{text}"></iframe>'
        )


@public
def report(
    graph: Graph,
    backward: Backward,
    path: PathLike,
    *,
    rules: Rules | None = None,
    checked: Checked | None = None,
    values: Mapping[str, npt.ArrayLike | Spread] | None = None,
    losses: Mapping[int, float] | None = None,
    called: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Page:
    """Writes a page that shows a graph and its backward graph side by side, with their
    costs. Any browser opens it offline, and a notebook shows it. Writing is atomic.

    Args:
        graph: the forward graph.
        backward: its backward graph, from `differentiate` or `jacobian`; its graph may be
            a lowered one.
        path: the file to write, x.html.
        rules: your own rules, if any, whose texts the page shows.
        checked: the result of `check`, to show the verdict, norm and histogram of each
            gradient.
        values: the gradients by their names, from `evaluate`, for norms and histograms
            without a check or at another point.
        losses: those of a training, by the number of the step, for a curve:
            `{training.steps: loss for loss in training}`.
        called: what tensors are called in the file of the model, by their names in the
            graphs, `in_file.names` of `from_onnx`: the page shows these too, and finds them.
        overwrite: whether to replace an existing file.

    Raises:
        UsageError: the file exists and must not be replaced, cannot be written, or is not
            called x.html.
        InvalidGraphError: an extent has no number.
    """
    refuse_page(path, overwrite=overwrite)
    text = page_of(graph, backward, rules, checked, values, losses, called)
    with page_after(path, text, overwrite=overwrite):
        pass
    return Page(Path(path), text)


def page_of(
    graph: Graph,
    backward: Backward,
    rules: Rules | None = None,
    checked: Checked | None = None,
    values: Mapping[str, npt.ArrayLike | Spread] | None = None,
    losses: Mapping[int, float] | None = None,
    called: Mapping[str, str] | None = None,
) -> str:
    """The text of the page of `report`."""
    with collector_paused():
        shown = values_shown(backward, checked, values)
        own = rules or Rules()
        return page(contents(graph, backward, own, shown, losses, called))


@contextmanager
def page_after(path: PathLike, text: str, *, overwrite: bool) -> Iterator[None]:
    """Writes a page: it is complete before what is done meanwhile, and appears after it,
    unless that fails.
    """
    place = Path(path)
    with new_files(place, overwrite=overwrite) as drafts:
        with writing(path):
            drafts[place].write_text(text, "utf-8", newline="\n")
        yield


def refuse_page(path: PathLike, *, overwrite: bool) -> None:
    """Raises `UsageError` if a page cannot have this path, or must not replace what is
    there.
    """
    place = Path(path)
    if place.suffix.lower() not in SUFFIXES:
        raise UsageError(f"a report is a page: call it x.html, and not '{path}'")
    with writing(path):
        refuse_existing(place, overwrite=overwrite)
