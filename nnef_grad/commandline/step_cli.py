"""The command line of training steps: its options, and what --help says."""

from __future__ import annotations

from typing import Any

import click

import nnef_grad
from nnef_grad.commandline.options import Command, parameters
from nnef_grad.commandline.step_options import STEP_OPTIONS


@click.command(
    cls=Command,
    params=parameters(STEP_OPTIONS),
    groups=STEP_OPTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(nnef_grad.__version__, prog_name="nnef-grad-step")
def main(**options: Any) -> None:
    """Compile the NNEF model MODEL to a training step, with a loss and an optimizer.

    MODEL is a folder with a graph.nnef, an archive of such files (.tar, .tgz), a file of
    NNEF 1.0 text, an ONNX file (.onnx), a PyTorch program (.pt2), or '-' for stdin.
    The step is standard NNEF 1.0. It takes the inputs of MODEL, a target for each loss,
    and the learning rate. It updates its variables, or takes and returns them.

    \b
    Examples:
      nnef-grad-step model/ -o step/ --loss softmax_cross_entropy --optimizer adam
      nnef-grad-step model/ -o step/ --loss 'huber(delta = 0.5)' --target onnx
      nnef-grad-step model/ -o step/ --loss hinge --train 'classifier/*'
    """
    # Not at the top: --help, --version and a wrong option do without the compiler.
    from nnef_grad.commandline.step_command import make_step

    make_step(**options)
