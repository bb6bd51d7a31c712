"""TFLite files, by the converter of nnef_tools, whose mistakes are corrected here.

It computes in the order [N, C, H, W], and remembers which tensors it has transposed. What it
forgets are activations within other operations, the order of tensors in operations that
mix axes, and settings: the rows of `_TRANSFORMS`, in the language of its own tables.
"""

from __future__ import annotations

import os
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from nnef_grad.base.errors import NnefGradError, UnsupportedError, UsageError
from nnef_grad.base.public import public
from nnef_grad.frontends.khronos import Model, from_nnef_tools
from nnef_grad.storage.files import PathLike, reading

try:
    from nnef_tools.conversion.converter import ConversionError, Transform
    from nnef_tools.conversion.tflite_to_nnef import Converter
    from nnef_tools.conversion.tflite_to_nnef import _Transforms as THEIRS
    from nnef_tools.model import Tensor
    from nnef_tools.optimization.tflite_optimizer import Optimizer
except ModuleNotFoundError as error:
    message = "TFLite files need nnef-tools: pip install nnef-tools flatbuffers"
    raise UsageError(message) from error

_FRAGMENTS = """
fragment relu6( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = clamp(x, 0.0, 6.0); }

fragment relu_n1( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = clamp(x, -1.0, 1.0); }

fragment truncated( x: tensor<scalar> ) -> ( y: tensor<integer> )
{
    y = cast<integer>(sign(x) * floor(abs(x)));
}

fragment hard_swish( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = x * clamp(x + 3.0, 0.0, 6.0) / 6.0;
}

fragment squared_difference( x: tensor<scalar>, y: tensor<scalar> ) -> ( z: tensor<scalar> )
{
    z = (x - y) ^ 2.0;
}
"""

_REDUCTIONS = {
    "MEAN", "SUM", "REDUCE_MIN", "REDUCE_MAX", "REDUCE_ANY", "REDUCE_ALL",
}  # fmt: skip
# What it converts right only if no operand is transposed, or all are.
_PLAIN = {
    "ARG_MAX", "ARG_MIN", "BATCH_MATMUL", "FULLY_CONNECTED", "GATHER",
    "L2_NORMALIZATION", "STRIDED_SLICE",
}  # fmt: skip
_ALIKE = {"ADD_N", "CONCATENATION", "PACK", "SELECT", "SELECT_V2"}


# How many settings of an operation may be younger than the schema of nnef_tools.
_YOUNGER = 8


def _row(name: str, **fields: Any) -> Transform:
    """A row of theirs with other fields; of attributes and conditions, those that are given."""
    row = copy(THEIRS[name])
    for field, value in fields.items():
        old = getattr(row, field) if isinstance(value, dict) else None
        setattr(row, field, {**(old or {}), **value} if old is not None else value)
    return row


_TRANSFORMS = {
    "CONV_2D": _row("CONV_2D", attribs={"groups": "!I[0].shape[-1] // I[1].shape[-1]"}),
    "TRANSPOSE_CONV": _row(
        "TRANSPOSE_CONV",
        inputs=(*THEIRS["TRANSPOSE_CONV"].inputs, "!bias_row(I[3:])"),
        attribs={"padding": "!convert_padding(padding, I[2].rank - 2)"},
    ),
    # The shape may be computed, from sizes that the file has.
    "RESHAPE": _row(
        "RESHAPE",
        attribs={"shape": "!flexible_batch(list(O[0].shape), I[0].shape[0])"},
    ),
    "FULLY_CONNECTED": _row(
        "FULLY_CONNECTED",
        inputs=("!as_rows(I[0], I[1].shape[-1])", "!I[1]", "!bias_row(I[2:])"),
        outputs="!from_rows(activation(O[0], fused_activation_function), I[1].shape[0])",
    ),
    "BATCH_MATMUL": _row(
        "BATCH_MATMUL",
        inputs=("!with_rank(I[0], O[0].rank)", "!with_rank(I[1], O[0].rank)"),
    ),
    "PRELU": _row("PRELU", inputs=("!I[0]", "!slopes(I[1], I[0])")),
    "L2_NORMALIZATION": _row(
        "L2_NORMALIZATION", attribs={"axes": "![I[0].rank - 1]", "epsilon": 1e-6}
    ),
    "LOCAL_RESPONSE_NORMALIZATION": _row(
        "LOCAL_RESPONSE_NORMALIZATION",
        inputs="!transpose_input(I[0])",
        outputs="!transpose_output(O[0])",
    ),
    "ARG_MAX": _row("ARG_MAX", outputs="!squeeze_output(O[0], ensure_list(axis))"),
    "ARG_MIN": _row("ARG_MIN", outputs="!squeeze_output(O[0], ensure_list(axis))"),
    "GATHER": _row("GATHER", cond={"!batch_dims == 0": "batch_dims must be 0"}),
    "STRIDED_SLICE": _row(
        "STRIDED_SLICE",
        using={
            "axes": "![i for i in range(rank) if not is_bit_set(new_axis_mask, i) and not"
            " (is_bit_set(begin_mask, i) and is_bit_set(end_mask, i) and stride[i] == 1)]"
        },
    ),
    "RESIZE_NEAREST_NEIGHBOR": _row(
        "RESIZE_NEAREST_NEIGHBOR",
        cond={"!upsample or not half_pixel_centers": "half_pixel_centers must be off"},
    ),
    "SELECT_V2": _row(
        "SELECT",
        inputs=tuple(f"!with_rank(I[{i}], O[0].rank)" for i in range(3)),
    ),
    "CAST": _row(
        "CAST",
        using={
            "truncates": '!nnef_dtype(I[0].dtype) == "scalar"'
            ' and nnef_dtype(O[0].dtype) == "integer"'
        },
        type='!"truncated" if truncates else "copy" if same_type else "cast"',
        attribs={"dtype": "!None if same_type or truncates else O[0].dtype"},
    ),
    "HARD_SWISH": _row("RELU", type="hard_swish"),
    "SQUARED_DIFFERENCE": _row("SUB", type="squared_difference"),
}


class _Corrected(Converter):  # type: ignore[misc]
    """The converter, with the rows above, whose expressions call the methods below."""

    _ActivationOpTypes: ClassVar = {
        **Converter._ActivationOpTypes,
        "RELU_N1_TO_1": "relu_n1",
    }

    def _convert(self, op: Any, transform: Any) -> Any:
        given = {tensor: self._tensor_map[tensor] for tensor in op.inputs}
        if self._mixes_axes(op):
            plain = {x: self.undo_transpose(own) for x, own in given.items()}
            self._tensor_map.update(plain)
        made = super()._convert(op, _with_activation(op, transform))
        self._tensor_map.update(given)
        return made

    def _mixes_axes(self, op: Any) -> bool:
        orders = {self.transposing(self._tensor_map[tensor]) for tensor in op.inputs}
        reduces = op.type in _REDUCTIONS and not op.attribs["keep_dims"]
        return reduces or op.type in _PLAIN or (op.type in _ALIKE and len(orders) > 1)

    def bias_row(self, inputs: Any) -> Any:
        """The vector that is left of the inputs, as a row, if there is one."""
        return self.unsqueeze_vector(inputs[0]) if inputs else None

    def with_rank(self, tensor: Any, rank: int) -> Any:
        """A tensor with as many axes as another one, which it is aligned with from the right."""
        axes = list(range(rank - tensor.rank))
        return self.unsqueeze_input(tensor, axes) if axes and tensor.rank else tensor

    def slopes(self, slopes: Any, x: Any) -> Any:
        """The slopes of PRelu, which lack the axis of the batch."""
        aligned = self.with_rank(slopes, x.rank)
        return self.transpose_input(aligned) if self.transposing(x) else aligned

    def as_rows(self, tensor: Any, width: int) -> Any:
        """A tensor as a matrix whose rows have a width."""
        shape = (int(np.prod(tensor.shape)) // width, width)
        if tensor.shape == shape:
            return tensor
        rows = Tensor(tensor.graph, dtype=tensor.dtype, shape=shape)
        self._reshape_operation(tensor, rows, (-1, width))
        return rows

    def from_rows(self, output: Any, width: int) -> Any:
        """The matrix whose rows are those of an output."""
        shape = (int(np.prod(output.shape)) // width, width)
        if output.shape == shape:
            return output
        rows = Tensor(output.graph, dtype=output.dtype, shape=shape)
        self._reshape_operation(rows, output, (-1, *output.shape[1:]))
        return rows


def _with_activation(op: Any, transform: Any) -> Any:
    """The row, with the activation that an operation applies to its result."""
    function = op.attribs.get("fused_activation_function", "NONE")
    outputs = transform.outputs
    if function == "NONE" or "fused_activation_function" in str(outputs):
        return transform
    (output,) = (outputs,) if isinstance(outputs, str) else outputs
    row = copy(transform)
    row.outputs = f"!activation({output[1:]}, fused_activation_function)"
    return row


@public
def from_tflite(path: PathLike) -> Model:
    """The graph of a TFLite file, read by the converter of `nnef_tools`, with corrections.

    Needs the package `flatbuffers`. Inputs and outputs keep their names and the order of
    their axes; variables are numbered.

    Raises:
        UsageError: the file cannot be read.
        UnsupportedError: it is quantized, or has an operation that is not converted.
    """
    name = os.fspath(path)
    converted = _converted(name)
    model = from_nnef_tools(converted, fragments=_FRAGMENTS)
    for tensor in converted.tensors:
        own = model.graph.tensors.get(tensor.name)
        if own is not None and own.shape != tuple(tensor.shape):
            shapes = f"{list(own.shape)}, where the file has {list(tensor.shape)}"
            message = f"'{tensor.name}' of '{name}' was converted to the shape"
            raise UnsupportedError(f"{message} {shapes}")
    return model


def _converted(name: str) -> Any:
    try:
        from nnef_tools.io.tf.lite import Reader
    except ImportError:
        message = "TFLite files need the package flatbuffers: pip install flatbuffers"
        raise UsageError(message) from None
    with reading(name):
        try:
            graph = Reader()(name)
            _complete(graph, Path(name).read_bytes())
            graph = Optimizer()(graph, only_required=True)
            graph.sort()
        except (OSError, NnefGradError):
            raise
        except Exception as error:
            # Theirs are of any kind.
            message = f"nnef_tools cannot read '{name}' as a TFLite file: {_why(error)}"
            raise UsageError(message) from None
    for tensor in graph.tensors:
        if tensor.quant and np.any(tensor.quant.get("scale")):
            message = f"'{tensor.name}' of '{name}' is quantized"
            raise UnsupportedError(f"{message}: convert a model in floating point")
    try:
        return _Corrected(custom_transforms=_TRANSFORMS, keep_io_names=True)(graph)
    except ConversionError as error:
        reasons = " ".join(str(error).split())
        raise UnsupportedError(f"'{name}' is not converted: {reasons}") from None


# What errors of its reader are about.
_YOUNG = "an operation or type is younger than the reader"
_FOREIGN = "an operation of another maker has settings in a form of its own"
_WHY = {KeyError: _YOUNG, AssertionError: _FOREIGN, AttributeError: _FOREIGN}


def _why(error: Exception) -> str:
    if "cannot reshape array" in str(error):
        return f"data do not fill their shape, as those of sparse weights: {error}"
    return _WHY.get(type(error), str(error) or type(error).__name__)


def _complete(graph: Any, stored: bytes) -> None:
    """Adds settings that are younger than the schema of nnef_tools, which reads over them."""
    from nnef_tools.io.tf.lite import flatbuffers, helpers

    activations = vars(flatbuffers.ActivationFunctionType).items()
    names = {value: name for name, value in activations if name.isupper()}
    subgraph = flatbuffers.Model.GetRootAsModel(stored, 0).Subgraphs(0)
    for index, operation in enumerate(graph.operations):
        operator = subgraph.Operators(index)
        options = operator.BuiltinOptions()
        kind = helpers.BuiltinOptionsClasses[operator.BuiltinOptionsType()]
        if options is None or kind is None:
            continue
        known: list[int] = []
        helpers.get_options_starter_ender(kind)[0](
            SimpleNamespace(StartObject=known.append)
        )
        for slot in range(known[0], known[0] + _YOUNGER):
            if not (offset := options.Offset(4 + 2 * slot)):
                continue
            if (operation.type, slot) != ("TRANSPOSE_CONV", 3):
                message = f"a setting of {operation.type} is unknown to nnef_tools"
                raise UnsupportedError(message)
            code = stored[options.Pos + offset]
            operation.attribs["fused_activation_function"] = names[code]
