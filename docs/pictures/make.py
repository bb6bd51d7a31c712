"""Takes the pictures of docs/report.md, in a browser.

    pip install '.[onnx]' --group browser netron
    python docs/pictures/make.py RESNET.nnef

Needs a Chromium of the system, and Khronos' ResNet: models/nnef/resnet of its model zoo.
A test fails when what the pictures show has changed since: shown.py.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import netron
import numpy as np
from playwright.sync_api import Page, Route, sync_playwright
from shown import FOLDER, MLP, SHOWN, sum_of, write_sums

import nnef_grad
from nnef_grad import interop

# For screens with more than one dot per pixel.
SCALE = 1.5


def main(resnet: str) -> None:
    """Takes all of them, and keeps the sums of what they show."""
    graphs = dict.fromkeys(SHOWN, nnef_grad.load(MLP))
    graphs["report-resnet.png"] = nnef_grad.load(resnet)
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        settings: dict[str, Any] = {
            "viewport": {"width": 1280, "height": 800},
            "device_scale_factor": SCALE,
        }
        light = browser.new_page(**settings)
        dark = browser.new_page(color_scheme="dark", **settings)
        for page, name in ((light, "report-mlp"), (dark, "report-mlp-dark")):
            show(page, graphs[f"{name}.png"], Path(folder) / f"{name}.html")
            page.click('[aria-label^="grad_bias1:"]')
            page.screenshot(path=FOLDER / f"{name}.png")
        show(dark, graphs["report-resnet.png"], Path(folder) / "resnet.html")
        dark.screenshot(path=FOLDER / "report-resnet.png")
        page = browser.new_page(viewport={"width": 900, "height": 1000})
        show_netron(page, graphs["netron.png"], Path(folder) / "mlp_bwd.onnx")
        page.screenshot(path=FOLDER / "netron.png", clip=box(150, 130, 600, 740))
        netron.stop()
        browser.close()
    write_sums({picture: sum_of(picture, graph) for picture, graph in graphs.items()})


def show(page: Page, graph: nnef_grad.Graph, path: Path) -> None:
    """Opens the report of a graph."""
    nnef_grad.report(graph, nnef_grad.differentiate(graph), path)
    page.goto(path.as_uri())


def show_netron(page: Page, graph: nnef_grad.Graph, path: Path) -> None:
    """Opens the gradient of a graph in Netron, as an ONNX file."""
    backward = nnef_grad.differentiate(graph).graph
    labels = {str(op.attributes.get("label")): op for op in backward.operations}
    data = {n: np.zeros(op.outputs[0].shape, np.float32) for n, op in labels.items()}
    interop.to_onnx(backward, path, data)
    host, port = netron.start(str(path), browse=False)
    page.route("**/view.js", use_common_brackets)
    page.goto(f"http://{host}:{port}")
    page.click("text=Accept")
    page.wait_for_selector("text=grad_weight1 >> visible=true")
    page.mouse.move(0, 0)


def use_common_brackets(route: Route) -> None:
    """Shapes in brackets of mathematics: few fonts have those of Chinese and Japanese."""
    response = route.fetch()
    script = response.text().replace(r"\u3008", r"\u27e8").replace(r"\u3009", r"\u27e9")
    route.fulfill(response=response, body=script)


def box(x: int, y: int, width: int, height: int) -> Any:
    """A part of a page, in pixels."""
    return {"x": x, "y": y, "width": width, "height": height}


if __name__ == "__main__":
    main(*sys.argv[1:])
