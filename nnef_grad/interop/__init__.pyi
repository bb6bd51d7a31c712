"""The public names of the package, each with the module that it comes from."""

from nnef_grad.frontends.khronos import Model as Model
from nnef_grad.frontends.khronos import from_nnef as from_nnef
from nnef_grad.frontends.khronos import from_nnef_tools as from_nnef_tools
from nnef_grad.frontends.khronos import to_nnef as to_nnef
from nnef_grad.frontends.khronos import to_nnef_tools as to_nnef_tools
from nnef_grad.frontends.onnx.entry import from_onnx as from_onnx
from nnef_grad.frontends.tflite import from_tflite as from_tflite
from nnef_grad.frontends.torch import TorchModel as TorchModel
from nnef_grad.frontends.torch import from_torch as from_torch
from nnef_grad.targets.onnx.writing import to_onnx as to_onnx

__all__: list[str]
