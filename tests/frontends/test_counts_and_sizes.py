"""What networks of tract compute of their sizes: counts that go on after a cache, and ends of slices
by truncation. Results are those of tract, gradients those of differences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tract

import nnef_grad

HEAD = "version 1.0;\nextension tract_registry tract_core;\n"

# Positions after those of a cache, and the length of both together by the first of them.
COUNT = f"""{HEAD}
extension tract_symbol S, P;

graph net( x, cache ) -> ( y, mask )
{{
    x = tract_core_external(shape = [2, S], datum_type = 'f32');
    cache = tract_core_external(shape = [2, P], datum_type = 'f32');
    p = squeeze(slice(tract_core_shape_of(cache), axes = [0], begin = [1], end = [2]), axes = [0]);
    s = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [1], end = [2]), axes = [0]);
    places = tract_core_range(p, p + s, step = 1);
    y = x * unsqueeze(tract_core_cast(places, to = 'f32'), axes = [0]);
    first = squeeze(slice(places, axes = [0], begin = [1], end = [2]), axes = [0]);
    mask = tile(reduced, repeats = [1, add(first, s)]);
}}
"""
COUNT = COUNT.replace(
    "    mask =", "    reduced = sum_reduce(cache, axes = [1]);\n    mask ="
)

HALF = f"""{HEAD}
extension tract_symbol S;

fragment trunc( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{{
    y = select(x < 0, ceil(x), floor(x));
}}

graph net( x ) -> ( y )
{{
    x = tract_core_external(shape = [3, S], datum_type = 'f32');
    size = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [1], end = [2]), axes = [0]);
    end = trunc(div(size, 2));
    y = square(slice(x, axes = [1], begin = [0], end = [end]));
}}
"""


def in_tract(text: str, fed: dict[str, Any], folder: Path) -> list[Any]:
    (folder / "graph.nnef").write_text(text, "utf-8")
    runnable = tract.nnef().load(str(folder)).into_runnable()
    return [y.to_numpy() for y in runnable.run([*fed.values()])]


@pytest.mark.parametrize(("cached", "new"), [(1, 4), (5, 2), (3, 3)])
def test_counts_after_a_cache(cached: int, new: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    fed: dict[str, Any] = {
        name: rng.normal(size=(2, n)).astype(np.float32)
        for name, n in {"x": new, "cache": cached}.items()
    }
    graph = nnef_grad.loads(COUNT)
    found = nnef_grad.evaluate(graph, fed)
    for own, wanted in zip(found.values(), in_tract(COUNT, fed, tmp_path), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5)
    sized = nnef_grad.loads(COUNT, symbols={"S": new, "P": cached})
    gradients = [nnef_grad.differentiate(g) for g in (graph, sized)]
    checked = nnef_grad.check(sized, gradients[1])
    assert {row.verdict for row in checked.gradients} == {"ok"}
    fed |= {f"grad_{n}": rng.normal(size=y.shape) for n, y in found.items()}
    for own, wanted in zip(
        *(nnef_grad.evaluate(b.graph, fed).values() for b in gradients), strict=True
    ):
        np.testing.assert_allclose(own, wanted, rtol=1e-6)


def test_the_last_number_of_a_count_is_computed() -> None:
    """-1 to 0 is not from the first one on."""
    text = f"{HEAD}extension tract_symbol S; graph net( x ) -> ( y ) {{"
    text += (
        " x = external(shape = [S]); n = squeeze(tract_core_shape_of(x), axes = [0]);"
    )
    text += " places = tract_core_range(2, n + 2, step = 1);"
    text += " last = slice(places, axes = [0], begin = [n - 1], end = [n]);"
    text += " y = x * tract_core_cast(last, to = 'f32'); }"
    found = nnef_grad.evaluate(nnef_grad.loads(text), {"x": np.ones(4)})
    np.testing.assert_allclose(found["y"], np.full(4, 5.0))


@pytest.mark.parametrize("size", [4, 7])
def test_ends_of_slices_by_truncation(size: int, tmp_path: Path) -> None:
    x = np.random.default_rng(2).normal(size=(3, size)).astype(np.float32)
    graph = nnef_grad.loads(HALF)
    (found,) = nnef_grad.evaluate(graph, {"x": x}).values()
    (wanted,) = in_tract(HALF, {"x": x}, tmp_path)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    dy = np.ones_like(found)
    backward = nnef_grad.differentiate(graph).graph
    (dx,) = nnef_grad.evaluate(backward, {"x": x, "grad_y": dy}).values()
    slope = np.zeros((3, size))
    slope[:, : size // 2] = 2 * x[:, : size // 2]
    np.testing.assert_allclose(dx, slope, rtol=1e-6)


QUANTIZED = f"""{HEAD}
graph net( x ) -> ( y )
{{
    x = external(shape = [2, 3]);
    v = tract_core_cast(x);
    y = mul(v, v);
}}
"""
INFO = "zero_point_linear_quantize(zero_point = 0, scale = 0.1, bits = 8, signed = false, symmetric = false);"


def test_a_cast_to_what_quantization_info_says() -> None:
    """Its type is no other: the info says what the numbers are rounded to."""
    graph = nnef_grad.loads(QUANTIZED, quant=f'"v": {INFO}')
    assert [*graph.quantization] == ["v"]
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
    assert {row.verdict for row in checked.gradients} == {"ok"}
    with pytest.raises(nnef_grad.InvalidGraphError, match="it has no type"):
        nnef_grad.loads(QUANTIZED, quant=f'"y": {INFO}')


def test_arrays_within_an_array_are_joined() -> None:
    text = f"{HEAD}graph net( x ) -> ( y, z ) {{ x = external(shape = [3, 1, 2]);"
    text += " n = [1, 2]; y = sqr(reshape(x, shape = [1, n, 3]));"
    text += " z = tile(x, repeats = [n, 1]); }"
    graph = nnef_grad.loads(text)
    assert [y.shape for y in graph.outputs] == [(1, 1, 2, 3), (3, 2, 2)]


def test_fragments_make_no_inputs() -> None:
    text = f"{HEAD}fragment more(x: tensor<scalar>) -> (y: tensor<scalar>)\n"
    text += "{ y = x * external(shape = [3]); }\n"
    text += (
        "graph net( x ) -> ( y )\n{ x = external(shape = [3]);\n    y = more(x);\n}\n"
    )
    with pytest.raises(nnef_grad.InvalidGraphError, match="makes no inputs") as caught:
        nnef_grad.loads(text)
    assert "<string>:4:" in str(caught.value)


def test_quantization_info_is_no_business_of_tract(tmp_path: Path) -> None:
    """A gradient in it is computed in floating point: tract adds no codes to numbers."""
    graph = nnef_grad.loads(QUANTIZED, quant=f'"v": {INFO}\n"y": {INFO}')
    lowered = nnef_grad.lower(nnef_grad.differentiate(graph).graph, "tract")
    nnef_grad.save(lowered.graph, tmp_path / "backward", data=lowered.data)
    x = np.linspace(0, 2, 6, dtype=np.float32).reshape(2, 3)
    text = (tmp_path / "backward" / "graph.nnef").read_text("utf-8")
    folder = tmp_path / "again"
    folder.mkdir()
    assert not (tmp_path / "backward" / "graph.quant").exists()
    (dx,) = in_tract(text, {"x": x, "dy": np.ones_like(x)}, folder)
    np.testing.assert_allclose(dx, 2 * x, rtol=1e-6)


def test_quantization_info_of_numbers() -> None:
    """tract writes it of weights that its document has as numbers, which are no tensors here."""
    text = (
        f"{HEAD}graph net( x ) -> ( y )\n{{\n    x = external(shape = [1, 1, 4]);\n"
        "    w = [[[1.0, 2.0]]];\n    y = conv(x, w, 0.0, padding = [(0, 0)]);\n}\n"
    )
    quant = f'"w": {INFO}\n"x": {INFO}'
    graph = nnef_grad.loads(text, quant=quant)
    assert [*graph.quantization] == ["x"]
    with pytest.raises(nnef_grad.InvalidGraphError, match="no tensor 'v'"):
        nnef_grad.loads(text, quant=f'"v": {INFO}')


def symbols_spelled(*symbols: str) -> str:
    lines = "".join(f"extension tract_symbol {symbol};\n" for symbol in symbols)
    body = "x = external(shape = [2, __1]); y = tanh(x);"
    return f"{HEAD}{lines}graph net( x ) -> ( y ) {{ {body} }}"


def test_symbols_are_spelled_with_underscores() -> None:
    """As tract writes them without extended identifiers: their lines have the names."""
    graph = nnef_grad.loads(symbols_spelled("♥1"), symbols={"♥1": 3})
    assert graph.inputs[0].shape == (2, 3)
    graph = nnef_grad.loads(symbols_spelled("♥1"))
    again = nnef_grad.loads(nnef_grad.dumps(nnef_grad.differentiate(graph)))
    assert again.inputs[0].shape == graph.inputs[0].shape
    sized = nnef_grad.loads(symbols_spelled("♥1"), input_shapes={"x": (2, 5)})
    assert sized.inputs[0].shape == (2, 5)


def test_a_symbol_of_the_spelling_is_meant() -> None:
    sizes = {"♥1": 3, "__1": 4}
    graph = nnef_grad.loads(symbols_spelled("♥1", "__1"), symbols=sizes)
    assert graph.inputs[0].shape == (2, 4)
