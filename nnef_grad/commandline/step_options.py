"""The options of `nnef-grad-step`, by the headings of --help."""

from __future__ import annotations

import click

from nnef_grad.commandline.options import FLAG, OPTIONS, PATH, Groups, Option

_POSITIVE = {"type": click.FloatRange(min=0, min_open=True), "metavar": "X"}
_PATTERNS = {"metavar": "NAMES", "multiple": True}
_SHARED = {option.name: option for options in OPTIONS.values() for option in options}
_STEP = "model/ -o step/ --loss huber"


def _shared(**examples: str) -> list[Option]:
    """Options of `nnef-grad`, with other examples."""
    return [_SHARED[n].again(f"nnef-grad-step {e}") for n, e in examples.items()]


STEP_OPTIONS: Groups = {
    "Loss": [
        Option(
            "--loss",
            "nnef-grad-step model/ -o step/ --loss 'huber(delta = 0.5)'",
            "The loss of the output: mean_squared_error, mean_absolute_error, huber, hinge, "
            "binary_cross_entropy, sigmoid_cross_entropy, categorical_cross_entropy, "
            "softmax_cross_entropy, softmax_cross_entropy_with_labels, kullback_leibler, "
            "cosine_similarity, or your own FILE.nnef:NAME. Every loss has the settings "
            "reduction and weight. For several outputs, repeat OUTPUT=LOSS.",
            metavar="[OUTPUT=]LOSS",
            multiple=True,
            required=True,
        ),
        Option(
            "--output",
            "nnef-grad-step model/ -o step/ --loss softmax_cross_entropy --output logits",
            "The tensor of the loss, if it is not the output of MODEL.",
            metavar="NAME",
        ),
        Option(
            "--l2",
            "nnef-grad-step model/ -o step/ --loss huber --l2 1e-4",
            "Add X times half the sum of the squares of filters and matrices, or of the "
            "variables that match PATTERN.",
            metavar="[PATTERN=]X",
            multiple=True,
        ),
        Option(
            "--loss-scale",
            "nnef-grad-step model/ -o step/ --loss huber --loss-scale",
            "Multiply the loss by the input loss_scale, and divide gradients by it. If one "
            "is infinite or NaN, the step changes nothing, and its output is_finite is 0.",
            **FLAG,
        ),
    ],
    "Trained variables": [
        Option(
            "--train",
            "nnef-grad-step model/ -o step/ --loss huber --train 'layer2/*'",
            "Train only these variables: labels or names, separated by commas, with "
            "wildcards. By default, all scalar ones except masks, position encodings and "
            "others that are not parameters.",
            **_PATTERNS,
        ),
        Option(
            "--freeze",
            "nnef-grad-step model/ -o step/ --loss huber --freeze 'layer1/*'",
            "Do not train these variables: labels or names, separated by commas, with "
            "wildcards.",
            **_PATTERNS,
        ),
    ],
    "Optimization": [
        Option(
            "--optimizer",
            "nnef-grad-step model/ -o step/ --loss huber --optimizer 'adam(beta1 = 0.8)'",
            "sgd, momentum, adagrad, rmsprop, adam or adamw, with torch's settings; or your own "
            "FILE.nnef:NAME.",
            metavar="OPTIMIZER",
            default="sgd",
            show_default=True,
        ),
        Option(
            "--learning-rate",
            "nnef-grad-step model/ -o step/ --loss huber --learning-rate 0.01",
            "The learning rate; by default, an input of the step.",
            **_POSITIVE,
        ),
        Option(
            "--group",
            "nnef-grad-step model/ -o step/ --loss huber --group 'layer2/*:learning_rate=0.1'",
            "Optimizer settings for the variables that match PATTERN. May be repeated.",
            metavar="PATTERN:SETTINGS",
            multiple=True,
        ),
        Option(
            "--adapters",
            "nnef-grad-step model/ -o step/ --loss huber --adapters 'layer1/*:rank=2'",
            "Train adapters (LoRA) beside the matrices and filters that match PATTERN, and no "
            "other variables but those of --train. nnef-grad-merge adds them to the model. May "
            "be repeated.",
            metavar="PATTERN:rank=N[,alpha=X]",
            multiple=True,
        ),
        Option(
            "--padding-row",
            "nnef-grad-step words.nnef --loss huber --padding-row words.weight=0",
            "Let no gradient reach this row of a table in a lookup, like the padding_idx of an "
            "embedding, which exports lose. May be repeated.",
            metavar="TABLE=ROW",
            multiple=True,
        ),
        Option(
            "--clip-norm",
            "nnef-grad-step model/ -o step/ --loss huber --clip-norm 1.0",
            "Scale all gradients together, to a norm of at most X.",
            **_POSITIVE,
        ),
        Option(
            "--clip-value",
            "nnef-grad-step model/ -o step/ --loss huber --clip-value 0.1",
            "Bound each element of a gradient to [-X, X].",
            **_POSITIVE,
        ),
        Option(
            "--accumulate",
            "nnef-grad-step model/ -o step/ --loss huber --accumulate 4",
            "Average the gradients of N batches: OUT adds them up, and OUT/apply uses them.",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
        ),
        Option(
            "--batch-statistics",
            "nnef-grad-step model/ -o step/ --loss huber --batch-statistics",
            "Normalize by the mean and variance of the batch, and move the running ones "
            "towards them.",
            **FLAG,
        ),
        Option(
            "--statistics-momentum",
            "nnef-grad-step model/ -o step/ --loss huber --batch-statistics "
            "--statistics-momentum 0.01",
            "The share of the batch in the new running statistics.",
            type=click.FloatRange(min=0, max=1, min_open=True),
            default=0.1,
            show_default=True,
            metavar="X",
        ),
        Option(
            "--quantize",
            "nnef-grad-step quantized/ -o step/ --loss huber --quantize",
            "Quantize tensors as graph.quant says; gradients pass straight through.",
            **FLAG,
        ),
    ],
    "Output": [
        Option(
            "-o --out",
            "nnef-grad-step model/ -o step.tgz --loss huber",
            "Where to write the step: a folder x/ or x; an archive x.tgz or x.tar; a file "
            "x.nnef, without data; an ONNX file x.onnx. '-' (the default) is stdout.",
            metavar="OUT",
            default="-",
            type=PATH,
        ),
        Option(
            "--state",
            "nnef-grad-step model/ -o step/ --loss huber --state inputs",
            "Keep trained variables and optimizer state as variables, which the document "
            "updates, or as inputs and outputs, the default for targets other than nnef.",
            type=click.Choice(("variables", "inputs")),
        ),
        *_shared(
            recompute=f"{_STEP} --recompute 0.5",
            target=f"{_STEP} --target onnx",
            force=f"{_STEP} --force",
        ),
    ],
    "Reading MODEL": _shared(
        input_shape="model/ -o step/ --input-shape x=8,3 --loss huber",
        batch="model/ -o step/ --batch 8 --loss huber",
        dialect="dynamic.nnef --dialect tract --batch 8 --loss huber",
        symbol="dynamic.nnef --symbol B=8 --loss huber",
        unroll="recurrent/ -o step/ --target tract --unroll 16 --loss huber",
        rules="model/ -o step/ --rules rules.nnef --loss huber",
        expand="model/ -o step/ --expand softmax,linear --loss huber",
        gelu="model/ -o step/ --gelu sigmoid --loss huber",
        lenient="model/ -o step/ --lenient --loss huber",
    ),
    "Checking": [
        _SHARED["check"].again(
            "nnef-grad-step model/ -o step/ --loss huber --check",
            help="Compare the gradient of the loss for each trained variable with central "
            "differences, before clipping. If one is wrong, write only the page of --report, "
            "and exit with 1.",
        ),
        *_shared(
            check_seed=f"{_STEP} --check --check-seed 1",
            check_memory=f"{_STEP} --check --check-memory 4",
            inputs=f"{_STEP} --inputs random --report step.html",
            stats=f"{_STEP} --stats",
            report=f"{_STEP} --report step.html",
        ),
    ],
    "Messages": _shared(
        format=f"{_STEP} --format json", quiet="model/ --loss huber -q | less"
    ),
}
