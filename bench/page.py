"""docs/speed.md, written from the file of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby

from bench.comparisons import COMPARISONS, Comparison, Outcome, outcomes, shown
from bench.report import Circumstances, Report
from bench.rows import Row

HEAD = """# How fast the graphs are

A figure compares two programs that were run in turns, in the same process or by the same
process: a / b is the median of the times of a, divided by that of b; below 1, a is faster.
a - b is their difference. A goal that was missed is **bold**.

This page is written by `make bench`, from [`bench/results.json`](../bench/results.json);
[`bench/README.md`](../bench/README.md) says how to run parts of it.

![The ratios, with their goals](speed.svg)

![Milliseconds of gradients beside those of each peer](plots/gradient-time.svg)
"""

# What is measured, by part; the tables follow.
PARTS = {
    "onnx": """## In ONNX Runtime

The gradients of all variables of a network: `backward` is our backward graph, written by
`to_onnx`; `forward` is the network itself; `onnxruntime-training` is the gradient graph
that onnxruntime-training builds of the same network, with operators of its own such as
ConvGrad. That one runs in the edition of ONNX Runtime for training alone, so all three
are compared there; ours are standard ONNX, and run in the newest ordinary edition too.

`backward` and `onnxruntime-training` compute the same gradients: they are compared before
any time is taken. Both compute the forward pass again, since a graph has no memory of an
earlier one. The weights are constants of the files, so the runtime may prepare them in
advance, in all three. The peer's gradient of Conv takes automatic padding for none, and it
has no gradient of BatchNormalization: it is given the network with explicit padding and
with the formula of the normalization. It has no gradients of transposed convolutions and
of Resize on processors, hence none of U-Net.
""",
    "khronos": """## In the PyTorch interpreter of Khronos

`nnef_tools` has an interpreter on PyTorch. `backward` is our backward graph in it, without
autograd; `autograd` is torch's own autograd through the interpreter of the forward graph,
the forward pass included. Both compute the gradients of all variables, but for the
statistics of batch normalizations, which torch takes for constants.

Memory is what a process grows by at most, from the loaded model on, as Linux counts it:
with workspaces of libraries, which an account of tensors leaves out. Each program has a
process of its own for that.

![MiB of gradients beside those of autograd](plots/gradient-memory.svg)
""",
    "tract": """## In tract

The backward graph with the gradients of all variables, divided by the forward graph, both
lowered for tract, which computes in one thread. The last four networks are those of
torchvision, timm and transformers; of GPT-2, with four layers and 64 tokens. Where tensors
are larger than 32 MiB, much of the time goes into getting memory, which
[a setting](tract.md#what-to-know) avoids.
""",
    "real": """## Networks of torchvision, timm and transformers

`from_torch` reads a network, gradients are taken with respect to all parameters, and `to_onnx`
writes them. `backward` is the file in ONNX Runtime or in OpenVINO;
`torch` is a forward pass and autograd in eager mode, `torch.compile` the same compiled. Each
program has a process of its own, and they take turns. The weights are random; the networks are
in evaluation mode, so normalizations have their statistics; language models are small ones, of
four layers and 64 tokens. The gradients are compared first. In these figures OpenVINO had the
file of ONNX Runtime: in the networks with maximum pools (ResNet, ShuffleNet, DenseNet, U-Net)
the form that `runtime="openvino"` has takes less than half of that time.

Of a convolutional network with batch 8, the forward pass alone takes ONNX Runtime 0.3 to 0.6
of torch's time, and the gradients 1.5 to 2.2 (on a processor of Intel with AVX-512): torch has
kernels for the gradients of convolutions, and ONNX has no operators for them. There they are
other convolutions and products, with copies in between.
""",
    "compiler": """## The compiler itself

Whole processes: the seconds that compiling ResNet-50, and `--help`, take more than a Python
process that imports click, which the compiler needs, and lark, which makes its tables; a
model with 256 MiB of data, divided by `tarfile` of the standard library.

Stages, on a chain of a thousand times a matrix product, a bias, tanh, a scale and a sum,
with the gradients of its 3,000 variables: reading and differentiating are divided by
Khronos' parser on the same text, writing by Khronos' `format_graph` of the same graph; both
are written in C++. `GradientGraphBuilder` is that of onnxruntime-training, in C++, on the
same operations; it runs in a process of its own. Lowering for a target is divided by
differentiating. The operations of the backward graph include those of the forward graph
that it computes again: the difference are those of the gradients alone.

Long chains: the seconds for an operation of 100,000, divided by those for one of 1,000; and
the peak of memory of a process that compiles the long chain, lowered for all runtimes.

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
