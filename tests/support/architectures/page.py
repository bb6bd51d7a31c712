"""docs/models.md, from the figures of the last run of each architecture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.architectures.catalog import ARRIVING, REFUSED

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
RESULTS = Path(__file__).parent / "results.json"

_HEAD = """\
# PyTorch architectures

{count} networks of `torch.nn`, torchvision, timm and transformers, from the module to its gradients in ONNX Runtime:

    model = interop.from_torch(module, inputs)
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    interop.to_onnx(backward.graph, "backward.onnx", model.data)

All {gradients} gradients agree with torch's autograd of the same module in double precision.

## Limits

| what | why | instead |
|---|---|---|
| a condition in Python that depends on the values of a tensor | `torch.export` refuses it, with its line: the graph would be that of the example | `torch.where`, `torch.cond`, or make it a setting of the module |
| a custom backward function (`torch.autograd.Function`), as in BLOOM | refused, with its line | `from_torch(..., allow_own_backward=True)` differentiates the forward computation; the figures below use it |
| a mixture of experts that sorts its tokens | shapes depend on values | `model.set_experts_implementation("batched_mm")` |
| random numbers in the network, except dropout | a graph computes the same in each run | pass them as an argument, such as `noise` |
| parameters in half precision | the graph has single precision; a warning says so | `module.float()` |

torch's autograd itself was wrong in one case: `batch_norm` in evaluation mode for a batch of one, followed by `flatten` and
`transpose`, in double precision.
"""

_RESULTS = """\
## Results

- **forward**, **backward**: the number of operations in the graphs.
- **gradients**: the number of gradients compared.
- **exact**: the largest error of nnef-grad's evaluator in double precision, relative to the largest number of the gradient. Constants that
  the network computes have single precision.
- **error**: the largest error of ONNX Runtime in single precision, in multiples of torch's own error. Above 10, a decision (such as the
  sign at a ReLU) falls differently in single precision; then other random numbers are drawn.
"""

_MADE = """\
## How the results were made

Each architecture runs in a separate process. Modules are in evaluation mode, with random weights, small images or texts, and a batch of 2.
Those of transformers have small configurations (`tests/support/architectures/`), and padding masks if they take any. The gradients of all
parameters and all floating-point inputs are compared, for random gradients of all outputs.

    pip install '.[models]'
    PYTHONPATH=tests python -m support.architectures --write          # all of them
    PYTHONPATH=tests python -m support.architectures 'timm/res' --write
"""

_STRANGERS = """\
## Modules of other packages

95 modules of 7 packages, in evaluation and, as far as they were run, in training mode: outputs and gradients at the traced and at other inputs,
next to autograd in double precision (torch 2.13). Of 189 runs, 158 are right, 31 are refused, and none is wrong. Refused are modules that look
at the values of their inputs, select by masks of them, draw random numbers or write into detached tensors, have numbers that are none,
a `while_loop`, or no output that has a gradient.

| package | modules | runs | right | refused |
|---|---|---|---|---|
| kornia | 10 | 19 | 16 | 3 |
| nflows | 22 | 44 | 34 | 10 |
| torch_geometric | 4 | 8 | 8 | 0 |
| torchdiffeq | 8 | 16 | 14 | 2 |
| vector_quantize_pytorch | 14 | 28 | 18 | 10 |
| vit_pytorch | 28 | 56 | 50 | 6 |
| x_transformers | 9 | 18 | 18 | 0 |

    cd tests; python -m support.strangers nflows
"""


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of the page."""
    head = _HEAD.format(count=len(ARRIVING), gradients=_total(results))
    return "\n".join([head, *_refused(), _RESULTS, *_rows(results), _MADE, _STRANGERS])


def _refused() -> Iterator[str]:
    yield "## Refused\n\nThe error names the line of the network.\n"
    yield "| architecture | why, and what to write instead |"
    yield "|---|---|"
    for name, why in REFUSED.items():
        yield f"| `{name}` | {why} |"
    yield ""


def _rows(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| architecture | forward | backward | gradients | exact | error |"
    yield "|---|---|---|---|---|---|"
    for name in filter(results.__contains__, ARRIVING):
        found = results[name]
        counts = [str(found[key]) for key in ("forward", "backward", "gradients")]
        errors = f"{found['exact']:.0e}", f"{found['error']:.1f}"
        cells = [f"`{name}`", *counts, *errors]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _total(results: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(found["gradients"] for found in results.values())


def read_results() -> dict[str, Any]:
    """The figures of the last run of each architecture."""
    return dict(json.loads(RESULTS.read_text("utf-8"))) if RESULTS.exists() else {}


def write_results(results: Mapping[str, Any]) -> None:
    """Writes the figures, an architecture a line."""
    rows = [
        f"{json.dumps(name)}: {json.dumps(results[name])}" for name in sorted(results)
    ]
    RESULTS.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
