"""The parts of the benchmark: each is a module with a function `measure`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from bench.rows import Measured, Skipped
from bench.settings import Settings

# For each part, the packages that it needs.
PARTS = {
    "compiler": ("nnef",),
    "onnx": ("onnx", "onnxruntime"),
    "khronos": ("nnef_tools", "torch"),
    "tract": ("tract",),
    "examples": ("onnx", "onnxruntime", "torch", "torchvision", "timm", "transformers"),
    "real": ("onnx", "onnxruntime", "torch", "torchvision", "timm"),
}


def measure(part: str, settings: Settings) -> Measured:
    """The rows of a part, or that its packages are not installed."""
    missing = [package for package in PARTS[part] if find_spec(package) is None]
    if missing:
        yield Skipped(part, "the whole part", f"not installed: {', '.join(missing)}")
    else:
        yield from import_module(f"bench.parts.{part}").measure(settings)
