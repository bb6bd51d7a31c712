"""Builds the gradient graph of onnxruntime-training for an ONNX file. It runs in the
environment of onnxruntime-training.

The seed of the gradients is an input, like that of our backward graphs: the loss is the
sum of the output, multiplied by it.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi._pybind_state import GradientGraphBuilder

from bench.processes import answer

# The newest form of files that the builder reads.
IR_VERSION = 9


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The request has the `forward` file, the names of the `variables` and of the `seed`,
    and the `output` file. The answer has the variables that the builder has gradients of: these are the
    results, in this order.
    """
    model = with_loss(onnx.load(request["forward"]), request["seed"])
    dims = {i.name: list(i.dims) for i in model.graph.initializer}
    wanted = [name for name in request["variables"] if name in dims]
    built = build(model, wanted)
    made = {name for node in built.graph.node for name in node.output}
    found = [name for name in wanted if f"{name}_grad" in made]
    results = [described(f"{name}_grad", dims[name]) for name in found]
    keep_only(built.graph.output, results)
    keep_only(built.graph.input, [i for i in built.graph.input if i.name not in dims])
    onnx.save(built, request["output"])
    # It may have an operator that is there for other devices only.
    onnxruntime.InferenceSession(request["output"], providers=["CPUExecutionProvider"])
    return {"variables": found}


def with_loss(model: Any, seed: str) -> Any:
    """The model with a seed for its only output, and the loss as a further output."""
    graph = model.graph
    (output,) = graph.output
    shape = [d.dim_value for d in output.type.tensor_type.shape.dim]
    graph.input.append(described(seed, shape))
    graph.node.append(helper.make_node("Mul", [output.name, seed], ["seeded"]))
    graph.node.append(helper.make_node("ReduceSum", ["seeded"], ["loss"], keepdims=0))
    graph.output.append(described("loss", []))
    model.ir_version = min(model.ir_version, IR_VERSION)
    return model


def build(model: Any, variables: list[str]) -> Any:
    text = model.SerializeToString()
    builder = GradientGraphBuilder(text, {"loss"}, set(variables), "loss")
    builder.build()
    return onnx.load_from_string(builder.get_model())


def described(name: str, shape: list[int]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def keep_only(field: Any, items: list[Any]) -> None:
    del field[:]
    field.extend(items)


if __name__ == "__main__":
    answer(main)
