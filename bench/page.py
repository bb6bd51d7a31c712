"""docs/speed.md, written from the file of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby

from bench.comparisons import COMPARISONS, Comparison, Outcome, outcomes, shown
from bench.report import Circumstances, Report
from bench.rows import Row

HEAD = """# How fast the graphs are

Each figure compares two programs that ran in turns. a / b is the median time of a, divided
by that of b: below 1, a is faster. a - b is the difference. Missed goals are **bold**.

`make bench` writes this page, from [`bench/results.json`](../bench/results.json);
[`bench/README.md`](../bench/README.md) says how to run parts of it.

![The ratios, with their goals](speed.svg)

![Milliseconds of gradients beside those of each peer](plots/gradient-time.svg)
"""

# What is measured, by part; the tables follow.
PARTS = {
    "onnx": """## In ONNX Runtime

The gradients of all variables of a network. `backward` is our backward graph, written by
`to_onnx`; `forward` is the network itself; `onnxruntime-training` is the gradient graph
that onnxruntime-training builds for the same network, with its own operators, such as
ConvGrad. Only the training build of ONNX Runtime runs such a graph, so the first table
compares all three there. Ours are standard ONNX; the second table has them in the newest
ordinary build.

The gradients of `backward` and `onnxruntime-training` are compared before any time is
taken. Both recompute the forward pass, because a graph keeps nothing from an earlier run.
Weights are constants in all three files, so the runtime may prepare them in advance.

The peer's gradient of Conv ignores automatic padding, and BatchNormalization has none: the
peer gets the network with explicit padding and with the formula of the normalization.
Transposed convolutions, and Resize on CPUs, have no gradient either: hence the gaps for
U-Net.
""",
    "khronos": """## In the PyTorch interpreter of Khronos

`nnef_tools` has an interpreter on PyTorch. `backward` is our backward graph in it, without
autograd; `autograd` is PyTorch's autograd through the interpreter of the forward graph,
including the forward pass. Both compute the gradients of all variables, except the
statistics of batch normalizations, which PyTorch treats as constants.

Memory is the most by which a process grows after it has loaded the model, as Linux counts
it. It includes the workspaces of libraries, which a sum over tensors would miss. For this,
each program has its own process.

![MiB of gradients beside those of autograd](plots/gradient-memory.svg)
""",
    "tract": """## In tract

The backward graph with the gradients of all variables, divided by the forward graph, both
lowered for tract, which uses one thread. The last four networks come from torchvision, timm
and transformers; GPT-2 has four layers and 64 tokens. Where tensors are larger than 32 MiB,
much of the time goes into allocating memory; [a setting](tract.md#what-to-know) avoids it.
""",
    "real": """## Networks of torchvision, timm and transformers

The gradients of all parameters of a network, read by `from_torch` and written by `to_onnx`.
`backward` is this file in ONNX Runtime or OpenVINO; `torch` is a forward pass and autograd in
eager mode, `torch.compile` the same compiled. Each program has its own process, and they take
turns. The weights are random. The networks are in evaluation mode, so normalizations use stored
statistics; the language models have four layers and 64 tokens. The gradients are compared first.

For a convolutional network with batch 8, ONNX Runtime's forward pass takes 0.3 to 0.6 of
PyTorch's time, and its gradients 1.5 to 2.2 (on an Intel processor with AVX-512). PyTorch has
kernels for the gradients of convolutions. ONNX has no such operators: there, the gradients are
other convolutions and products, with copies in between.
""",
    "examples": """## Gradients for each example

The gradients of all parameters for each of 16 examples, which [`--per-example`](how-to/per-example.md)
computes: `onnxruntime` is our graph there, `torch.func` is `vmap(grad)`, and `opacus` its hooks.
ResNet-18 uses stored statistics; GPT-2 small has four layers and 64 tokens. Each program has a
process for itself, and they take turns; the machine had other work at the same time. Memory is
the most by which the process grows in all runs, with the results. Results are compared first.

ONNX Runtime's session has `enable_mem_pattern = False`, without which it takes up to twice the
memory from the second run on; `execution_order = PRIORITY_BASED`, which computes a gradient
when it can: 0.85 of the memory for ViT-tiny; and `graph_optimization_level =
ORT_ENABLE_EXTENDED`, as convolutions in layouts of its own come after all else that is ready:
0.87 of the memory for ResNet-18, 0.98 for ViT-tiny.

For the gradient of a filter, the gradient of its result is unfolded, and not the image, which is
there long before; and one place at a time, where all are more than the result: for ResNet-18
1,404 to 1,472 MiB in place of 1,642 in such layouts, 1,227 to 1,284 in place of 1,198 without
them, and half the time for its first layers. Masks of one byte instead of four were tried too:
1,414, and 1,340. So was an arena of ONNX Runtime that grows by what is requested: 1,611, and
2,081. The results alone are 713 MiB.

Opacus has no rule for stored statistics, and gets one here. The class token and the positions
of ViT-tiny are left out of its results, as a hook of the whole network would compute it once
more. For GPT-2, whose first and last layer share a weight, it gives other results, and is not
compared; its programs ran once after the first run.
""",
    "compiler": """## The compiler itself

Whole processes: the seconds by which compiling ResNet-50, and `--help`, exceed a Python
process that only imports click and lark; the time for a model with 256 MiB of data, divided
by that of `tarfile` from the standard library.

Stages: a chain that repeats a matrix product, a bias, tanh, a scale and a sum a thousand
times, with the gradients of its 3,000 variables. Reading and differentiating are divided by
Khronos' parser on the same text, writing by Khronos' `format_graph` on the same graph; both
are C++. `GradientGraphBuilder`, also C++, is that of onnxruntime-training, on the same
operations and in its own process. Lowering for a target is divided by differentiating. The
backward graph recomputes operations of the forward graph; the difference of the two counts
is the gradients alone.

Long chains: the time per operation of a chain of 100,000 operations, divided by that of a
chain of 1,000; and the peak memory of a process that compiles the long chain and lowers it
for all runtimes.

![Seconds of each stage of the compiler over the size of the graph](plots/compile-time.svg)
""",
}


def page(report: Report) -> str:
    """The whole page."""
    parts = [f"{text}\n{measured(part, report)}" for part, text in PARTS.items()]
    return "\n".join([HEAD, missed(report), *parts, left_out(report)]).rstrip() + "\n"


def measured(part: str, report: Report) -> str:
    """How a part was measured, and its tables."""
    if part not in report.parts:
        return "Not measured.\n"
    return f"{circumstances(report.parts[part])}\n\n{table(part, report)}"


def circumstances(how: Circumstances) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in how.versions.items())
    return (
        f"Measured on {how.date}: {how.machine}; {how.threads} threads;\n"
        f"float32; at most {how.runs} runs of each program; {versions}."
    )


def missed(report: Report) -> str:
    """Where we are slower than we want to be, worst first."""
    judged = [outcome for outcome in outcomes(report.rows) if outcome.comparison.goal]
    bad = sorted((r for r in judged if r.verdict != "met"), key=_excess, reverse=True)
    lines = [f"{len(judged) - len(bad)} of {len(judged)} goals are met."]
    if bad:
        lines += ["Farthest from their goals:", ""]
        lines += [f"- {described(outcome)}" for outcome in bad[:WORST]]
    return "\n".join(lines) + "\n"


def _goal(comparison: Comparison) -> str:
    return f"{comparison.goal:,}"


WORST = 8


def _excess(outcome: Outcome) -> float:
    return outcome.median / (outcome.comparison.goal or 1)


def described(outcome: Outcome) -> str:
    row, comparison = outcome.row, outcome.comparison
    return (
        f"{row.net}, batch {row.batch}, in {row.runtime}: {comparison.name} is"
        f" {shown(outcome.median)}, the goal {_goal(comparison)}"
    )


def table(part: str, report: Report) -> str:
    """The rows of a part: a table for each runtime."""
    rows = [row for row in report.rows if row.part == part]
    runtimes = list(dict.fromkeys(row.runtime for row in rows))
    tables = [
        _table(runtime, [row for row in rows if row.runtime == runtime])
        for runtime in runtimes
    ]
    return "\n".join(tables)


def _table(runtime: str, rows: Sequence[Row]) -> str:
    """A row for each row, a column for each comparison that one of them has."""
    found = list(outcomes(rows))
    columns = [
        c for c in COMPARISONS if any(outcome.comparison == c for outcome in found)
    ]
    cells = {(id(r.row), r.comparison): cell(r) for r in found}
    heads = [
        c.name if c.goal is None else f"{c.name}, goal {_goal(c)}" for c in columns
    ]
    lines = [
        f"{runtime}:\n",
        _line(["network", "batch", *heads, "milliseconds"]),
        "|---|---|" + "---|" * (len(columns) + 1),
    ]
    for row in rows:
        ours = [cells.get((id(row), column), "") for column in columns]
        lines.append(_line([row.net, str(row.batch), *ours, times(row)]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(outcome: Outcome) -> str:
    text = shown(outcome.median)
    return text if outcome.verdict in ("", "met") else f"**{text}**"


def times(row: Row) -> str:
    """The median time of each program."""
    medians = {name: statistics.median(times) for name, times in row.seconds.items()}
    return ", ".join(f"{name} {1000 * t:.3g}" for name, t in medians.items())


def left_out(report: Report) -> str:
    """What could not be measured, and why."""
    if not report.skipped:
        return ""
    return "\n".join(["## Left out", "", *_reasons(report)])


def _reasons(report: Report) -> Iterator[str]:
    by_reason = sorted(report.skipped, key=lambda skipped: (skipped.part, skipped.why))
    for (part, why), items in groupby(by_reason, key=lambda s: (s.part, s.why)):
        yield f"- {part}: {'; '.join(item.what for item in items)}: {why}"
