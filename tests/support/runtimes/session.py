"""The Khronos C++ runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nnef
import numpy as np

from support.runtimes.cases import Array
from support.runtimes.worker import serve, signature


def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs.

    It takes compound operations that it lacks apart if they are listed in `lowered`.
    """
    names, outputs = signature(folder)
    with nnef.Session(str(folder), lowered=[]) as session:
        return dict(
            zip(outputs, session(*(inputs[name] for name in names)), strict=True)
        )


if __name__ == "__main__":
    serve(execute, np.int32)
