"""Exports a network of torchvision or timm to ONNX."""

from __future__ import annotations

from typing import Any

from bench.processes import answer
from bench.workers.torch_models import export


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The request has the `net`, the `batch` and the `file`."""
    return {"parameters": export(request["net"], request["batch"], request["file"])}


if __name__ == "__main__":
    answer(main)
