"""docs/speed.md and its table, written from the files of what was measured."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import groupby

from bench.comparisons import Outcome, outcomes, shown
from bench.report import Circumstances, Report

HEAD = """# How fast the graphs are

The gradients of all variables of a network, with the forward pass that they need, take about
{onnx} times as long as the forward pass alone in ONNX Runtime, and {tract} times in tract. They take {real}
of the time of PyTorch's autograd in ONNX Runtime, and {openvino} in OpenVINO. These are medians of
the table below, on the processor where they are the largest.

![Milliseconds of gradients beside those of each peer](plots/gradient-time.svg)

In the tables, a / b is the median time of a, divided by that of b, as they ran in turns: below 1, a
is faster. a - b is the difference. A cell is the median of the networks, the least and the most, and
how many meet the goal. {met}

{summary}

[Each network, and each stage of the compiler](tables/speed.csv)

`make bench` writes this page, from [`bench/results/`](../bench/results), to which each kind of
processor adds a column; [`bench/README.md`](../bench/README.md) says how to run parts of it.

{circumstances}
"""
PARTS = """
![The ratios, with their goals](speed.svg)

## In ONNX Runtime

`backward` is our backward graph, written by `to_onnx`; `forward` is the network itself;
`portable` is the same for every engine of ONNX (`--target onnx-portable`);
`onnxruntime-training` is the gradient graph that onnxruntime-training builds for the same network,
with its own operators, such as ConvGrad, which only its build runs. Ours are standard ONNX. The
gradients are compared before any time is taken. Both recompute the forward pass, and both have
their weights as constants.

The peer's gradient of Conv ignores automatic padding, and BatchNormalization has none: the peer
gets the network with explicit padding and with the formula of the normalization.

## Beside PyTorch

`real` is networks of torchvision, timm and transformers, read by `from_torch` and written by
`to_onnx`, in ONNX Runtime or OpenVINO. `torch` is a forward pass and autograd in eager mode,
`torch.compile` the same compiled, each program in its own process. The weights are random, and
normalizations use stored statistics; the language models have four layers and 64 tokens.

PyTorch has kernels for the gradients of convolutions. ONNX has no such operators: there, the
gradients are other convolutions. That of a filter is one convolution with the gradient of its
result as the filter, as large as an image, whose windows slide over the channels of all images
side by side: ONNX Runtime takes as long for it as for the forward convolution. In OpenVINO it
takes twice as long as products of windows, which are written there.

## Elsewhere

In the PyTorch interpreter of `nnef_tools`, `autograd` is PyTorch's, through the interpreter of the
forward graph. Memory is the most by which a process grows after it has loaded the model, with the
workspaces of libraries.

![MiB of gradients beside those of autograd](plots/gradient-memory.svg)

In tract, which uses one thread, tensors larger than 32 MiB take much of the time for allocating
memory; [a setting](tract.md#what-to-know) avoids it.

## Gradients for each example

[`--per-example`](how-to/per-example.md) gives the gradients of all parameters for each of 16
examples. `torch.func` is `vmap(grad)`, and `opacus` its hooks. ONNX Runtime's session has
`enable_mem_pattern = False`, without which it takes up to twice the memory from the second run on;
`execution_order = PRIORITY_BASED`, which computes a gradient when it can: 0.85 of the memory for
ViT-tiny; and `graph_optimization_level = ORT_ENABLE_EXTENDED`, as convolutions in layouts of its
own wait: 0.87 of the memory for ResNet-18. The machine had other work at the same time. Opacus gets
a rule for stored statistics, which it lacks; the class token and the positions of ViT-tiny are left
out of its results, and GPT-2, whose first and last layer share a weight, is not compared with it,
as it gives other results.

The gradients of a filter are one convolution, of which the examples are groups: nothing is unfolded.
ResNet-18 takes 1,208 MiB, in place of 1,642 with unfolded images and 1,300 with unfolded gradients,
and 0.7 of the time of the latter. Masks of one byte gave 1,414 MiB, an arena that grows as requested
1,611. The results alone are 713.

## The compiler itself

Processes: the seconds by which compiling ResNet-50, and `--help`, exceed a Python process that only
imports click and lark; the time for a model with 256 MiB of data, divided by that of `tarfile`.

Stages: a chain of 5,002 operations with the gradients of its 3,000 variables. Reading and
differentiating are divided by Khronos' parser, writing by Khronos' `format_graph`, both in C++.
`GradientGraphBuilder`, also C++, is that of onnxruntime-training. Long chains: the time for each
operation of 100,000, divided by that of 1,000; and the peak memory of a process that compiles and
lowers the long chain.

![Seconds of each stage of the compiler over the size of the graph](plots/compile-time.svg)
"""
COLUMNS = (
    "network",
    "batch",
    "in",
    "compared",
    "ratio",
    "goal",
    "measured",
    "processor",
)


def page(reports: Sequence[Report]) -> str:
    """The whole page, without its table."""
    by_machine = {report.machine: [*outcomes(report.rows)] for report in reports}
    medians = {name: worst(by_machine.values(), key) for name, key in HEADLINES.items()}
    head = HEAD.format(
        **medians,
        met=" ".join(goals_met(by_machine)),
        summary="\n".join(summary(by_machine)),
        circumstances="\n".join(line for r in reports for line in circumstances(r)),
    )
    return "\n".join([head + PARTS, *left_out(reports)]).rstrip() + "\n"


def worst(of_machines: Iterable[Sequence[Outcome]], key: Key) -> str:
    """The largest of the medians of a comparison on several machines."""
    found = [median(rows) for f in of_machines for k, rows in groups(f) if k == key]
    return f"{max(found):.1f}" if found else "?"


def goals_met(by_machine: OfMachines) -> Iterator[str]:
    """A sentence for each machine."""
    for machine, found in by_machine.items():
        judged = [outcome for outcome in found if outcome.comparison.goal]
        met = sum(outcome.verdict == "met" for outcome in judged)
        yield f"{met} of {len(judged)} goals are met on {machine}."


# The figures of the first sentences.
HEADLINES = {
    "onnx": ("onnxruntime", "backward / forward"),
    "tract": ("tract", "backward / forward"),
    "real": ("onnxruntime", "backward / torch"),
    "openvino": ("openvino", "backward / torch"),
}
# The program that runs the graphs, and the comparison.
Key = tuple[str, str]
Group = tuple[Key, list[Outcome]]
OfMachines = Mapping[str, Sequence[Outcome]]


def groups(found: Sequence[Outcome]) -> Iterator[Group]:
    """The outcomes of a comparison in a runtime, of all networks."""
    by: dict[Key, list[Outcome]] = {}
    for outcome in found:
        if outcome.row.part != "compiler":
            program = outcome.row.runtime.partition(" ")[0]
            by.setdefault((program, outcome.comparison.name), []).append(outcome)
    yield from by.items()


def median(rows: Sequence[Outcome]) -> float:
    return statistics.median(outcome.median for outcome in rows)


def summary(by_machine: OfMachines) -> Iterator[str]:
    """A table: a row for each comparison in each runtime, a column for each machine."""
    yield f"| in | compared | goal | {' | '.join(by_machine)} |"
    yield "|---" * (3 + len(by_machine)) + "|"
    tables = [dict(groups(found)) for found in by_machine.values()]
    for key in dict.fromkeys(key for table in tables for key in table):
        (first, *_), *_ = (table[key] for table in tables if key in table)
        goal, program = first.comparison.goal, first.row.runtime
        judged = "" if goal is None else f"{goal:,}"
        figures = [_in_machine(table.get(key, ())) for table in tables]
        yield f"| {' | '.join([program, key[1], judged, *figures])} |"


def _in_machine(rows: Sequence[Outcome]) -> str:
    """The median of the networks, the least and the most, and how many meet the goal."""
    if not rows:
        return ""
    ratios = [outcome.median for outcome in rows]
    least, most = shown(min(ratios)), shown(max(ratios))
    met = f"{sum(r.verdict == 'met' for r in rows)} of {len(rows)}"
    judged = "" if rows[0].comparison.goal is None else f"; {met}"
    return f"{shown(median(rows))} ({least} to {most}){judged}"


def circumstances(report: Report) -> Iterator[str]:
    """How the parts were measured, those together that were measured alike."""
    by: dict[str, list[str]] = {}
    for part, how in report.parts.items():
        by.setdefault(described(how), []).append(part)
    for line, parts in by.items():
        yield f"- {', '.join(parts)}: measured {line}."


def described(how: Circumstances) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in how.versions.items())
    return (
        f"on {how.date}; {how.machine}; {how.threads} threads; float32; at most"
        f" {how.runs} runs of each program; {versions}"
    )


def table(reports: Sequence[Report]) -> str:
    """The table: a row for each comparison of each network on each machine."""
    text = StringIO()
    rows = ([*cells(o), r.machine] for r in reports for o in outcomes(r.rows))
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    return text.getvalue()


def cells(outcome: Outcome) -> list[str]:
    """A row, without the machine."""
    row, comparison = outcome.row, outcome.comparison
    goal = "" if comparison.goal is None else f"{comparison.goal:,}"
    named = [row.net, str(row.batch), row.runtime, comparison.name]
    return [*named, shown(outcome.median), goal, both(outcome)]


UNITS = {"seconds": (1000, "ms"), "mebibytes": (1, "MiB"), "operations": (1, "")}


def both(outcome: Outcome) -> str:
    """The two figures that are compared."""
    comparison = outcome.comparison
    factor, unit = UNITS[comparison.measure]
    figures = getattr(outcome.row, comparison.measure)
    pair = (_median(figures[name]) for name in (comparison.program, comparison.peer))
    return f"{' and '.join(f'{factor * x:.4g}' for x in pair)} {unit}".strip()


def _median(figure: float | Sequence[float]) -> float:
    return statistics.median(figure) if isinstance(figure, Sequence) else figure


def left_out(reports: Sequence[Report]) -> Iterator[str]:
    """What could not be measured, and why."""
    skipped = dict.fromkeys(skipped for report in reports for skipped in report.skipped)
    if skipped:
        yield "## Left out\n"
    by_reason = sorted(skipped, key=lambda skipped: (skipped.part, skipped.why))
    for (part, why), items in groupby(by_reason, key=lambda s: (s.part, s.why)):
        yield f"- {part}: {'; '.join(item.what for item in items)}: {why}"
