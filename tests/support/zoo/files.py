"""ONNX files of a network: exported, optimized, quantized."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx

from support.zoo.members import Member

EXPORTERS = ("dynamo=False", "dynamo=True", "optimum")
LEVELS = ("", "O1", "O2", "O3")
QUANTIZERS = ("", "dynamic", "QDQ")


def export(member: Member, path: Path, exporter: str) -> None:
    """By one of the exporters of PyTorch, with open axes, or by optimum."""
    if exporter == "optimum":
        _by_optimum(member, path)
        return
    is_new = exporter == "dynamo=True"
    open_axes = "dynamic_shapes" if is_new else "dynamic_axes"
    axes = {open_axes: _automatic(member) if is_new else member.dims}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _written(member, path, is_new, axes)


def _written(member: Member, path: Path, is_new: bool, axes: Any) -> None:
    import torch

    torch.onnx.export(
        member.module, tuple(member.inputs.values()), path, dynamo=is_new, verbose=False,
        input_names=[*member.inputs], output_names=["y"], **axes,
    )  # fmt: skip


def _by_optimum(member: Member, path: Path) -> None:
    """As `optimum-cli export onnx`."""
    from optimum.exporters.onnx import onnx_export_from_model

    folder = path.with_suffix("")
    onnx_export_from_model(
        member.module.network, folder, task=member.task, do_validation=False
    )
    (folder / "model.onnx").rename(path)


def _automatic(member: Member) -> Any:
    """The open axes of the arguments, which some modules take as `*given`."""
    from torch.export import Dim

    axes = tuple(dict.fromkeys(dims, Dim.AUTO) for dims in member.dims.values())
    return {"given": axes} if member.kind else axes


def optimize(member: Member, path: Path, out: Path, level: str) -> None:
    """As `optimum-cli export onnx --optimize` does at a level."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    kind = member.kind or "bert"
    options = FusionOptions(kind)
    options.enable_gelu_approximation = level == "O3"
    sizes = (4, 32) if member.kind else (0, 0)
    made = optimize_model(
        str(path), kind, *sizes, opt_level=1 if level == "O1" else 2,
        optimization_options=options, only_onnxruntime=level == "O1",
    )  # fmt: skip
    made.save_model_to_file(str(out))


def quantize(member: Member, path: Path, out: Path, how: str) -> None:
    """Weights to codes of eight bits, and with QDQ what is between them, too."""
    from onnxruntime import quantization

    # Shapes that the quantizer infers again, and would contradict, for transposed weights.
    model = onnx.load(path)
    del model.graph.value_info[:]
    # Of results of operators that the standard lacks.
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    if how == "dynamic":
        quantization.quantize_dynamic(model, out, extra_options=options)
        return
    form = quantization.QuantFormat.QDQ
    reader = _reader(member)
    quantization.quantize_static(
        model, out, reader, quant_format=form, extra_options=options
    )


def _reader(member: Member) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        feeds = iter([{name: x.numpy() for name, x in member.inputs.items()}])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    return Reader()
