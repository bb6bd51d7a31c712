"""Times ONNX files in the ONNX Runtime of this environment, whichever edition it is."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnxruntime

from bench.processes import answer
from bench.timing import interleaved
from bench.workers.results import difference

TOP = 12


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The request has `files` by program, `runs`, `seconds`, `threads` and `profile`: a
    folder for the profiles, or none.
    """
    threads = request["threads"]
    sessions = {name: session(f, threads) for name, f in request["files"].items()}
    programs = {n: partial(s.run, None, feeds(s)) for n, s in sessions.items()}
    results = {name: program() for name, program in programs.items()}
    compared = [results[name] for name in request["alike"] if name in results]
    answered = {
        "version": onnxruntime.__version__,
        "seconds": interleaved(programs, request["runs"], request["seconds"]),
        "difference": difference(*compared) if len(compared) == 2 else None,
    }
    if request["profile"]:
        answered["profiles"] = {
            name: profile(file, threads, request["profile"])
            for name, file in request["files"].items()
        }
    return answered


def session(
    path: str, threads: int, profiles: str | None = None, *, spare: bool = False
) -> Any:
    """A session; one that may `spare` memory plans none for later runs, beside that of the
    first, and computes gradients where their last operand is there. In layouts of its own,
    what ONNX Runtime makes of convolutions would come after all else that can be computed.
    """
    options = onnxruntime.SessionOptions()
    if spare:
        options.enable_mem_pattern = False
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.graph_optimization_level = level
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # The threads of one session would otherwise go on waiting, busily, while the next
    # program is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if profiles:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(profiles, Path(path).stem))
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(path, options, providers=providers)


def feeds(session: Any) -> dict[str, Any]:
    """Random inputs, the same for inputs of the same name."""
    return {
        fed.name: np.random.default_rng(crc32(fed.name.encode())).standard_normal(
            fed.shape, np.float32
        )
        for fed in session.get_inputs()
    }


def profile(path: str, threads: int, folder: str) -> list[tuple[str, float, int]]:
    """The operators that take most of the time: the share of each, and how many nodes
    of it there are.
    """
    profiled = session(path, threads, folder)
    fed = feeds(profiled)
    profiled.run(None, fed)
    profiled.run(None, fed)
    events = json.loads(Path(profiled.end_profiling()).read_text("utf-8"))
    taken: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            operator = event["args"]["op_name"]
            taken[operator] += event["dur"]
            nodes.setdefault(operator, set()).add(event["name"])
    whole = sum(taken.values())
    return [(op, t / whole, len(nodes[op])) for op, t in taken.most_common(TOP)]


if __name__ == "__main__":
    answer(main)
