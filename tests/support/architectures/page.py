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
# Architectures of PyTorch

Networks of `torch.nn`, torchvision, timm and transformers, from the module to its gradients in ONNX Runtime:

    model = interop.from_torch(module, inputs)
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    interop.to_onnx(backward.graph, "backward.onnx", model.data)

The page is made by running them, each in a process of its own:

    pip install '.[models]'
    PYTHONPATH=tests python -m support.architectures --write          # all of them
    PYTHONPATH=tests python -m support.architectures 'timm/res' --write

Modules are in evaluation mode, with random weights, small images or texts, and a batch of 2; those of transformers have small
configurations (`tests/support/architectures/`), and padding masks where they take any. The gradients of all parameters and of all
floating-point inputs are compared with torch's autograd of the same module in double precision, for random gradients of all outputs.

- **forward**, **backward**: operations of the graphs.
- **gradients**: those that were compared.
- **exact**: the largest error of any gradient that the reference evaluator of this package computes in double precision, relative to the
  largest number of that gradient. What a network computes from no input is a constant of single precision.
- **error**: the largest of any gradient that ONNX Runtime computes in single precision, in multiples of the error that torch itself makes
  there. Where it is above 10, as a decision (the sign at a ReLU, say) falls differently in single precision, other random numbers are drawn.
"""

_LIMITS = """\
## Limits

| what | why | instead |
|---|---|---|
| a condition in Python that depends on the values of a tensor | `torch.export` refuses it, with its line: the graph would be that of the example | `torch.where`, `torch.cond`, or make it a setting of the module |
| a backward function of one's own (`torch.autograd.Function`), as BLOOM has | it is refused, with its line | `from_torch(..., allow_own_backward=True)` takes the derivative of what it computes; these figures are made with it |
| a mixture of experts that sorts its words | the shapes depend on values | `model.set_experts_implementation("batched_mm")` |
| random numbers that the network draws, but for dropout | a graph computes the same in each run | pass them as an argument, such as `noise` |
| parameters of half precision | the graph has single precision; a warning says so | `module.float()` |

torch's autograd is wrong itself in one case that came up: `batch_norm` in evaluation mode for a batch of one, followed by `flatten` and
`transpose`, in double precision.
"""


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of the page."""
    return "\n".join([*_lines(results), _LIMITS])


def _lines(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield _HEAD
    yield f"{len(ARRIVING)} architectures arrive, with {_total(results)} gradients.\n"
    yield "| architecture | forward | backward | gradients | exact | error |"
    yield "|---|---|---|---|---|---|"
    for name in filter(results.__contains__, ARRIVING):
        found = results[name]
        counts = [str(found[key]) for key in ("forward", "backward", "gradients")]
        errors = f"{found['exact']:.0e}", f"{found['error']:.1f}"
        cells = [f"`{name}`", *counts, *errors]
        yield f"| {' | '.join(cells)} |"
    yield "\n## Refused\n\nThe error names the line of the network.\n"
    yield "| architecture | why, and what to write instead |"
    yield "|---|---|"
    for name, why in REFUSED.items():
        yield f"| `{name}` | {why} |"
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
