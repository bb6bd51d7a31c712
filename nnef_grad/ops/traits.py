"""Facts about the operations of the standard, by name: each is stated here, once."""

from __future__ import annotations

from nnef_grad.graph.ir import STOP

# ---- What has no derivative ----

# They have no operands: there is nothing to differentiate.
SOURCES = frozenset({"external", "variable", "constant"})

COMPARISONS = frozenset({"lt", "gt", "le", "ge", "eq", "ne"})
LOGIC = frozenset({"and", "or", "not"})

# Truth values and indices: their results do not move with the operands.
DECISIONS = frozenset(
    {
        *COMPARISONS, *LOGIC, "any_reduce", "all_reduce", "argmax_reduce", "argmin_reduce",
        "argmax_pool",
    }
)  # fmt: skip

# Step functions: the derivative is zero wherever there is one. Their results are whole
# numbers.
STEPS = frozenset({"sign", "floor", "ceil", "round"})

# Their results do not move with their operands, as far as derivatives go.
FLAT = STEPS | {STOP}


# ---- Where values come from ----

# Their values come from outside of the graph.
FED = frozenset({"external", "variable"})

# Their values are those of the model, whatever it is fed.
DATA = frozenset({"variable", "constant"})

# Two of these are never the same tensor, however alike they look.
UNIQUE = frozenset({"external", "variable", "update"})


# ---- Element by element ----

# One operand; the result has its shape.
UNARY = frozenset(
    {
        "copy", "neg", "rcp", "exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "asin", "acos", "atan", "asinh", "acosh", "atanh", "abs", "not", "sqr", "sqrt",
        "rsqr", "rsqrt", "log2", "sigmoid", "relu", "leaky_relu", "elu", "selu", "gelu",
        "silu", "softabs", "softplus", "cast", *FLAT,
    }
)  # fmt: skip

# Several operands, which are broadcast to each other; each of them may be a literal.
BROADCASTING = frozenset(
    {
        "add", "sub", "mul", "div", "pow", "and", "or", "select", "min", "max", "clamp",
        *COMPARISONS,
    }
)  # fmt: skip

# An element of a result depends on no others than the elements at the same place.
ELEMENTWISE = UNARY | BROADCASTING | {"prelu", "add_n", "copy_n"}


# ---- Elements that move ----

# The result has the elements of the operand, in their order.
RESHAPING = frozenset({"reshape", "squeeze", "unsqueeze"})

# Or in another order.
ARRANGING = RESHAPING | {"transpose"}

# The elements of a result are elements of the operand, whatever they are.
MOVING = RESHAPING | {
    "transpose", "slice", "split", "concat", "stack", "unstack", "tile",
}  # fmt: skip

COPYING = frozenset({"copy", "copy_n", STOP})


# ---- Reductions and windows ----

# Along `axes`, which stay with extent 1.
REDUCTIONS = frozenset(
    {
        "sum_reduce", "mean_reduce", "max_reduce", "min_reduce",
        "argmax_reduce", "argmin_reduce", "any_reduce", "all_reduce",
    }
)  # fmt: skip

# Windows over one operand, which slide along all axes, batch and channels included.
POOLING = frozenset({"box", "avg_pool", "rms_pool", "max_pool", "argmax_pool"})

# Spatial axes by integer factors.
SAMPLING = frozenset(
    {
        "nearest_downsample",
        "area_downsample",
        "nearest_upsample",
        "multilinear_upsample",
    }
)

# Normalization by what lies in a window around an element.
LOCAL_NORMALIZATION = frozenset(
    {
        "local_response_normalization", "local_mean_normalization",
        "local_variance_normalization", "local_contrast_normalization",
    }
)  # fmt: skip

# Regions of interest: parts of feature maps.
REGIONS = frozenset(
    {"avg_roi_pool", "max_roi_pool", "roi_resample", "avg_roi_align", "max_roi_align"}
)


# ---- Weights ----

# The operands are input, filter and bias.
LAYERS = frozenset({"conv", "deconv", "linear"})

# An operand is a bias.
BIASED = LAYERS | {"separable_conv", "separable_deconv"}

# They sum products of elements of two operands.
PRODUCTS = LAYERS | {"matmul"}
