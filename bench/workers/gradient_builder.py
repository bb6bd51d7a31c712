"""Times the builder of gradient graphs of onnxruntime-training on an ONNX file. It runs
in the environment of onnxruntime-training.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnxruntime.capi._pybind_state import GradientGraphBuilder

from bench.processes import answer
from bench.timing import interleaved
from bench.workers.gradient_graph import with_loss


def main(request: dict[str, Any]) -> list[float]:
    """The request has the `forward` file, the names of the `variables`, and how often and
    how long to run. The answer has the times, in seconds.
    """
    model = with_loss(onnx.load(request["forward"]), "seed")
    text, wanted = model.SerializeToString(), set(request["variables"])

    def build() -> None:
        GradientGraphBuilder(text, {"loss"}, wanted, "loss").build()

    build()
    return interleaved({"": build}, request["runs"], request["seconds"])[""]


if __name__ == "__main__":
    answer(main)
