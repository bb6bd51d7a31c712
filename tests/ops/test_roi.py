"""Regions of interest: what they are put together from, against the oracle's loops over
regions and cells.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support import reference
from support.checks import Checked, check_gradients, check_twice, close, document
from support.khronos_interpreter import interpreted

import nnef_grad
from nnef_grad.emit.regions import FORMULAS
from nnef_grad.language.check_document import check_fragments
from nnef_grad.language.library import with_fragments

F64 = torch.float64
METHODS = ("symmetric", "asymmetric", "aligned")


def model(operation: str, shape: Sequence[int], count: int, column: bool = True) -> str:
    """A graph of one operation on feature maps x, with a number of regions r in the items
    i of the batch.
    """
    index = [count, 1] if column else [count]
    return document(
        f"x = external(shape = {list(shape)});\n"
        f"r = external(shape = [{count}, {2 * len(shape) - 4}]);\n"
        f"i = external<integer>(shape = {index});\n"
        f"y = {operation};",
        "x, r, i",
    )


def called(
    operation: str, size: Sequence[int], rate: int = 2, **attributes: str
) -> str:
    """The text of an operation; the align operations take samples."""
    given = [f"output_size = {list(size)}"]
    if "align" in operation:
        given.append(f"sampling_rate = {[rate] * len(size)}")
    given += [f"{name} = '{value}'" for name, value in attributes.items()]
    return f"{operation}(x, r, i, {', '.join(given)})"


def check(
    operation: str,
    shape: Sequence[int],
    regions: Sequence[Sequence[float]],
    items: Sequence[int] = (),
    x: torch.Tensor | None = None,
    **options: Any,
) -> None:
    """Compares the result and the gradients, of order two as well."""
    text = model(operation, shape, len(regions))
    feeds = fed(text, regions, items, x)
    check_results(text, feeds)
    check_twice(text, feeds=feeds, shapes=is_inferred(operation), **options)


def fed(
    text: str,
    regions: Sequence[Sequence[float]],
    items: Sequence[int] = (),
    x: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """The inputs: feature maps at random, if they are not given, and an item for each
    region, if not given either.
    """
    declared = reference.signature(text).inputs
    batch = declared["x"][1][0]
    index = items or [number % batch for number in range(len(regions))]
    random_feeds, _ = reference.random_feeds(text, torch.Generator().manual_seed(1))
    return {
        "x": random_feeds["x"] if x is None else x,
        "r": torch.tensor(regions, dtype=F64),
        "i": torch.tensor(index).reshape(declared["i"][1]),
    }


def is_inferred(operation: str) -> bool:
    """Whether the Khronos inference accepts the gradients: not those of a maximum pool,
    by which a maximum of samples is taken.
    """
    return "max_roi_align" not in operation


def gradients(
    operation: str,
    shape: Sequence[int],
    regions: Sequence[Sequence[float]],
    x: torch.Tensor | None = None,
) -> Checked:
    """The gradients and what they were computed from."""
    text = model(operation, shape, len(regions))
    feeds = fed(text, regions, x=x)
    return check_gradients(text, feeds=feeds, shapes=is_inferred(operation))


def check_results(text: str, feeds: dict[str, torch.Tensor]) -> None:
    """What stands in place of the operation computes the same."""
    backward = nnef_grad.differentiate(
        nnef_grad.loads(text), with_outputs=True, seed="ones"
    )
    *_, actual = reference.outputs(nnef_grad.dumps(backward), feeds, {})
    (expected,) = reference.outputs(text, feeds, {})
    close(actual, expected, 1e-12, "the result")


# Along one, two and three axes; one region and several; one item and several; an extent
# of 1. The regions lie inside, partly outside and all outside; their corners are rounded
# up and down, and one is in the wrong order.
SETTINGS: list[tuple[list[int], list[list[float]], list[int]]] = [
    ([2, 3, 7], [[1.23, 5.71], [-2.41, 3.59], [3.97, 11.3], [9.1, 12.2]], [3]),
    ([1, 2, 7], [[5.17, 2.29], [0.31, 7.43], [-6.2, -1.3]], [2]),
    ([2, 3, 6, 8], [[0.43, 1.71, 5.67, 4.23], [-1.19, 2.13, 9.37, 4.41], [1.11, 0.23, 2.63, 7.79]], [2, 3]),
    ([1, 2, 5, 4], [[0.43, 1.71, 4.67, 3.23], [0.83, 0.17, 4.29, 3.91]], [3, 1]),
    ([1, 2, 5, 4], [[0.43, 1.71, 4.67, 3.23]], [1, 2]),
    ([3, 2, 4, 4], [[0.23, 0.71, 3.61, 3.29]], [2, 2]),
    ([2, 1, 1, 5], [[-0.71, 0.23, 1.97, 5.41], [0.13, 1.29, 0.83, 3.37]], [2, 2]),
    ([2, 2, 4, 5, 3], [[0.31, -0.67, 0.83, 3.71, 4.13, 2.97], [1.27, 1.33, -0.43, 9.61, 3.89, 2.23]], [2, 2, 3]),
    ([1, 2, 3, 4, 2], [[0.31, -0.67, 0.83, 3.71, 4.13, 1.97], [0.29, 1.31, -0.43, 2.67, 3.83, 2.23]], [3, 1, 1]),
]  # fmt: skip

OPERATIONS = (
    "roi_resample",
    "avg_roi_pool",
    "max_roi_pool",
    "avg_roi_align",
    "max_roi_align",
)


@pytest.mark.parametrize(("shape", "regions", "size"), SETTINGS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_regions(
    operation: str, shape: list[int], regions: list[list[float]], size: list[int]
) -> None:
    check(called(operation, size), shape, regions)


@pytest.mark.parametrize(("shape", "regions", "size"), SETTINGS[::2])
@pytest.mark.parametrize("method", METHODS)
def test_methods_of_sampling(
    method: str, shape: list[int], regions: list[list[float]], size: list[int]
) -> None:
    check(called("roi_resample", size, method=method), shape, regions)
    check(called("avg_roi_align", size, resize_method=method), shape, regions)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_items_in_a_row_of_their_own_or_not(operation: str) -> None:
    shape, regions, size = SETTINGS[2]
    for items in ([0, 0, 1], [1, 1, 1]):
        check(called(operation, size), shape, regions, items)
        text = model(called(operation, size), shape, len(regions), column=False)
        feeds = fed(text, regions, items)
        check_twice(text, feeds=feeds, shapes=is_inferred(operation))


@pytest.mark.parametrize("wrt", ["x", "r"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_with_respect_to_one_of_them(operation: str, wrt: str) -> None:
    shape, regions, size = SETTINGS[2]
    check(called(operation, size), shape, regions, wrt=[wrt])


@pytest.mark.parametrize("operation", ["avg_roi_pool", "max_roi_pool"])
def test_a_pool_does_not_move_with_its_corners(operation: str) -> None:
    text = model(called(operation, [2, 3]), [2, 3, 6, 8], 3)
    backward = nnef_grad.differentiate(nnef_grad.loads(text), wrt=["r"])
    assert backward.warnings == ("'r' does not influence 'y': its gradient is zeros",)


# ---- Cells ----


@pytest.mark.parametrize("operation", ["avg_roi_pool", "max_roi_pool"])
@pytest.mark.parametrize(
    ("region", "count"),
    # Cells that overlap, share one element, are empty, or lie where no element is.
    [([0, 5], 3), ([1, 6], 4), ([2, 4], 5), ([3, 3], 2), ([5, 2], 2), ([5, 2], 1),
     ([-4, -1], 2), ([8, 12], 3), ([-3, 10], 4), ([0, 7], 7), ([6, 7], 1), ([4, 4], 1)],
)  # fmt: skip
def test_cells(operation: str, region: list[int], count: int) -> None:
    check(called(operation, [count]), [1, 2, 7], [region, [0, 7]])
    check(
        called(operation, [count, 2]), [2, 1, 7, 4], [[region[0], 1, region[1], 4]] * 3
    )


@pytest.mark.parametrize("operation", ["avg_roi_pool", "max_roi_pool"])
def test_an_empty_cell_is_zero_and_has_no_gradient(operation: str) -> None:
    shape, regions = [1, 1, 4, 4], [[2, 1, 2, 3], [1, 3, 3, 3], [5, 0, 8, 4]]
    x = -torch.ones(shape, dtype=F64)
    checked = gradients(called(operation, [2, 2]), shape, regions, x=x)
    assert checked.gradients["x"].abs().max() == 0.0
    text = model(called(operation, [2, 2]), shape, len(regions))
    assert reference.outputs(text, checked.feeds, {})[0].abs().max() == 0.0


def test_halves_of_corners_are_rounded_up() -> None:
    regions = [[0.5, 3.5], [1.5, 2.5], [-0.5, 4.5], [-1.5, 1.5], [2.49, 5.51]]
    for operation in ("avg_roi_pool", "max_roi_pool"):
        check(called(operation, [2]), [1, 2, 6], regions)


@pytest.mark.parametrize(
    ("plane", "first"),
    [
        ([[1, 1, 1], [1, 1, 1]], (0, 0)),
        ([[0, 0, 2], [2, 2, 2]], (0, 2)),
        ([[0, 1, 0], [2, 1, 2]], (1, 0)),
        ([[-3, -2, -2], [-4, -2, -2]], (0, 1)),
    ],
)
def test_the_first_of_equal_maxima_gets_the_gradient(
    plane: list[list[int]], first: tuple[int, int]
) -> None:
    x = torch.tensor([[plane]], dtype=F64)
    checked = gradients(
        called("max_roi_pool", [1, 1]), [1, 1, 2, 3], [[0, 0, 2, 3]], x=x
    )
    gradient = checked.gradients["x"][0, 0]
    assert float(gradient[first]) == float(checked.seeds["y"])
    assert int((gradient != 0.0).sum()) == 1


def test_ties_in_cells_that_overlap() -> None:
    x = torch.tensor([0, 1, 1, 0, 2, 2, 2, 1], dtype=F64).repeat(2, 3, 5, 1)
    regions = [[0, 0, 5, 7], [1, 2, 4, 8], [-1, 1, 3, 9]]
    check(called("max_roi_pool", [2, 3]), [2, 3, 5, 8], regions, x=x)
    check(called("max_roi_align", [2, 2]), [2, 3, 5, 8], [[1, 2, 1, 2]], x=x)


# ---- Coordinates ----


@pytest.mark.parametrize("method", METHODS)
def test_coordinates_on_elements(method: str) -> None:
    regions = [[0, 0, 5, 6], [1, 2, 4, 5], [-2, 1, 3, 7], [2, 2, 2, 2], [4, 5, 9, 9]]
    for size in ([5, 6], [3, 3], [1, 1], [10, 3], [2, 4]):
        check(called("roi_resample", size, method=method), [2, 2, 5, 6], regions)


@pytest.mark.parametrize(
    ("first", "slope"),
    # Inside it is that of the segment after; at the edges and outside it is 0.
    [(1.0, 4.0), (1.5, 4.0), (2.0, 8.0), (0.0, 0.0), (3.0, 0.0), (-0.5, 0.0), (3.5, 0.0)],
)  # fmt: skip
def test_the_derivative_on_an_element_is_that_of_the_segment_after(
    first: float, slope: float
) -> None:
    operation = called("roi_resample", [1], method="asymmetric")
    x = torch.tensor([[[1.0, 3.0, 7.0, 15.0]]], dtype=F64)
    checked = gradients(operation, [1, 1, 4], [[first, 9.0]], x=x)
    wanted = [slope * float(checked.seeds["y"]), 0.0]
    assert checked.gradients["r"].flatten().tolist() == pytest.approx(wanted)


def test_a_region_at_its_own_size_is_a_copy() -> None:
    text = model(called("roi_resample", [3, 4]), [1, 2, 5, 6], 1)
    backward = nnef_grad.differentiate(
        nnef_grad.loads(text), with_outputs=True, seed="ones"
    )
    feeds, _ = reference.random_feeds(text, torch.Generator().manual_seed(0), high=1)
    feeds["r"] = torch.tensor([[1.0, 2.0, 4.0, 6.0]], dtype=F64)
    *_, y = reference.outputs(nnef_grad.dumps(backward), feeds, {})
    assert torch.equal(y, feeds["x"][:, :, 1:4, 2:6])


# ---- Random settings ----


def drawn(seed: int) -> tuple[str, list[int], list[list[float]]]:
    """An operation on regions with corners in quarters, which meet elements and halves
    now and then.
    """
    draw = random.Random(seed)
    axes = 1 + seed % 3
    extents = [draw.randint(1, 7 - axes) for _ in range(axes)]
    size = [draw.randint(1, 4) for _ in range(axes)]
    regions = [
        [draw.randint(-8, 4 * extent + 8) / 4.0 for extent in extents * 2]
        for _ in range(draw.randint(1, 3))
    ]
    operation = draw.choice(OPERATIONS)
    options = {
        "roi_resample": {"method": draw.choice(METHODS)},
        "avg_roi_align": {"resize_method": draw.choice(METHODS)},
        "max_roi_align": {"resize_method": draw.choice(METHODS)},
    }
    text = called(operation, size, draw.randint(1, 3), **options.get(operation, {}))
    return text, [draw.randint(1, 3), draw.randint(1, 3), *extents], regions


@pytest.mark.parametrize("seed", range(60))
def test_random_regions(seed: int) -> None:
    operation, shape, regions = drawn(seed)
    check(operation, shape, regions)


# ---- What is written ----


def written(operation: str, shape: Sequence[int], count: int, wrt: str) -> list[str]:
    """The statements of a backward graph but for its inputs."""
    graph = nnef_grad.loads(model(operation, shape, count))
    text = nnef_grad.dumps(nnef_grad.differentiate(graph, wrt=[wrt]))
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line for line in lines if "external" not in line and line[0] != "#"]


def test_interpolation_is_a_product() -> None:
    assert written(called("roi_resample", [2]), [2, 3, 4], 5, "x") == [
        "y_corner_weights_2 = constant(shape = [2, 2], value = [1.5, 0.5, 0.5, 1.5]);",
        "y_weighted_corners_2 = matmul(r, y_corner_weights_2);",
        "y_shifted_2 = sub(y_weighted_corners_2, 1.0);",
        "y_coordinate_2 = div(y_shifted_2, 2.0);",
        "y_capped_2 = min(y_coordinate_2, 3.0);",
        "y_source_2 = max(y_capped_2, 0.0);",
        "y_lower_2 = floor(y_source_2);",
        "y_fraction_2 = sub(y_source_2, y_lower_2);",
        "y_upper_2 = add(y_lower_2, 1.0);",
        "y_elements_2 = constant(shape = [1, 1, 4], value = [0.0, 1.0, 2.0, 3.0]);",
        "y_is_lower_2 = eq(y_lower_2, y_elements_2);",
        "y_at_lower_2 = select(y_is_lower_2, 1.0, 0.0);",
        "y_is_upper_2 = eq(y_upper_2, y_elements_2);",
        "y_at_upper_2 = select(y_is_upper_2, 1.0, 0.0);",
        "y_slope_2 = sub(y_at_upper_2, y_at_lower_2);",
        "y_moved_2 = mul(y_slope_2, y_fraction_2);",
        "y_weights_2 = add(y_at_lower_2, y_moved_2);",
        "grad_y_product_2 = transpose(grad_y, axes = [0, 2, 1]);",
        "grad_y_rows_2 = matmul(grad_y_product_2, y_weights_2, transposeA = true);",
        "positions_y_items = constant(shape = [1, 2], value = [0.0, 1.0]);",
        "index_y_items = cast<scalar>(i);",
        "taken_y_items = eq(index_y_items, positions_y_items);",
        "onehot_y_items = select(taken_y_items, 1.0, 0.0);",
        "rows_y_items = reshape(grad_y_rows_2, shape = [5, 12]);",
        "sums_y_items = matmul(onehot_y_items, rows_y_items, transposeA = true);",
        "grad_x = reshape(sums_y_items, shape = [2, 3, 4]);",
    ]


def test_regions_of_one_feature_map_need_no_copies_of_it() -> None:
    lines = written(called("avg_roi_pool", [2, 3]), [1, 8, 32, 32], 5, "x")
    assert lines[-7:] == [
        "y_stacked_3 = reshape(y_shares_3, shape = [15, 32]);",
        "grad_y_channels_after = transpose(grad_y, axes = [0, 2, 3, 1]);",
        "grad_y_product_2 = reshape(grad_y_channels_after, shape = [5, 2, 24]);",
        "grad_y_rows_2 = matmul(grad_y_product_2, y_shares_2, transposeA = true);",
        "grad_y_product_3 = reshape(grad_y_rows_2, shape = [15, 256]);",
        "grad_y_rows_3 = matmul(grad_y_product_3, y_stacked_3, transposeA = true);",
        "grad_x = reshape(grad_y_rows_3, shape = [1, 8, 32, 32]);",
    ]


def test_the_corners_receive_what_the_coordinates_do() -> None:
    lines = written(called("roi_resample", [2]), [1, 3, 4], 5, "r")
    assert lines[-11:] == [
        "grad_y_stacked_2 = matmul(grad_y_product_2, y_rows_2);",
        "grad_y_weights_2 = reshape(grad_y_stacked_2, shape = [5, 2, 4]);",
        "grad_y_fraction_2_full = mul(grad_y_weights_2, y_slope_2);",
        "grad_y_fraction_2_sum = sum_reduce(grad_y_fraction_2_full, axes = [2]);",
        "grad_y_fraction_2 = squeeze(grad_y_fraction_2_sum, axes = [2]);",
        "mask_y_source_2 = gt(y_coordinate_2, 0.0);",
        "grad_y_capped_2 = select(mask_y_source_2, grad_y_fraction_2, 0.0);",
        "mask_y_capped_2 = lt(y_coordinate_2, 3.0);",
        "grad_y_coordinate_2 = select(mask_y_capped_2, grad_y_capped_2, 0.0);",
        "grad_y_shifted_2 = div(grad_y_coordinate_2, 2.0);",
        "grad_r = matmul(grad_y_shifted_2, y_corner_weights_2, transposeB = true);",
    ]


def test_a_maximum_is_a_product_with_where_it_is_found() -> None:
    assert written(called("max_roi_pool", [1]), [1, 3, 4], 5, "x") == [
        "y_corners = round(r);",
        "y_items = tile(x, repeats = [5, 1, 1]);",
        "y_lines_2 = reshape(y_items, shape = [5, 3, 1, 4]);",
        "y_first_2 = slice(y_corners, axes = [1], begin = [0], end = [1]);",
        "y_last_2 = slice(y_corners, axes = [1], begin = [1], end = [2]);",
        "y_middles_2 = constant(shape = [1, 1, 4], value = [0.5, 1.5, 2.5, 3.5]);",
        "y_after_2 = gt(y_middles_2, y_first_2);",
        "y_before_2 = lt(y_middles_2, y_last_2);",
        "y_inside_2 = and(y_after_2, y_before_2);",
        "y_ceiling_2 = select(y_inside_2, 3.4028234663852886e+38, -3.4028234663852886e+38);",
        "y_ceiling_of_lines_2 = unsqueeze(y_ceiling_2, axes = [1]);",
        "y_limited_2 = min(y_lines_2, y_ceiling_of_lines_2);",
        "y_index_2 = argmax_reduce(y_limited_2, axes = [3]);",
        "y_place_2 = cast<scalar>(y_index_2);",
        "y_elements_2 = constant(shape = [1, 1, 1, 4], value = [0.0, 1.0, 2.0, 3.0]);",
        "y_places_2 = min(y_elements_2, y_ceiling_of_lines_2);",
        "y_hit_2 = eq(y_place_2, y_places_2);",
        "y_chosen_2 = select(y_hit_2, 1.0, 0.0);",
        "grad_y_maxima_2 = reshape(grad_y, shape = [5, 3, 1, 1]);",
        "grad_y_lines_2 = matmul(grad_y_maxima_2, y_chosen_2);",
        "grad_y_items = reshape(grad_y_lines_2, shape = [5, 3, 4]);",
        "grad_x = sum_reduce(grad_y_items, axes = [0]);",
    ]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("batch", [1, 2])
def test_what_is_written_is_portable(operation: str, batch: int) -> None:
    """Of ranks up to 5 where elements change places, without batches that broadcast in a
    product, and without literals in a select that broadcasts.
    """
    text = model(called(operation, [2, 2, 2]), [batch, 2, 4, 5, 3], 3)
    backward = nnef_grad.differentiate(nnef_grad.loads(text), with_outputs=True)
    assert not re.search(r"\b(?!\w*grad)\w*roi\w*\(", nnef_grad.dumps(backward))
    for op in backward.graph.operations:
        (shape, *_), operands = [t.shape for t in op.outputs], op.inputs
        if op.name in ("transpose", "tile", "slice", "pad"):
            assert len(shape) <= 5, op
        if op.name == "matmul":
            assert operands[0].shape[:-2] == operands[1].shape[:-2], op
        if op.name == "select" and len(operands) < 3:
            assert {t.shape for t in operands} == {shape}, op


@pytest.mark.parametrize("operation", ["roi_resample", "avg_roi_pool", "max_roi_pool"])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_khronos_interpreter_runs_what_it_does_not_know(
    operation: str, batch: int, tmp_path: Path
) -> None:
    """It has no operations on regions; what they are put together from, it computes."""
    text = model(called(operation, [2, 3]), [batch, 3, 6, 8], 4)
    backward = nnef_grad.differentiate(nnef_grad.loads(text), with_outputs=True)
    emitted = nnef_grad.dumps(backward)
    generator = torch.Generator().manual_seed(3)
    feeds, _ = reference.random_feeds(emitted, generator, high=batch)
    sixteenths = torch.randint(-32, 160, (4, 4), generator=generator)
    feeds["r"] = sixteenths.to(F64) / 16.0
    expected = reference.outputs(emitted, feeds, {})
    for actual, wanted in zip(
        interpreted(emitted, feeds, {}, tmp_path), expected, strict=True
    ):
        close(actual.double(), wanted, 1e-5, operation)


def test_the_formulas_have_no_problems() -> None:
    fragments = list(FORMULAS.values())
    assert fragments
    assert not check_fragments(fragments, with_fragments(fragments))
