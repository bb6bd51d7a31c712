"""The command line of training steps: its options, and what --help says."""

from __future__ import annotations

from typing import Any

import click

from nnef_grad.base.choices import Loss, Optimizer, words
from nnef_grad.commandline.cli import (
    FLAG,
    OPTIONS,
    Finite,
    Groups,
    model_command,
    option,
    path,
    several,
)
from nnef_grad.commandline.completion import named, tensors, variables, with_completion

_POSITIVE = {"type": Finite(min=0, min_open=True), "metavar": "X"}

STEP_OPTIONS: Groups = {
    "Loss": [
        option(
            "--loss",
            f"The loss of the output: {', '.join(words(Loss))}, or your own "
            "FILE.nnef:NAME. Every loss has the settings reduction and weight. For "
            "several outputs, repeat OUTPUT=LOSS.",
            **several("[OUTPUT=]LOSS"),
            **with_completion(Loss),
            required=True,
        ),
        option(
            "--output",
            "The tensor of the loss, if it is not the output of MODEL.",
            **named(tensors, metavar="NAME", multiple=False),
        ),
        option(
            "--l2",
            "Add X times half the sum of the squares of filters and matrices, or of the "
            "variables that match PATTERN.",
            **several("[PATTERN=]X"),
        ),
        option(
            "--loss-scale",
            "Multiply the loss by the input loss_scale, and divide gradients by it. If one "
            "is infinite or NaN, the step changes nothing, and its output is_finite is 0.",
            **FLAG,
        ),
    ],
    "Trained variables": [
        option(
            "--train",
            "Train only these variables: labels or names, separated by commas, with "
            "wildcards. By default, all scalar ones except masks, position encodings and "
            "others that are not parameters.",
            **named(variables, metavar="NAMES"),
        ),
        option(
            "--freeze",
            "Do not train these variables: labels or names, separated by commas, with "
            "wildcards.",
            **named(variables, metavar="NAMES"),
        ),
    ],
    "Optimization": [
        option(
            "--optimizer",
            "sgd, momentum, adagrad, rmsprop, adam or adamw, with torch's settings; or your own "
            "FILE.nnef:NAME.",
            metavar="OPTIMIZER",
            default="sgd",
            show_default=True,
            **with_completion(Optimizer),
        ),
        option(
            "--learning-rate",
            "The learning rate; by default, an input of the step.",
            **_POSITIVE,
        ),
        option(
            "--group",
            "Optimizer settings for the variables that match PATTERN. May be repeated.",
            **several("PATTERN:SETTINGS"),
        ),
        option(
            "--adapters",
            "Train adapters (LoRA) beside the matrices and filters that match PATTERN, and no "
            "other variables but those of --train. nnef-grad-merge adds them to the model. May "
            "be repeated.",
            **several("PATTERN:rank=N[,alpha=X]"),
        ),
        option(
            "--padding-row",
            "Let no gradient reach this row of a table in a lookup, like the padding_idx of an "
            "embedding, which exports lose. May be repeated.",
            **several("TABLE=ROW"),
        ),
        option(
            "--clip-norm",
            "Scale all gradients together, to a norm of at most X.",
            **_POSITIVE,
        ),
        option(
            "--clip-value", "Bound each element of a gradient to [-X, X].", **_POSITIVE
        ),
        option(
            "--clip-per-example",
            "Scale the gradients of each example to a norm of at most X before they are added "
            "up, for private training (DP-SGD).",
            **_POSITIVE,
        ),
        option(
            "--noise",
            "Add noise of a standard deviation of X times that of --clip-per-example to this "
            "sum: the step has inputs of standard normal numbers, noise_<variable>.",
            **_POSITIVE,
        ),
        option(
            "--accumulate",
            "Average the gradients of N batches: OUT adds them up, and OUT/apply uses them.",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
        ),
        option(
            "--batch-statistics",
            "Normalize by the mean and variance of the batch, and move the running ones "
            "towards them.",
            **FLAG,
        ),
        option(
            "--statistics-momentum",
            "The share of the batch in the new running statistics.",
            type=Finite(min=0, max=1, min_open=True),
            default=0.1,
            show_default=True,
            metavar="X",
        ),
        option(
            "--quantize",
            "Quantize tensors as graph.quant says; gradients pass straight through.",
            **FLAG,
        ),
    ],
    "Output": [
        option(
            "-o --out",
            "Where to write the step: a folder x/ or x; an archive x.tgz or x.tar; a file "
            "x.nnef, without data; an ONNX file x.onnx. '-' (the default) is stdout.",
            default="-",
            **path("OUT"),
        ),
        option(
            "--start",
            "Write the values to begin with to START, an ONNX file whose graph has no inputs: "
            "the state in OUT, an ONNX file x.onnx, is then plain inputs, and x.json says what "
            "inputs and outputs are for. JavaScript, Java and C# cannot feed inputs that have "
            "initial values.",
            **path("START"),
        ),
        option(
            "--state",
            "Keep trained variables and optimizer state as variables, which the document "
            "updates, or as inputs and outputs, the default for targets other than nnef.",
            type=click.Choice(("variables", "inputs")),
        ),
        *(o for o in OPTIONS["Output"] if o.name in ("recompute", "target", "force")),
    ],
    "Reading MODEL": OPTIONS["Reading MODEL"],
    "Checking": [
        option(
            "--check",
            "Compare the gradient of the loss for each trained variable with central "
            "differences, before clipping. If one is wrong, write only the page of --report, "
            "and exit with 1.",
            **FLAG,
        ),
        *OPTIONS["Checking"][1:],
    ],
    "Messages": OPTIONS["Messages"],
}


@model_command("nnef-grad-step", STEP_OPTIONS)
def main(**options: Any) -> None:
    """Compile the NNEF model MODEL to a training step, with a loss and an optimizer.

    MODEL is a folder with a graph.nnef, an archive of such files (.tar, .tgz), a file of
    NNEF 1.0 text, an ONNX file (.onnx), a TFLite file (.tflite), a PyTorch program (.pt2),
    or '-' for stdin.
    The step is standard NNEF 1.0. It takes the inputs of MODEL, a target for each loss,
    and the learning rate. It updates its variables, or takes and returns them.

    \b
    Examples:
      nnef-grad-step model/ -o step/ --loss softmax_cross_entropy --optimizer adam
      nnef-grad-step model/ -o step/ --loss 'huber(delta = 0.5)' --target onnx
      nnef-grad-step model/ -o step/ --loss hinge --train 'classifier/*'
    """
    from nnef_grad.commandline.step_command import make_step

    make_step(**options)
