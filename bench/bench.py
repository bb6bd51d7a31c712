"""Speed and memory of the compiler, as ratios against peers in the same run.

`make bench` prints medians of several interleaved runs:

- a whole `nnef-grad` process on a graph of the size of ResNet-50, compared with a Python
  process that only imports lark and click;
- the same for a model folder with 256 MiB of data, to a folder, an archive and a
  compressed archive, in seconds and memory, compared with tarfile of the standard library;
- reading, differentiating, lowering for all runtimes, and writing chains of 1,000 to
  100,000 operations, in seconds per 10,000 operations, compared with
  `nnef.parse_string` on the same text: constant figures mean linear time.

Pass the path of a model to use it instead of the generated one: `python bench/bench.py
model.nnef`.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nnef
import numpy as np

import nnef_grad

RUNS = 7


def residual_network(blocks: int) -> str:
    """Residual blocks of convolutions, normalization and activations, each with six
    operations and seven variables.
    """
    lines = ["h0 = external(shape = [1, 64, 56, 56]);"]
    for i in range(blocks):
        lines += [
            f"k{i}_{j} = variable(shape = [64, 64, 3, 3], label = 'block{i}/kernel{j}');"
            for j in (1, 2)
        ]
        lines += [
            f"b{i}_{j} = variable(shape = [1, 64], label = 'block{i}/bias{j}');"
            for j in (1, 2)
        ]
        lines += [
            f"{n}{i} = variable(shape = [1, 64], label = 'block{i}/{n}');"
            for n in ("mean", "variance", "offset")
        ]
        lines += [
            f"n{i} = batch_normalization(h{i}, mean{i}, variance{i}, offset{i}, 1.0, epsilon = 0.001);",
            f"r{i} = relu(n{i});",
            f"c{i} = conv(r{i}, k{i}_1, b{i}_1, padding = [(1, 1), (1, 1)]);",
            f"a{i} = relu(c{i});",
            f"d{i} = conv(a{i}, k{i}_2, b{i}_2, padding = [(1, 1), (1, 1)]);",
            f"h{i + 1} = add(h{i}, d{i});",
        ]
    return _document(lines, "h0", f"h{blocks}")


def chain(operations: int) -> str:
    """A chain of element-wise operations."""
    steps = (
        "h{1} = mul(h{0}, w);",
        "h{1} = tanh(h{0});",
        "h{1} = add(h{0}, x);",
        "h{1} = relu(h{0});",
    )
    lines = [
        "x = external(shape = [4, 16]);",
        "w = variable(shape = [1, 16], label = 'w');",
        "h0 = copy(x);",
    ]
    lines += [steps[i % 4].format(i, i + 1) for i in range(operations)]
    return _document(lines, "x", f"h{operations}")


def _document(lines: list[str], inputs: str, outputs: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"version 1.0;\n\ngraph net( {inputs} ) -> ( {outputs} )\n{{\n{body}\n}}\n"


def seconds(*functions: Callable[[], object], runs: int = RUNS) -> list[float]:
    """The median time of each function, with interleaved calls, so that a slow phase of
    the machine affects all of them.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(runs):
        for function, taken in zip(functions, times, strict=True):
            gc.collect()
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def process(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True
    )


def bench_process(model: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compile_it = process(
            "-m",
            "nnef_grad",
            str(model),
            "-o",
            str(Path(folder, "out.nnef")),
            "--force",
        )
        compile_it()  # the tables of the parser are generated once, and kept
        whole, bare = seconds(compile_it, process("-c", "import lark, click"))
    print(
        f"whole process on {model.name}: {whole:.3f} s; "
        f"Python, lark and click alone: {bare:.3f} s; ratio {whole / bare:.2f}"
    )


def bench_data(folder: Path) -> None:
    model = folder / "model"
    graph = nnef_grad.loads(heavy(8))
    kernel = np.ones((4096, 2048), np.float32)
    data = dict.fromkeys((f"w{i}" for i in range(8)), kernel)
    nnef_grad.save(graph, model, data=data)
    packed = seconds(
        process("-m", "tarfile", "-c", str(folder / "peer.tar"), str(model)), runs=3
    )
    print(f"tarfile of 256 MiB: {packed[0]:.2f} s")
    for name in ("out", "out.tar", "out.tgz"):
        arguments = (str(model), "-o", str(folder / name), "--force", "-q")
        (taken,) = seconds(process("-m", "nnef_grad", *arguments), runs=3)
        print(f"to {name}: {taken:.2f} s, {peak(*arguments)} MiB of memory at most")


def heavy(layers: int) -> str:
    """Layers of 32 MiB of weights each."""
    lines = ["h0 = external(shape = [1, 2048]);"]
    for i in range(layers):
        lines += [
            f"w{i} = variable(shape = [4096, 2048], label = 'w{i}');",
            f"p{i} = linear(h{i}, w{i});",
            f"h{i + 1} = slice(p{i}, axes = [1], begin = [0], end = [2048]);",
        ]
    return _document(lines, "h0", f"h{layers}")


def peak(*arguments: str) -> int:
    """The peak memory of a process, in MiB."""
    code = (
        "import resource, sys; from nnef_grad.cli import main;"
        " main(sys.argv[1:], standalone_mode=False);"
        " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True
    )
    return int(result.stdout) // 1024


def bench_stages(operations: int, runs: int) -> None:
    text = chain(operations)
    scale = 10_000 / operations
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph)
    read, differentiated, lowered, written, khronos = seconds(
        lambda: nnef_grad.loads(text),
        lambda: nnef_grad.differentiate(graph),
        lambda: nnef_grad.lower(backward.graph, "portable"),
        lambda: nnef_grad.dumps(backward),
        lambda: nnef.parse_string(text),
        runs=runs,
    )
    stages = (
        ("read", read),
        ("differentiate", differentiated),
        ("lower", lowered),
        ("write", written),
        ("nnef.parse_string", khronos),
    )
    print(
        f"{operations} operations, seconds for 10,000:",
        ", ".join(f"{name} {scale * s:.3f}" for name, s in stages),
    )


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(arguments[0]) if arguments else Path(folder, "residual.nnef")
        if not arguments:
            model.write_text(residual_network(23), "utf-8")
        bench_process(model)
        bench_data(Path(folder))
    for operations, runs in ((1_000, 5), (10_000, 3), (100_000, 1)):
        bench_stages(operations, runs)


if __name__ == "__main__":
    main(sys.argv[1:])
