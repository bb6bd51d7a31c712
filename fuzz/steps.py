"""Random training steps: a small model, settings, and names for its tensors and labels from
the words of the compiler itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf, nan
from random import Random
from typing import Any

import nnef_grad
from fuzz.inputs import Input

BATCH, FEATURES, CLASSES = 4, 3, 5

# What is named in a model as it is written here: the graph, its tensors, and its labels.
PLAIN = re.compile(r"\b[gtp]\d+\b")
Names = Mapping[str, str]


def renamed(value: Any, names: Names) -> Any:
    """A text, or settings with texts, with other names for what is named."""
    if isinstance(value, str):
        return PLAIN.sub(lambda found: names.get(found[0], found[0]), value)
    if isinstance(value, Mapping):
        return {renamed(k, names): renamed(v, names) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [renamed(item, names) for item in value]
    return value


# ---- The model ----


class Model:
    """A model that grows, statement by statement.

    Attributes:
        lines: the statements.
        tensors: the names of its tensors of numbers.
        labels: the labels of its variables.
        width: the extent of axis 1 of the last tensor; that of axis 0 is the batch.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tensors: list[str] = []
        self.labels: list[str] = []
        self.width = FEATURES
        self.add(f"external(shape = [{BATCH}, {FEATURES}])")

    @property
    def last(self) -> str:
        return self.tensors[-1]

    def add(self, expression: str) -> str:
        """Adds a statement, and returns the name of its result."""
        self.tensors.append(f"t{len(self.tensors)}")
        self.lines.append(f"    {self.last} = {expression};\n")
        return self.last

    def variable(self, rows: int, columns: int) -> str:
        self.labels.append(f"p{len(self.labels)}")
        shape = f"[{rows}, {columns}]"
        return self.add(f"variable(shape = {shape}, label = '{self.labels[-1]}')")

    def text(self, outputs: Sequence[str]) -> str:
        graph = f"graph g0( {self.tensors[0]} ) -> ( {', '.join(outputs)} )"
        return f"version 1.0;\n\n{graph}\n{{\n{''.join(self.lines)}}}\n"


def _dense(rng: Random, model: Model) -> None:
    x, rows = model.last, rng.choice([CLASSES, CLASSES, 2, 1])
    filter_, bias = model.variable(rows, model.width), model.variable(1, rows)
    model.add(f"linear({x}, {filter_}, {bias})")
    model.width = rows


def _activation(rng: Random, model: Model) -> None:
    model.add(f"{rng.choice(_ACTIVATIONS)}({model.last})")


def _scaled(rng: Random, model: Model) -> None:
    x = model.last
    scale = model.variable(rng.choice([1, BATCH]), rng.choice([1, model.width]))
    model.add(f"{rng.choice(['mul', 'add', 'sub', 'max'])}({x}, {scale})")


def _constant(rng: Random, model: Model) -> None:
    x, values = model.last, [rng.choice([0.5, 1.0, 2.0]) for _ in range(model.width)]
    number = model.add(f"constant(shape = [1, {model.width}], value = {values})")
    model.add(f"mul({x}, {number})")


def _normalized(_: Random, model: Model) -> None:
    x = model.last
    operands = ", ".join(model.variable(1, model.width) for _ in range(4))
    model.add(f"batch_normalization({x}, {operands}, epsilon = 0.1)")


def _residual(_: Random, model: Model) -> None:
    x = model.last
    model.add(f"add({x}, {model.add(f'tanh({x})')})")


_ACTIVATIONS = ["tanh", "sigmoid", "relu", "softplus", "softmax", "sqr", "abs", "copy"]
_BLOCKS: list[Callable[[Random, Model], None]] = [
    *[_dense, _dense, _activation, _activation, _scaled, _constant, _residual],
    _normalized,
]


def _model(rng: Random) -> Model:
    model = Model()
    for block in (_dense, *rng.choices(_BLOCKS, k=rng.choice([1, 2, 3, 5]))):
        block(rng, model)
    return model


# ---- Settings ----

_LOSSES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "mean_squared_error": {},
    "mean_absolute_error": {},
    "huber": {"delta": (0.25, 2.0)},
    "cosine_similarity": {"epsilon": (1e-4,)},
    "hinge": {"margin": (0.5,)},
    "binary_cross_entropy": {},
    "sigmoid_cross_entropy": {},
    "categorical_cross_entropy": {},
    "softmax_cross_entropy": {"label_smoothing": (0.1,)},
    "softmax_cross_entropy_with_labels": {
        "label_smoothing": (0.1,),
        "ignore_index": (0, -1),
    },
    "kullback_leibler": {},
}
_OF_LOSSES: Mapping[str, Sequence[Any]] = {
    "reduction": ("'mean'", "'sum'", "'batchmean'"),
    "weight": (0.5, 3.0),
}
_MOMENTS: Mapping[str, Sequence[Any]] = {
    "beta1": (0.5, 0.0), "beta2": (0.9,), "eps": (1e-4,), "amsgrad": (True,),
}  # fmt: skip
_OPTIMIZERS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "sgd": {},
    "momentum": {"momentum": (0.5,), "dampening": (0.1,), "nesterov": (True,)},
    "adagrad": {
        "lr_decay": (0.1,),
        "initial_accumulator_value": (0.1,),
        "eps": (1e-4,),
    },
    "rmsprop": {
        "alpha": (0.9,), "eps": (1e-4,), "momentum": (0.5,), "centered": (True,),
    },
    "adam": _MOMENTS,
    "adamw": _MOMENTS,
}  # fmt: skip
_OF_OPTIMIZERS: Mapping[str, Sequence[Any]] = {
    "weight_decay": (0.1, 0.0),
    "maximize": (True,),
}


def _recipe(
    rng: Random,
    recipes: Mapping[str, Mapping[str, Sequence[Any]]],
    further: Mapping[str, Sequence[Any]],
) -> str:
    """A loss or an optimizer with some of its settings."""
    name = rng.choice(list(recipes))
    settings = {**recipes[name], **further}
    given = [
        f"{key} = {str(rng.choice(values)).lower()}"
        for key, values in settings.items()
        if rng.random() < 0.3
    ]
    return f"{name}({', '.join(given)})" if given else name


def _loss(rng: Random) -> str:
    return _recipe(rng, _LOSSES, _OF_LOSSES)


def _optimizer(rng: Random) -> str:
    return _recipe(rng, _OPTIMIZERS, _OF_OPTIMIZERS)


def _some(rng: Random, model: Model) -> list[str]:
    """Some labels of variables."""
    return rng.sample(model.labels, rng.randint(1, len(model.labels)))


Draw = Callable[[Random, Model], Any]

_SETTINGS: dict[str, Draw] = {
    "learning_rate": lambda rng, _: rng.choice([0.1, 0.01]),
    "train": _some,
    "freeze": lambda rng, model: [rng.choice(model.labels)],
    "groups": lambda rng, model: {
        label: rng.choice(
            [{"learning_rate": 0.02}, {"weight_decay": 0.05}, "weight_decay = 0.5"]
        )
        for label in rng.sample(model.labels, 1)
    },
    "l2": lambda rng, model: rng.choice([0.1, {rng.choice(model.labels): 0.1}]),
    "clip_norm": lambda rng, _: rng.choice([0.01, 1.0]),
    "clip_value": lambda rng, _: rng.choice([0.01, 1.0]),
    "accumulate": lambda rng, _: rng.choice([1, 2, 3]),
    "loss_scale": lambda rng, _: rng.random() < 0.8,
    "batch_statistics": lambda rng, _: rng.choice([0.1, 0.5, 1.0]),
    "quantize": lambda rng, _: rng.random() < 0.8,
    "state": lambda rng, _: rng.choice(["variables", "inputs"]),
    "target": lambda rng, _: rng.choice(["nnef", "tract", "onnx", "khronos"]),
}
_NUMBERS = [
    0,
    1,
    2**31,
    0.0,
    -1.0,
    nan,
    -inf,
    10**400,
    "0.1",
    True,
    None,
    [1.0],
    1e-300,
    1e300,
]
_NOWHERE = ["t99", "p99", "", "[", "*", "t97", "p98/x"]
# What is no recipe.
_WORDS = [
    *["nothing", "", "huber(", "f()", "adam)", "a b", "smoothed", "moved", "x.nnef:f"],
]
# Values that a setting may not have, and some that it may.
_WRONG: dict[str, Draw] = {
    "loss": lambda rng, model: rng.choice(
        [
            *[rng.choice(_WORDS), _damaged(rng, _loss(rng)), {}, _optimizer(rng)],
            *[{rng.choice(_NOWHERE): _loss(rng)}, {model.tensors[0]: _loss(rng)}],
        ]
    ),
    "optimizer": lambda rng, _: rng.choice(
        [rng.choice(_WORDS), _damaged(rng, _optimizer(rng)), _loss(rng)]
    ),
    "train": lambda rng, model: rng.choice(
        [rng.choice(_NOWHERE), [], [model.tensors[0]], [rng.choice(_NOWHERE)]]
    ),
    "freeze": lambda rng, _: rng.choice([rng.choice(_NOWHERE), ["*", "p99"], 3]),
    "groups": lambda rng, _: rng.choice(
        [
            {rng.choice(_NOWHERE): {"learning_rate": 0.1}},
            {"*": rng.choice([{"loss": 1.0}, "eps", "eps = ", {"": 1.0}, {}, 3, ""])},
            {"*": {"learning_rate": rng.choice(_NUMBERS)}},
        ]
    ),
    "l2": lambda rng, _: {rng.choice(_NOWHERE): rng.choice(_NUMBERS)},
    "accumulate": lambda rng, _: rng.choice([0, -1, 1.5, 10**30, 2**31]),
    "state": lambda _, __: "nothing",
    "target": lambda rng, _: rng.choice(["nothing", "portable", ""]),
}  # fmt: skip


def _number(rng: Random, _: Model) -> Any:
    return rng.choice(_NUMBERS)


def _damaged(rng: Random, recipe: str) -> str:
    """A recipe with a letter less, or one more."""
    place, letter = rng.randrange(len(recipe)), rng.choice(["", *"'(=9-"])
    return f"{recipe[:place]}{letter}{recipe[place + 1 :]}"


def _settings(rng: Random, model: Model, outputs: Sequence[str]) -> dict[str, Any]:
    one = len(outputs) == 1 and rng.random() < 0.7
    found: dict[str, Any] = {
        "loss": _loss(rng) if one else {name: _loss(rng) for name in outputs},
        "optimizer": _optimizer(rng),
        "learning_rate": None,
    }
    for name in rng.sample(list(_SETTINGS), rng.choice([0, 1, 2, 3, 5])):
        found[name] = _SETTINGS[name](rng, model)
    if rng.random() < 0.3:
        name = rng.choice([*_SETTINGS, "loss", "optimizer"])
        found[name] = rng.choice([_WRONG.get(name, _number), _number])(rng, model)
    return found


# ---- Names ----

_EXAMPLE = """\
version 1.0;

graph g0( t0 ) -> ( t5 )
{
    t0 = external(shape = [4, 3]);
    t1 = variable(shape = [5, 3], label = 'p0');
    t2 = variable(shape = [1, 5], label = 'p1');
    t3 = linear(t0, t1, t2);
    t4 = constant(shape = [1, 5], value = [1.0, 2.0, 3.0, 4.0, 5.0]);
    t5 = mul(t3, t4);
}
"""
_STEPS: list[dict[str, Any]] = [
    {"optimizer": "adam(amsgrad = true)", "clip_norm": 1.0, "accumulate": 2},
    {"optimizer": "rmsprop(momentum = 0.5, centered = true)", "loss_scale": True},
    {"optimizer": "momentum(dampening = 0.1)", "target": "tract", "accumulate": 2},
    {"optimizer": "adagrad(lr_decay = 0.1)", "target": "onnx", "loss_scale": True},
]


@lru_cache(maxsize=1)
def words() -> list[str]:
    """What the compiler calls tensors, variables and their data, in some steps."""
    return sorted({w for s in _STEPS for w in _words_of(s) if not PLAIN.fullmatch(w)})


def _words_of(settings: dict[str, Any]) -> Iterator[str]:
    step = nnef_grad.training_step(
        nnef_grad.loads(_EXAMPLE), loss="softmax_cross_entropy", **settings
    )
    for one in filter(None, (step, step.apply)):
        yield from one.graph.tensors
        yield from one.graph.labels.values()
        yield from one.data
        yield from one.labels.values()


def _names(rng: Random, model: Model) -> dict[str, str]:
    """Words of the compiler for some of the names of a model. No two are the same, so that
    a pattern is that of one variable.
    """
    known = [*model.tensors, *model.labels, *model.labels, "g0"]
    places = list(dict.fromkeys(rng.sample(known, rng.choice([1, 2, 3]))))
    chosen = rng.sample(words(), len(places))
    found: dict[str, str] = {}
    for place, word in zip(places, chosen, strict=True):
        name = word if place.startswith("p") else re.sub(r"\W", "_", word)
        if name not in found.values():
            found[place] = name
    return found


# ---- The input ----

_QUANTIZATION = [
    "linear_quantize(min = -1.0, max = 1.0, bits = 8)",
    "linear_quantize(min = 0.0, max = 4.0, bits = 3)",
    "zero_point_linear_quantize(zero_point = 0, scale = 0.1, bits = 8, signed = true,"
    " symmetric = false)",
]
_DATA = ["all", "all", "all", "double"]
_ODD_DATA = ["none", "empty", "missing", "shape", "integers", "logical", "more", "nan"]


def step(rng: Random) -> Input:
    """A model, how it is trained, and words for some of its names."""
    model = _model(rng)
    others = [t for t in model.tensors[3:] if rng.random() < 0.1]
    outputs = list(dict.fromkeys([model.last, *others]))
    settings = _settings(rng, model, outputs)
    quant = f'"{rng.choice(model.tensors)}": {rng.choice(_QUANTIZATION)};\n'
    is_quantized = rng.random() < (0.95 if settings.get("quantize") is True else 0.1)
    data = rng.choice(_ODD_DATA if rng.random() < 0.1 else _DATA)
    options = {
        "settings": settings,
        "names": _names(rng, model),
        "quant": quant if is_quantized else None,
        "data": data,
        "rate": rng.choice([0.1, 0.01, [0.1, 0.5]]),
        "scale": rng.choice([1.0, 1024.0, [64.0, 2.0]]),
    }
    return Input(model.text(outputs).encode(), {"step": options})
