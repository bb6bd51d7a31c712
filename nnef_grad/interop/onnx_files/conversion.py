"""An ONNX model to a graph of NNEF, by the converter of nnef_tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.graph.names import NameSupply
from nnef_grad.interop.khronos import finite
from nnef_grad.interop.onnx_files.functions import FUNCTIONS
from nnef_grad.interop.onnx_files.reading import DOMAINS
from nnef_grad.interop.onnx_files.transforms import TRANSFORMS, USUAL
from nnef_grad.language.library import standard

Array = npt.NDArray[Any]

# What has more elements is no text that anybody reads.
_MAX_CONSTANT = 10_000


# The fragments of nnef_tools that are right as they are.
_THEIRS = {"lp_pool", "lp_reduce", "depth_to_space"}


def converted(model: Any) -> Any:
    """The `nnef_tools.model.Graph` of an ONNX model whose shapes are all known."""
    from nnef_tools.conversion.converter import Transform
    from nnef_tools.conversion.onnx_to_nnef import Converter
    from nnef_tools.io.onnx.reader import onnx_model_to_graph
    from nnef_tools.optimization.nnef_optimizer import Optimizer as NnefOptimizer
    from nnef_tools.optimization.onnx_optimizer import Optimizer as OnnxOptimizer

    source = OnnxOptimizer()(onnx_model_to_graph(model), only_required=True)
    source.sort()
    (version,) = (o.version for o in model.opset_import if o.domain in DOMAINS)
    for operation in source.operations:
        operation.attribs["_opset"] = version
    named = {t.name: t.data for t in source.tensors if isinstance(t.data, np.ndarray)}
    transforms = Converter.unpack_transforms(
        {n: Transform(**{**USUAL, **fields}) for n, fields in TRANSFORMS.items()}
    )
    converter = Converter(
        keep_io_names=True, custom_transforms=transforms, custom_functions=FUNCTIONS
    )
    graph = NnefOptimizer()(converter(source), only_required=True)
    if len(graph.outputs) < len(source.outputs):
        raise ValueError("an output is what the file holds, and not computed")
    _make_constants(graph, named)
    _name_variables(graph, named)
    _make_names_valid(graph)
    return graph


def _make_constants(graph: Any, named: Mapping[str, Array]) -> None:
    """What is of integers or truth values is constant, and so is what is of one value
    throughout and no initializer of the file: nnef_tools makes variables of them.
    Nobody trains them, and not all runtimes have variables of integers.
    """
    for operation in graph.operations:
        array = operation.output.data if operation.type == "variable" else None
        if array is None or array.size == 0:
            continue
        is_named = any(np.shares_memory(array, data) for data in named.values())
        is_uniform = not is_named and bool((array == array.flat[0]).all())
        if is_uniform or (array.dtype.kind != "f" and array.size <= _MAX_CONSTANT):
            operation.type = "constant"
            del operation.attribs["label"]
            values = array.reshape(-1)[: 1 if is_uniform else None].tolist()
            operation.attribs["value"] = list(map(finite, values))


def _name_variables(graph: Any, named: Mapping[str, Array]) -> None:
    """Gives variables the names that their data have, where these are the same data.
    Their labels are those names, as far as they can be names of files.
    """
    labels = NameSupply()
    for operation in graph.operations:
        if operation.type == "variable":
            tensor = operation.output
            same = (n for n, a in named.items() if np.shares_memory(a, tensor.data))
            for name in islice(same, 1):
                tensor.name = name
                operation.attribs["label"] = _label(name)
            # Upper and lower case are one file.
            label = operation.attribs["label"]
            suffix = labels.fresh(label.lower())[len(label) :]
            operation.attribs["label"] = f"{label}{suffix}"


def _label(name: str) -> str:
    """A path that stays in the folder of a model."""
    steps = re.sub(r"[^\w./-]+", "_", name, flags=re.ASCII).split("/")
    return "/".join(step for step in steps if step.strip(".")) or "variable"


def _make_names_valid(graph: Any) -> None:
    """Names of NNEF are made of letters, digits and underscores."""
    supply = NameSupply()
    for tensor in graph.tensors:
        if tensor.name is not None:
            name = re.sub(r"\W+", "_", tensor.name, flags=re.ASCII)
            tensor.name = supply.fresh(f"_{name}" if name[:1].isdigit() else name)


def fragments(graph: Any) -> str:
    """The fragments that a graph uses, if it uses any."""
    from nnef_tools.conversion.onnx_to_nnef import Converter

    used = {op.type for op in graph.operations}.difference(standard())
    theirs = Converter.defined_operations()
    found = [theirs[name] for name in theirs if name in used & _THEIRS]
    return "".join([_own_fragments(), *found]) if used else ""


@lru_cache(maxsize=1)
def _own_fragments() -> str:
    return (Path(__file__).parent / "fragments.nnef").read_text("utf-8")
