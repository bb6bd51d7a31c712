"""The rules of derivatives.nnef against torch: every operation, every broadcast, ties,
literals, order two.
"""

from __future__ import annotations

import pytest
import torch
from support import reference
from support.checks import check_gradients, check_twice, document

import nnef_grad

F64 = torch.float64


def unary(operation: str, attributes: str = "") -> str:
    return document(f"x = external(shape = [3, 4]);\ny = {operation}(x{attributes});")


def away_from_zero(x: torch.Tensor) -> torch.Tensor:
    return x + 0.1 * torch.sign(x)


def positive(x: torch.Tensor) -> torch.Tensor:
    return x.abs() + 0.1


def inside_one(x: torch.Tensor) -> torch.Tensor:
    return 0.9 * torch.tanh(x)


def above_one(x: torch.Tensor) -> torch.Tensor:
    return x.abs() + 1.1


UNARY = {
    "copy": None, "neg": None, "exp": None, "sin": None, "cos": None, "sinh": None, "cosh": None, "tanh": None, "atan": None,
    "asinh": None, "sqr": None, "sigmoid": None, "softplus": None, "silu": None, "gelu": None,
    "tan": inside_one, "asin": inside_one, "acos": inside_one, "atanh": inside_one, "acosh": above_one,
    "log": positive, "log2": positive, "sqrt": positive, "rsqrt": positive,
    "rcp": away_from_zero, "rsqr": away_from_zero, "abs": away_from_zero, "relu": away_from_zero, "elu": away_from_zero,
    "selu": away_from_zero, "sign": away_from_zero, "floor": None, "ceil": None, "round": None,
}  # fmt: skip


@pytest.mark.parametrize("operation", UNARY)
def test_unary(operation: str) -> None:
    check_gradients(unary(operation), transform=UNARY[operation])


@pytest.mark.parametrize("operation", UNARY)
def test_unary_twice(operation: str) -> None:
    check_twice(unary(operation), transform=UNARY[operation])


@pytest.mark.parametrize(
    ("operation", "attributes"),
    [
        ("elu", "alpha = 0.7"),
        ("selu", "alpha = 1.5, lambda = 1.25"),
        ("leaky_relu", "alpha = 0.125"),
        ("softabs", "epsilon = 0.25"),
        ("softmax", "axes = [0]"),
        ("softmax", "axes = [0, 1]"),
        ("softmax", "axes = [1]"),
    ],
)
def test_unary_with_attributes(operation: str, attributes: str) -> None:
    check_twice(unary(operation, f", {attributes}"), transform=away_from_zero)


def test_gelu_near_zero_and_far_away() -> None:
    points = torch.tensor(
        [0.0, 1e-9, -1e-5, 1e-3, 0.0099, 0.0101, -0.0101, 0.5, -5.0, 5.0, -30.0, 30.0],
        dtype=F64,
    )
    check_twice(
        document("x = external(shape = [12]);\ny = gelu(x);"), feeds={"x": points}
    )


@pytest.mark.parametrize(
    ("operation", "x", "gradient"),
    [
        ("sigmoid(x)", 1000.0, 0.0),
        ("sigmoid(x)", -1000.0, 0.0),
        ("tanh(x)", 1000.0, 0.0),
        ("softplus(x)", -1000.0, 0.0),
        ("softplus(x)", 1000.0, 1.0),
        ("silu(x)", 1000.0, 1.0),
    ],
)
def test_where_an_activation_saturates(
    operation: str, x: float, gradient: float
) -> None:
    text = document(f"x = external(shape = [1]);\ny = {operation};")
    emitted = nnef_grad.dumps(
        nnef_grad.differentiate(nnef_grad.loads(text), seed="ones")
    )
    (computed,) = reference.outputs(emitted, {"x": torch.tensor([x], dtype=F64)}, {})
    assert float(computed) == gradient


# Shapes align from the left: missing dimensions are trailing singletons.
BROADCASTS = [
    ([2, 3], [2, 3]), ([2, 3], [1, 3]), ([1, 3], [2, 3]), ([2, 3], [2]), ([2], [2, 3]), ([2, 3], [1]), ([1], [2, 3]),
    ([2, 3], [1, 1]), ([2, 3], []), ([], [2, 3]), ([], []), ([1], []), ([2, 1, 4], [1, 3, 1]), ([2, 3, 4, 5], [1, 3]),
    ([1, 3], [2, 3, 4, 5]), ([2, 3, 4, 5], [2, 1, 4]), ([2, 3, 4, 5], [1, 3, 1, 1]), ([2], [1, 3, 4, 2]), ([1, 3], [2, 1, 4]),
    ([1], [2, 3, 4, 5]), ([1, 1, 4], [2, 3]), ([2, 1], [2]),
]  # fmt: skip

BINARY = {
    "add": None, "sub": None, "mul": None, "max": None, "min": None, "div": away_from_zero, "pow": positive,
}  # fmt: skip


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("operation", BINARY)
def test_binary(operation: str, shapes: tuple[list[int], list[int]]) -> None:
    left, right = shapes
    text = document(
        f"x = external(shape = {left});\nw = external(shape = {right});\ny = {operation}(x, w);",
        "x, w",
    )
    check_gradients(text, transform=BINARY[operation])


@pytest.mark.parametrize("shapes", BROADCASTS[::4], ids=str)
@pytest.mark.parametrize("operation", BINARY)
def test_binary_twice(operation: str, shapes: tuple[list[int], list[int]]) -> None:
    left, right = shapes
    text = document(
        f"x = external(shape = {left});\nw = external(shape = {right});\ny = {operation}(x, w);",
        "x, w",
    )
    check_twice(text, transform=BINARY[operation])


@pytest.mark.parametrize("operation", BINARY)
def test_the_same_tensor_on_both_sides(operation: str) -> None:
    check_gradients(
        document(f"x = external(shape = [2, 3]);\ny = {operation}(x, x);"),
        transform=positive,
    )


@pytest.mark.parametrize(
    "operands", ["x, 1.5", "1.5, x", "x, -2.0", "0.5, x", "x, 1.0", "x, 3.0"]
)
@pytest.mark.parametrize("operation", BINARY)
def test_a_literal_operand(operation: str, operands: str) -> None:
    check_twice(
        document(f"x = external(shape = [2, 3]);\ny = {operation}({operands});"),
        transform=positive,
    )


@pytest.mark.parametrize("comparison", ["lt", "gt", "le", "ge", "eq", "ne"])
def test_comparisons_have_no_derivative_and_select_passes_it_on(
    comparison: str,
) -> None:
    text = document(
        "x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\n"
        f"m = {comparison}(x, w);\nn = not(m);\no = or(m, n);\na = and(m, o);\ny = select(a, x, w);",
        "x, w",
    )
    check_twice(text)


@pytest.mark.parametrize(
    "shapes",
    [
        ([2, 3], [2, 3], [2, 3]),
        ([2], [2, 3], [1, 3]),
        ([2, 3, 4], [1, 3], [2]),
        ([], [2], [2, 2]),
    ],
)
def test_select_broadcasts_each_operand(
    shapes: tuple[list[int], list[int], list[int]],
) -> None:
    condition, true_value, false_value = shapes
    text = document(
        f"c = external<logical>(shape = {condition});\nt = external(shape = {true_value});\n"
        f"f = external(shape = {false_value});\ny = select(c, t, f);",
        "c, t, f",
    )
    check_twice(text)


@pytest.mark.parametrize(
    "shapes",
    [
        ([2, 3], [2, 3], [2, 3]),
        ([2, 3], [1, 3], [2]),
        ([2], [2, 3], [1, 3]),
        ([2, 3], [], [1]),
    ],
)
def test_clamp_broadcasts_each_operand(
    shapes: tuple[list[int], list[int], list[int]],
) -> None:
    x, a, b = shapes
    text = document(
        f"x = external(shape = {x});\na = external(shape = {a});\nb = external(shape = {b});\ny = clamp(x, a, b);",
        "x, a, b",
    )
    check_gradients(text)


@pytest.mark.parametrize("alpha", [[], [1], [1, 3], [2, 3, 4], [2], [1, 1, 4]])
def test_prelu(alpha: list[int]) -> None:
    text = document(
        f"x = external(shape = [2, 3, 4]);\na = external(shape = {alpha});\ny = prelu(x, a);",
        "x, a",
    )
    check_twice(text)


@pytest.mark.parametrize(
    "flags",
    [
        "",
        ", transposeA = true",
        ", transposeB = true",
        ", transposeA = true, transposeB = true",
    ],
)
@pytest.mark.parametrize(
    "batch", [([], []), ([2], [2]), ([2], [1]), ([1, 3], [2, 1])], ids=str
)
def test_matmul(flags: str, batch: tuple[list[int], list[int]]) -> None:
    left = [*batch[0], *([4, 3] if "transposeA" in flags else [3, 4])]
    right = [*batch[1], *([5, 4] if "transposeB" in flags else [4, 5])]
    text = document(
        f"x = external(shape = {left});\nw = external(shape = {right});\ny = matmul(x, w{flags});",
        "x, w",
    )
    check_twice(text)


@pytest.mark.parametrize("bias", [[], [1], [1, 1], [1, 4]], ids=str)
def test_linear(bias: list[int]) -> None:
    text = document(
        "x = external(shape = [3, 5]);\nw = variable(shape = [4, 5], label = 'w');\n"
        f"b = variable(shape = {bias}, label = 'b');\ny = linear(x, w, b);"
    )
    check_twice(text, shapes=bias not in ([1], [1, 1]))


def test_linear_without_bias() -> None:
    check_twice(
        document(
            "x = external(shape = [3, 5]);\nw = variable(shape = [4, 5], label = 'w');\ny = linear(x, w);"
        )
    )


PARAMETERS = {"m": "mean", "v": "variance", "o": "offset", "s": "scale"}


@pytest.mark.parametrize("shape", [[1, 3], [1, 3, 1], [], [2, 3, 4], [2]], ids=str)
def test_batch_normalization(shape: list[int]) -> None:
    variables = "\n".join(
        f"{name} = variable(shape = {shape}, label = '{name}');" for name in PARAMETERS
    )
    text = document(
        f"x = external(shape = [2, 3, 4]);\n{variables}\ny = batch_normalization(x, m, v, o, s, epsilon = 0.01);"
    )
    check_twice(text, variables={"v": torch.rand(shape, dtype=F64) + 0.5})


def test_batch_normalization_with_literals() -> None:
    text = document(
        "x = external(shape = [2, 3, 4]);\nm = variable(shape = [1, 3], label = 'm');\n"
        "y = batch_normalization(x, m, 2.0, 0.5, 1.0, epsilon = 0.0);"
    )
    check_twice(text)


@pytest.mark.parametrize(
    "operation",
    [
        "l1_normalization(x, axes = [1], bias = 0.5)",
        "l2_normalization(x, axes = [0, 2], epsilon = 0.01)",
        "local_response_normalization(x, size = [1, 3, 1], alpha = 0.5, beta = 0.75, bias = 2.0)",
        "local_mean_normalization(x, size = [1, 1, 3])",
        "local_variance_normalization(x, size = [1, 1, 3], bias = 0.1, epsilon = 0.01)",
        "local_contrast_normalization(x, size = [1, 1, 3], bias = 0.1, epsilon = 0.01)",
    ],
)
def test_normalizations_follow_from_their_bodies(operation: str) -> None:
    check_twice(
        document(f"x = external(shape = [2, 3, 4]);\ny = {operation};"),
        transform=away_from_zero,
        tolerance=1e-8,
    )


def test_copies_and_sums_of_many() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nw = external(shape = [2, 3]);\n[a, b, c] = copy_n(x, times = 3);\n"
        "s = mul(a, b);\nt = add_n([s, c, w, w]);\ny = mul(t, t);",
        "x, w",
    )
    check_twice(text)


def test_update_passes_the_gradient_to_its_value() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nv = variable(shape = [2, 3], label = 'v');\nw = mul(x, v);\ny = update(v, w);"
    )
    check_gradients(text)


def test_cast_between_scalars() -> None:
    check_gradients(
        document("x = external(shape = [2, 3]);\nc = cast<scalar>(x);\ny = mul(c, c);")
    )
