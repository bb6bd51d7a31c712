"""The page of samples/web/ in Chromium, and its training in Node.js: the losses are torch's.
Packages of npm are those of `make npm`.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from support.pages import ROOT, invoke

onnxruntime: Any = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("sklearn")
SAMPLE = ROOT / "samples" / "web"
STEPS, BATCH = 50, 32
SAID = f"after {STEPS} steps"


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    return runpy.run_path(str(SAMPLE / "module.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sample: dict[str, Any]) -> Path:
    """The page with its files, as the tutorial makes them."""
    if not (packages := SAMPLE / "node_modules").exists():
        pytest.skip("packages of npm are not here: make npm")
    page = tmp_path_factory.mktemp("web") / "page"
    sample["main"](page)
    (page / "node_modules").symlink_to(packages)
    for command in (
        f"nnef-grad-step {page}/digits.onnx --batch {BATCH} --loss softmax_cross_entropy_with_labels"
        f" --optimizer adam --target onnx-portable -o {page}/train.onnx --start {page}/start.onnx",
        f"nnef-grad {page}/digits.onnx --batch 1 --saliency --target onnx-portable -o {page}/saliency.onnx",
    ):
        done = invoke(command)
        assert done.exit_code == 0, done.output
    return page


@pytest.fixture(scope="module")
def trained(sample: dict[str, Any]) -> tuple[list[float], torch.nn.Module]:
    """The losses of torch, and its module after the steps."""
    images, labels = sample["digits"]()
    torch.manual_seed(0)
    module = sample["network"]()
    optimizer, losses = torch.optim.Adam(module.parameters(), lr=0.01), []
    for rows in np.resize(np.arange(len(labels)), (STEPS, BATCH)):
        pixels = torch.from_numpy(images[rows] / np.float32(16)).reshape(-1, 1, 8, 8)
        scores, targets = module(pixels), torch.from_numpy(labels[rows]).long()
        loss = torch.nn.functional.cross_entropy(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, module


Trained = tuple[list[float], torch.nn.Module]


@pytest.mark.parametrize("package", ["onnxruntime-node", "onnxruntime-web"])
def test_in_node(folder: Path, trained: Trained, package: str) -> None:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not here: apt-get install nodejs")
    words = ["node", "node.mjs", str(STEPS), package]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    losses = [float(line) for line in done.stdout.split()]
    np.testing.assert_allclose(losses, trained[0], atol=1e-4)
    assert losses[-1] < losses[0] / 5


@pytest.fixture
def page(browser: Any, folder: Path) -> Iterator[Any]:
    """The page, from a server of this machine alone."""
    handler = partial(Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        opened = browser.new_page()
        opened.goto(f"http://127.0.0.1:{server.server_port}/")
        yield opened
        opened.close()
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what it serves."""

    def log_message(self, format: str, *args: object) -> None: ...


def test_in_a_browser(page: Any, trained: Trained, tmp_path: Path) -> None:
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.click("#train")
    page.get_by_text(SAID).wait_for(timeout=120_000)
    losses, module = trained
    said = page.text_content("#loss").split()
    assert float(said[1]) == pytest.approx(losses[-1], abs=1e-4)

    page.wait_for_function("!document.getElementById('train').disabled")
    draw_one(page)
    page.wait_for_function("document.getElementById('seen').value === '1'")
    drawn = page.evaluate(PIXELS)
    assert (drawn["drawing"] > 0, drawn["saliency"] > 0) == (True, True)

    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "tuned.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    images = torch.rand(3, 1, 8, 8)
    (scores,) = session.run(None, {"input": images.numpy()})
    expected = module(images).detach().numpy()
    np.testing.assert_allclose(scores, expected, 1e-3, 1e-3)
    assert problems == []


PIXELS = """() => Object.fromEntries(["drawing", "saliency"].map((id) => {
  const { width, height } = document.getElementById(id);
  const { data } = document.getElementById(id).getContext("2d").getImageData(0, 0, width, height);
  return [id, data.filter((value, i) => i % 4 === 3 && value > 0).length];
}))"""


def draw_one(page: Any) -> None:
    """A stroke from above to below."""
    box = page.locator("#drawing").bounding_box()
    page.mouse.move(box["x"] + 80, box["y"] + 25)
    page.mouse.down()
    page.mouse.move(box["x"] + 80, box["y"] + 135, steps=12)
    page.mouse.up()
