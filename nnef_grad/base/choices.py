"""The words that an argument or an option takes, which editors and shells complete.

Each is a string to a type checker, so that a variable may hold one; what else a string says is
refused, or means a fragment of the user's.
"""

from __future__ import annotations

from typing import Any, Literal, Union, get_args

Dialect = Union[Literal["nnef", "tract"], str]
Target = Union[
    Literal[
        "nnef", "khronos", "tract", "tract-standard", "onnx", "onnx-portable", "portable"
    ],
    str,
]  # fmt: skip
RuntimeName = Union[
    Literal["onnxruntime", "openvino", "tract", "khronos", "numpy", "fastest"], str
]
Loss = Union[
    Literal[
        "mean_squared_error", "mean_absolute_error", "huber", "hinge",
        "binary_cross_entropy", "sigmoid_cross_entropy", "categorical_cross_entropy",
        "softmax_cross_entropy", "softmax_cross_entropy_with_labels", "kullback_leibler",
        "cosine_similarity",
    ],
    str,
]  # fmt: skip
Optimizer = Union[
    Literal["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"], str
]


def words(choice: Any) -> tuple[str, ...]:
    """The words of a choice, in order."""
    literals = (part for part in get_args(choice) if part is not str)
    return tuple(word for literal in literals for word in get_args(literal))
