"""The runtimes and other consumers of NNEF: what they compute for a graph.

    khronos      the Khronos parser and its shape inference: shapes, and no numbers
    session      the Khronos C++ runtime, `nnef.Session`, no operation lowered
    interpreter  the Khronos PyTorch interpreter, `nnef_tools`' NNEFModule
    tract        tract's own reader of NNEF
    onnx         ONNX Runtime, by `to_onnx`: with its own options, and without
                 optimisations
    converter    the same, by the converter of `nnef_tools`

Each runs in processes of its own, since they crash and hang: nothing here imports any of
them but its own module, which is what runs in the other process.

    outcomes = run("session", [Case(text, {"x": x}, {"layer/weight": weight})])
    verdict = compare(outcomes[0], {"y": y})

They are the group `runtimes` of its dependencies. A matrix of all models and all consumers
is printed by `python -m support.runtimes`, from the folder of the tests.
"""

from support.runtimes.cases import TOLERANCE, Case, Outcome, Stored, Verdict, compare
from support.runtimes.harness import (
    CONSUMERS,
    MissingError,
    consumers_of,
    missing,
    needs,
    run,
)

__all__ = [
    "CONSUMERS",
    "TOLERANCE",
    "Case",
    "MissingError",
    "Outcome",
    "Stored",
    "Verdict",
    "compare",
    "consumers_of",
    "missing",
    "needs",
    "run",
]
