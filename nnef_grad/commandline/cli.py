"""The command line: its options, and what --help says."""

from __future__ import annotations

from typing import Any

import click

import nnef_grad
from nnef_grad.commandline.options import OPTIONS, Command, parameters


@click.command(
    cls=Command,
    params=parameters(OPTIONS),
    groups=OPTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(nnef_grad.__version__, prog_name="nnef-grad")
def main(**options: Any) -> None:
    """Compile the NNEF graph MODEL to its backward graph.

    MODEL is a folder with a graph.nnef, an archive of such files (.tar, .tgz), a file of
    NNEF 1.0 text, an ONNX file (.onnx), a PyTorch program (.pt2), or '-' for stdin.
    The backward graph is standard NNEF 1.0. It takes the inputs of MODEL and the gradient
    of each output, and returns the gradient of each input and variable. A folder, an
    archive or an ONNX file also gets the data of its variables.

    \b
    Examples:
      nnef-grad model.nnef -o model_bwd.nnef
      nnef-grad model.tgz -o model_bwd.tgz
      nnef-grad model.onnx -o model_bwd.onnx
      nnef-grad model.nnef -o saliency.nnef --wrt inputs --seed ones
      nnef-grad model.nnef --wrt image,conv1 --batch 8 | less
    """
    # Not at the top: --help, --version and a wrong option do without the compiler.
    from nnef_grad.commandline.command import compile_model

    compile_model(**options)
