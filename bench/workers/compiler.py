"""Compiles a model by the command line, and answers with the peak of its memory."""

from __future__ import annotations

import resource
from typing import Any

from bench.processes import answer
from nnef_grad.commandline.cli import main as compile_model


def main(request: dict[str, Any]) -> float:
    """The request has the `arguments`. The answer is in MiB."""
    compile_model(request["arguments"], standalone_mode=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    answer(main)
