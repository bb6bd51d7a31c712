"""Times models in tract, which computes in one thread."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tract

from bench.processes import answer
from bench.timing import interleaved


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The request has the folders of the `models`, and the shapes of their inputs."""
    programs = {
        name: program(folder, request["shapes"][name])
        for name, folder in request["models"].items()
    }
    for run in programs.values():
        run()
    return {
        "version": f"tract {tract.version()}",
        "seconds": interleaved(programs, request["runs"], request["seconds"]),
    }


# Every language model has as many.
TOKENS = 100


def program(folder: str, shapes: list[list[int]]) -> Any:
    generator = np.random.default_rng(0)
    model = tract.nnef().load(folder)
    inputs = [
        generator.integers(TOKENS, size=shape)
        if model.input_fact(index).datum_type() == tract.DatumType.I64
        else generator.standard_normal(shape, np.float32)
        for index, shape in enumerate(shapes)
    ]
    return partial(model.into_runnable().run, inputs)


if __name__ == "__main__":
    answer(main)
