"""The pictures that are taken in a browser, and what they show: the sum of it, which
shown.txt keeps for each, changes when a picture is no longer what a reader would see.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import nnef_grad
from nnef_grad.reports.contents import contents
from nnef_grad.reports.template import page

FOLDER = Path(__file__).parent
SUMS = FOLDER / "shown.txt"
MLP = FOLDER.parents[1] / "samples" / "mlp.nnef"


def report_of(graph: nnef_grad.Graph) -> str:
    """The page of a report, without the texts of rules: no picture shows more than the
    head of one.
    """
    backward = nnef_grad.differentiate(graph)
    return page({**contents(graph, backward, nnef_grad.Rules()), "rules": []})


def gradient_of(graph: nnef_grad.Graph) -> str:
    """The text of a backward graph."""
    return nnef_grad.dumps(nnef_grad.differentiate(graph))


SHOWN = {
    "report-mlp.png": report_of,
    "report-mlp-dark.png": report_of,
    "report-resnet.png": report_of,
    "netron.png": gradient_of,
}


def sum_of(picture: str, graph: nnef_grad.Graph) -> str:
    """The SHA-256 of what a picture shows of a graph."""
    return sha256(SHOWN[picture](graph).encode()).hexdigest()


def sums_when_taken() -> dict[str, str]:
    """The sum for each picture, from the day that it was taken."""
    lines = SUMS.read_text("utf-8").splitlines()
    return {picture: digest for digest, picture in map(str.split, lines)}


def write_sums(sums: dict[str, str]) -> None:
    """Keeps the sums, in the form of sha256sum."""
    lines = [f"{digest}  {picture}\n" for picture, digest in sums.items()]
    SUMS.write_text("".join(lines), "utf-8")
