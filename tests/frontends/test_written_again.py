"""Documents of tract that are read and written again: tract loads them, and takes and returns
what it did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tract

import nnef_grad

HEAD = "version 1.0;\nextension tract_registry tract_core;\n"
X = "x = external(shape = [1, 2, 4, 4]);"
WINDOW = "shape = [1, 2, 2, 2]"
INTEGERS = "i = tract_core_external(shape = [3], datum_type = 'i64');"
HALVES = "h = tract_core_external(shape = [2, 3], datum_type = 'f16');"

# What tract has no operation of the standard for.
BODIES = {
    "arrays": f"{X} y = mul(x, [[[[0.5]], [[2.0]]]]);",
    "equal numbers": f"{X} y = mul(x, tract_core_broadcast(0.5, shape = [1, 2, 4, 4]));",
    "an integer array": (
        f"{X} y = tract_core_gather(x, tract_core_cast([3, 0, 3], to = 'i64'), axis = 2);"
    ),
    "a truth value": f"{X} y = select([[[[true, false, true, true]]]], x, 0.0);",
    "an image": (
        f"{X} y = tract_core_resize(x, sizes = [1, 2, 8, 8], interpolator = 'nearest', "
        "coord_transformer = 'asymmetric', nearest_mode = 'floor');"
    ),
    "integers": f"{INTEGERS} y = add(sign(i), i);",
    "integers as numbers": f"{INTEGERS} y = mul(tract_core_cast(i, to = 'f32'), 0.5);",
    "half precision": f"{HALVES} y = softmax(mul(h, 0.5), axes = [1]);",
    "half precision at the end": f"{X} y = tract_core_cast(exp(x), to = 'f16');",
    "single precision at the end": f"{HALVES} y = tract_core_cast(exp(h), to = 'f32');",
    "half and single precision": (
        f"{HALVES} s = tract_core_cast(h, to = 'f32'); y = add(h, s);"
    ),
    "integers of 32 bits": (
        "i = tract_core_external(shape = [3], datum_type = 'i32'); y = add(i, i);"
    ),
    "a product in single precision": (
        f"{HALVES} y = tract_core_einsum([h, h], expr = 'ij,kj->ik', acc = 'f32');"
    ),
    "indices": f"{HALVES} y = argmax_reduce(h, axes = [1]);",
}
FRAGMENT = """
fragment twice( a: tensor<scalar>, b: tensor<scalar> ) -> ( c: tensor<scalar> )
{
    s = tract_core_cast(a, to = "f32");
    c = tract_core_cast(s + s, to = "f16");
}
"""


def document(body: str, fragments: str = "") -> str:
    name = body.split()[0]
    return f"{HEAD}{fragments}\ngraph net( {name} ) -> ( y )\n{{\n{body}\n}}\n"


def run(folder: Path) -> Any:
    model = tract.nnef().load(str(folder))
    *shape, kind = str(model.input_fact(0)).lower().split(",")
    values = np.random.default_rng(0).normal(size=[*map(int, shape)])
    word = kind[0] + str(int(kind[1:]) // 8)
    (y,) = model.into_runnable().run([(3 * values).astype(word)])
    return y.to_numpy()


def check(text: str, folder: Path) -> None:
    for name in ("first", "second", "third"):
        (folder / name).mkdir()
    (folder / "first" / "graph.nnef").write_text(text)
    wanted = run(folder / "first")
    for source, made in (("first", "second"), ("second", "third")):
        graph = nnef_grad.load(folder / source)
        (folder / made / "graph.nnef").write_text(nnef_grad.dumps(graph))
        found = run(folder / made)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        close = 2e-3 if "f16" in text else 1e-6
        np.testing.assert_allclose(found, wanted, rtol=close, atol=close)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_tract_reads_what_is_written(body: str, tmp_path: Path) -> None:
    check(document(body), tmp_path)


def test_types_in_fragments(tmp_path: Path) -> None:
    check(document(f"{HALVES} y = twice(h, h);", FRAGMENT), tmp_path)


@pytest.mark.parametrize("name", ["arrays", "half precision"])
def test_other_targets_have_the_standard(name: str) -> None:
    graph = nnef_grad.loads(document(BODIES[name]))
    assert "tract" not in nnef_grad.dumps(nnef_grad.lower(graph, "nnef").graph)


def test_derivatives_are_standard() -> None:
    graph = nnef_grad.loads(document(BODIES["arrays"]))
    assert "tract" not in nnef_grad.dumps(nnef_grad.differentiate(graph))


def test_variables_in_half_precision(tmp_path: Path) -> None:
    body = f"{HALVES} w = variable(shape = [2, 3], label = 'w'); y = mul(h, w);"
    for name in ("given", "first"):
        (tmp_path / name).mkdir()
    (tmp_path / "given" / "graph.nnef").write_text(document(body))
    graph = nnef_grad.loads(document(body))
    w = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float16)
    nnef_grad.save(graph, tmp_path / "first", data={"w": w}, overwrite=True)
    graph = nnef_grad.load(tmp_path / "first")
    nnef_grad.save(
        graph, tmp_path / "made", data=nnef_grad.load_data(tmp_path / "first")
    )
    found, wanted = (run(tmp_path / name) for name in ("made", "first"))
    assert found.dtype == wanted.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_codes_that_tract_computes_with() -> None:
    """A copy from a tensor with quantization info is a conversion, as it was."""
    body = "x = external(shape = [2]); q = tract_core_cast(x); y = tract_core_cast(q, to = 'f32');"
    info = '"q": zero_point_linear_quantize(zero_point = 0, scale = 0.1, bits = 8, signed = false, symmetric = false);'
    graph = nnef_grad.loads(document(body), quant=info)
    text = nnef_grad.dumps(graph)
    assert "q = tract_core_cast(x);" in text
    assert "y = tract_core_cast(q, to = 'f32');" in text
    assert nnef_grad.loads(text, quant=info) == graph


def test_what_is_no_number() -> None:
    """tract writes NaN, and does not read it."""
    graph = nnef_grad.loads(document(f"{X} n = NaN; y = select(x < 0.0, n, x);"))
    x = np.linspace(-1, 1, 32).reshape(1, 2, 4, 4)
    found = nnef_grad.evaluate(graph, {"x": x})["y"]
    np.testing.assert_array_equal(found, np.where(x < 0, np.nan, x))
