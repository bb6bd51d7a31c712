"""Models in tract's dialect whose batch is a symbol."""

from __future__ import annotations

HEAD = """\
version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;

graph net( x ) -> ( y )
{
"""
DENSE = """
    x = external(shape = [B, 3]);
    w = variable(shape = [4, 3], label = 'w');
    b = variable(shape = [1, 4], label = 'b');
    h = tanh(linear(x, w, b));
"""
IMAGE = """
    x = external(shape = [B, 3, 8, 8]);
    w = variable(shape = [4, 3, 3, 3], label = 'w');
    b = variable(shape = [1, 4], label = 'b');
    h = conv(x, w, b, padding = [(1, 1), (1, 1)]);
"""
BY_TWO = "size = [1, 1, 2, 2], stride = [1, 1, 2, 2]"
MODELS = {
    "softmax": DENSE + "y = softmax(h, axes = [1]);",
    "mean": DENSE + "y = mean_reduce(h, axes = [0]);",
    "mean_of_all": DENSE + "y = mean_reduce(h * h, axes = [0, 1]);",
    "mean_of_products": DENSE
    + """u = variable(shape = [5, 4], label = 'u');
         y = mean_reduce(linear(h, u, 0.0), axes = [0]);""",
    "moments": DENSE + "m, v = moments(h, axes = [0]); y = (h - m) / sqrt(v + 0.1);",
    "broadcast": DENSE + "y = h * (mean_reduce(h, axes = [0]) + 1.0);",
    "tile": DENSE + "y = tile(sum_reduce(h, axes = [0]), repeats = [B, 1]) * h;",
    "tract_broadcast": DENSE
    + "y = tract_core_broadcast(sum_reduce(h, axes = [0]), shape = [B, 4]) * h;",
    "concat": DENSE + "y = concat([h, h * h], axis = 0);",
    "first": DENSE + "y = slice(h, axes = [0], begin = [0], end = [1]);",
    "last": DENSE + "y = slice(h, axes = [0], begin = [-1], end = [B]);",
    "outer": DENSE + "y = matmul(h, h, transposeB = true);",
    "inner": DENSE + "y = matmul(h, h, transposeA = true);",
    "flat": DENSE + "y = reshape(h, shape = [B * 4]);",
    "rest": DENSE + "y = reshape(h, shape = [-1, 2]);",
    "last_axis": DENSE + "y = reshape(transpose(h, axes = [1, 0]), shape = [2, 2, B]);",
    "shape_of": DENSE
    + """s = tract_core_shape_of(h);
         n = squeeze(slice(s, axes = [0], begin = [0], end = [1]), axes = [0]);
         y = reshape(h, shape = [n, 2, 2]) / tract_core_cast(n, to = 'f32');""",
    "maximum": DENSE + "y = max_reduce(h, axes = [0]) * max_reduce(h, axes = [1]);",
    "select": DENSE + "y = select(h > 0.0, h, h * 0.1);",
    "stack": DENSE + "y = stack([h, h * h], axis = 1);",
    "split": DENSE + "a, c = split(h, axis = 1, ratios = [1, 1]); y = a * c;",
    "pad": DENSE + "y = pad(h, padding = [(0, 0), (1, 1)]);",
    "pad_batch": DENSE + "y = pad(h, padding = [(1, 1), (0, 0)]);",
    "embedding": """
        x = external(shape = [B, 3]);
        i = tract_core_cast(argmax_reduce(x, axes = [1]), to = 'i64');
        w = variable(shape = [7, 3], label = 'w');
        y = tract_core_gather(w, squeeze(i, axes = [1]), axis = 0) * x;""",
    "attention": """
        x = external(shape = [B, 5, 8]);
        w = variable(shape = [1, 8, 8], label = 'w');
        q = reshape(matmul(x, w), shape = [B, 5, 2, 4]);
        t = transpose(q, axes = [0, 2, 1, 3]);
        s = softmax(matmul(t, t, transposeB = true) * 0.5, axes = [3]);
        y = reshape(transpose(matmul(s, t), axes = [0, 2, 1, 3]), shape = [B, 5, 8]);""",
    "rows": """
        x = external(shape = [B, 5, 8]);
        w = variable(shape = [8, 3], label = 'w');
        y = reshape(matmul(reshape(x, shape = [B * 5, 8]), w), shape = [B, 5, 3]);""",
    "conv": IMAGE + "y = relu(h);",
    "strided": IMAGE.replace("padding", "stride = [2, 2], padding") + "y = tanh(h);",
    "depthwise": """
        x = external(shape = [B, 4, 8, 8]);
        w = variable(shape = [4, 1, 3, 3], label = 'w');
        y = conv(x, w, 0.0, groups = 0, padding = [(1, 1), (1, 1)]);""",
    "deconv": """
        x = external(shape = [B, 4, 4, 4]);
        w = variable(shape = [3, 4, 3, 3], label = 'w');
        y = deconv(x, w, 0.0, padding = [(1, 1), (1, 1)], stride = [2, 2]);""",
    "max_pool": IMAGE + f"y = max_pool(relu(h), {BY_TWO}, border = 'ignore');",
    "avg_pool": IMAGE + f"y = avg_pool(h, {BY_TWO}, border = 'constant');",
    "classifier": IMAGE
    + """u = variable(shape = [5, 256], label = 'u');
         y = linear(reshape(h, shape = [B, 256]), u, 0.0);""",
    "batch_norm": IMAGE
    + """m = variable(shape = [1, 4], label = 'm');
         v = variable(shape = [1, 4], label = 'v');
         y = batch_normalization(h, m, v * v, b, b, epsilon = 0.1);""",
    "upsample": IMAGE + "y = nearest_upsample(h, factor = [2, 2]);",
    "group_norm": IMAGE
    + """m, v = moments(reshape(h, shape = [B, 2, 128]), axes = [2]);
         t = reshape(h, shape = [B, 2, 128]);
         y = reshape((t - m) * rsqrt(v + 0.1), shape = [B, 4, 8, 8]);""",
}


def document(statements: str) -> str:
    return f"{HEAD}    {statements}\n}}\n"
