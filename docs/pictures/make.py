"""Makes the pictures of docs/report.md, in a browser.

    pip install '.[browser,onnx]' netron
    python docs/pictures/make.py RESNET.nnef

Needs a Chromium of the system, and Khronos' ResNet: models/nnef/resnet of its model zoo.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import netron
import numpy as np
from playwright.sync_api import Page, sync_playwright

import nnef_grad
from nnef_grad import interop

HERE = Path(__file__).parent
MLP = HERE.parents[1] / "samples" / "mlp.nnef"


def main(resnet: str) -> None:
    """Makes all of them."""
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        settings: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
        light = browser.new_page(**settings)
        show(light, nnef_grad.load(MLP), Path(folder) / "mlp.html")
        light.click('[aria-label^="grad_bias1:"]')
        light.screenshot(path=HERE / "report-mlp.png")
        dark = browser.new_page(color_scheme="dark", **settings)
        show(dark, nnef_grad.load(resnet), Path(folder) / "resnet.html")
        dark.screenshot(path=HERE / "report-resnet.png")
        page = browser.new_page(viewport={"width": 900, "height": 1000})
        show_netron(page, Path(folder) / "mlp_bwd.onnx")
        page.screenshot(path=HERE / "netron.png", clip=box(150, 130, 600, 740))
        netron.stop()
        browser.close()


def show(page: Page, graph: nnef_grad.Graph, path: Path) -> None:
    """Opens the report of a graph."""
    nnef_grad.report(graph, nnef_grad.differentiate(graph), path)
    page.goto(path.as_uri())


def show_netron(page: Page, path: Path) -> None:
    """Opens the gradient of the sample in Netron, as an ONNX file."""
    graph = nnef_grad.differentiate(nnef_grad.load(MLP)).graph
    labels = {str(op.attributes.get("label")): op for op in graph.operations}
    data = {n: np.zeros(op.outputs[0].shape, np.float32) for n, op in labels.items()}
    interop.to_onnx(graph, path, data)
    host, port = netron.start(str(path), browse=False)
    page.goto(f"http://{host}:{port}")
    page.click("text=Accept")
    page.wait_for_selector("text=grad_weight1")
    page.mouse.move(0, 0)


def box(x: int, y: int, width: int, height: int) -> Any:
    """A part of a page, in pixels."""
    return {"x": x, "y": y, "width": width, "height": height}


if __name__ == "__main__":
    main(*sys.argv[1:])
