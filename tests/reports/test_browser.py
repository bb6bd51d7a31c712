"""The page of a report in a real browser: what lights up, what is found, what is folded,
what the keys do. Needs Playwright from PyPI and a Chromium of the system.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.networks import network

import nnef_grad
from nnef_grad.reports.contents import contents
from nnef_grad.reports.template import page as page_of

ROOT = Path(__file__).parents[2]
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
Open = Callable[..., Any]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the report of a model; what the page complains of fails the test."""
    complaints: list[str] = []
    opened = []

    def open_page(graph: nnef_grad.Graph, seed: Any = "input", **settings: Any) -> Any:
        backward = nnef_grad.differentiate(graph, seed=seed)
        path = tmp_path / "report.html"
        nnef_grad.report(graph, backward, path, overwrite=True)
        return open_file(path, **settings)

    def open_file(path: Path, **settings: Any) -> Any:
        page = browser.new_page(viewport={"width": 1440, "height": 900}, **settings)
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text))
        page.on("request", lambda r: requests.append(r.url))
        requests: list[str] = []
        page.goto(path.as_uri())
        opened.append(page)
        assert requests == [path.as_uri()]
        return page

    open_page.file = open_file  # type: ignore[attr-defined]
    open_page.blocked = ""  # type: ignore[attr-defined]
    yield open_page
    for page in opened:
        page.close()
    expected = open_page.blocked  # type: ignore[attr-defined]
    assert [c for c in complaints if not expected or expected not in c] == []


def mlp() -> nnef_grad.Graph:
    return nnef_grad.load(ROOT / "samples" / "mlp.nnef")


def resnet() -> nnef_grad.Graph:
    return nnef_grad.loads(network("resnet", 1, 32))


def item(page: Any, name: str) -> Any:
    """What is drawn under an accessible name that begins so."""
    return page.locator(f'[role=treeitem][aria-label^="{name}"]')


def lit(page: Any) -> set[str]:
    names = page.eval_on_selector_all(
        ".item.lit", "all => all.map(i => i.getAttribute('aria-label'))"
    )
    return {name.split(":")[0] for name in names}


def inside(page: Any, code: str) -> Any:
    """The value of an expression in which the names that the page shows are known."""
    names = ", ".join(page.evaluate("Object.keys(report)"))
    return page.evaluate(
        f"(() => {{ const {{ {names} }} = report; return {code}; }})()"
    )


# How small the letters of what is in sight are, in pixels.
SMALLEST = """() => {
  const shown = ({ left, right, top, bottom }, of) => left < of.right && right > of.left && top < of.bottom && bottom > of.top;
  const sizes = [...document.body.querySelectorAll("*")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && !e.closest("script, style, noscript"))
    .filter((e) => e.getClientRects().length && shown(e.getBoundingClientRect(), report.canvas.contains(e) ? report.canvas.getBoundingClientRect() : document.body.getBoundingClientRect()))
    .map((e) => parseFloat(getComputedStyle(e).fontSize) * (report.canvas.contains(e) ? report.view.zoom : 1));
  return Math.min(...sizes);
}"""


# ---- Light ----


def test_a_click_on_an_operation_lights_up_its_derivative(show: Open) -> None:
    page = show(mlp())
    item(page, "linear2: linear of").first.click()
    assert lit(page) == {
        "linear2",
        "Derivative of linear2",
        *("grad_hidden", "grad_weight2", "grad_bias2"),
    }
    assert page.inner_text("#details h2").startswith("linear")


def test_a_click_on_a_derivative_lights_up_its_operation(show: Open) -> None:
    page = show(mlp())
    item(page, "mask_hidden:").click()
    assert "hidden" in lit(page)
    assert "grad_linear1" in lit(page)
    assert "linear1" not in lit(page)
    assert page.get_attribute("[data-key=forward-u6]", "aria-selected") == "false"
    assert item(page, "mask_hidden:").get_attribute("aria-selected") == "true"


def test_an_output_that_passes_its_gradient_on_says_so(show: Open) -> None:
    sum_of_two = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    b = variable(shape = [2, 3], label = 'b');
    h = tanh(x);
    y = add(h, b);
}
"""
    page = show(nnef_grad.loads(sum_of_two))
    assert item(page, "the gradient as it is").count() == 1
    assert item(page, "no derivative").count() == 0


def test_what_gradients_flow_through_is_never_called_without_derivative(
    show: Open,
) -> None:
    for body in ("h = add(x, b); y = reshape(h, shape = [6]);", "y = add(x, b);"):
        text = f"version 1.0; graph net( x ) -> ( y ) {{ x = external(shape = [2, 3]); b = variable(shape = [2, 3], label = 'b'); {body} }}"
        for seed in ("input", "ones"):
            page = show(nnef_grad.loads(text), seed=seed)
            assert item(page, "the gradient").count() == 1
            assert item(page, "no derivative").count() == 0


def test_what_lights_up_is_what_the_graph_says_it_came_from(show: Open) -> None:
    graph = mlp()
    backward = nnef_grad.differentiate(graph).graph
    page = show(graph)
    page.click("#fit")
    for operation in backward.operations:
        if operation.origin is not None:
            results = operation.outputs[0], operation.origin.outputs[0]
            made, origin = (backward.names[result] for result in results)
            item(page, f"{made}: ").click()
            assert {made, origin} <= lit(page)


def test_pointing_shows_shapes_attributes_and_the_rule(show: Open) -> None:
    page = show(mlp())
    item(page, "hidden: relu of").first.hover()
    text = page.inner_text("#details")
    assert "4\u00d716" in text
    assert "relu_vjp in derivatives.nnef" in text
    assert "fragment relu_vjp(" in text
    item(page, "grad_bias1:").hover()
    text = page.inner_text("#details")
    assert "bias1 [1, 16] was broadcast to linear1 [4, 16]" in text
    assert "axes" in text
    assert "the gradient of bias1" in text


def test_reductions_for_broadcasts_are_marked(show: Open) -> None:
    page = show(mlp())
    marked = page.eval_on_selector_all(
        ".item:has(circle.sum)",
        "all => all.map(i => i.getAttribute('aria-label').split(':')[0])",
    )
    assert set(marked) == {"grad_bias1", "grad_bias2"}


def test_a_card_names_the_weights_of_its_operation(show: Open) -> None:
    page = show(mlp())
    card = item(page, "linear1: linear of")
    texts = card.first.locator("text").all_text_contents()
    assert texts[2:4] == ["filter layer1/weight", "bias layer1/bias"]
    assert "filter layer1/weight, bias layer1/bias" in card.first.get_attribute(
        "aria-label"
    )
    card.first.hover()
    assert "filter\tweight1\t16\u00d78 layer1/weight" in page.inner_text("#details")


def test_of_a_long_label_the_end_is_seen_and_of_many_the_first(show: Open) -> None:
    labels = [f"network/block{i}/unit/of/a/model/weights" for i in range(6)]
    lines = [
        f"w{i} = variable(shape = [1, 3], label = '{label}');"
        for i, label in enumerate(labels)
    ]
    listed = ", ".join(f"w{i}" for i in range(6))
    text = f"version 1.0; graph net( x ) -> ( y ) {{ x = external(shape = [1, 3]); {' '.join(lines)} c = concat([{listed}], axis = 0); y = add(x, c); }}"
    page = show(nnef_grad.loads(text))
    *_, first, second, third, others = (
        item(page, "c: concat").first.locator("text").all_text_contents()
    )
    assert [first[:8], others] == ["values \u2026", "and 3 more"]
    ends = [label[-15:] for label in labels[:3]]
    assert [line[-15:] for line in (first, second, third)] == ends


# The texts that stand out of the cards that they are on.
TOO_WIDE = """[...document.querySelectorAll(".item:not(.inside)")].flatMap((item) => {
  const card = item.querySelector(".card")?.getBBox();
  return card ? [...item.querySelectorAll("text:not(.sum)")].filter((text) => {
    const { x, y, width, height } = text.getBBox();
    return x < card.x || x + width > card.x + card.width || y < card.y || y + height > card.y + card.height + 1;
  }).map((text) => text.textContent) : [];
})"""


@pytest.mark.parametrize("model", ["mlp", "resnet"])
def test_what_is_written_on_a_card_has_room_there(show: Open, model: str) -> None:
    page = show(mlp() if model == "mlp" else resnet())
    page.click("#unfold")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    # Letters of a part of a pixel are not measured well.
    inside(page, "canvas.removeAttribute('viewBox')")
    assert page.evaluate(TOO_WIDE) == []


# ---- Values ----


def test_a_gradient_has_its_verdict_and_its_values(show: Open, tmp_path: Path) -> None:
    graph = mlp()
    backward = nnef_grad.differentiate(graph)
    checked = nnef_grad.check(graph, backward)
    nnef_grad.report(graph, backward, tmp_path / "v.html", checked=checked)
    page = show.file(tmp_path / "v.html")  # type: ignore[attr-defined]
    assert page.locator(".item.result .badge").all_text_contents() == ["ok"] * 5
    item(page, "grad_bias1:").click()
    text = page.inner_text("#details")
    (bias,) = (g for g in checked.gradients if g.gradient == "grad_bias1")
    assert f"{bias.spread.norm:.3g}" in text
    assert "ok, error" in text
    assert page.locator("#details .histogram path").count() == 1


def test_a_gradient_that_vanishes_is_marked(show: Open, tmp_path: Path) -> None:
    graph = mlp()
    backward = nnef_grad.differentiate(graph)
    values = {
        name: np.full(backward.graph.tensors[name].shape, 1.0)
        for name in backward.gradients.values()
    }
    values["grad_x"] *= 1e-6
    values["grad_weight1"][0, 0] = np.inf
    nnef_grad.report(graph, backward, tmp_path / "v.html", values=values)
    page = show.file(tmp_path / "v.html")  # type: ignore[attr-defined]
    texts = page.locator(".item.alarm .badge").all_text_contents()
    assert sorted(texts) == ["not finite", "vanishing"]


# ---- Search ----


def test_the_search_finds_what_is_folded(show: Open) -> None:
    page = show(resnet())
    assert item(page, "conv29: conv of").count() == 0
    page.keyboard.press("/")
    page.keyboard.type("block3 unit_2 conv1 kernel")
    assert page.inner_text("#hits") == "2 found"
    page.keyboard.press("Enter")
    assert page.inner_text("#hits") == "1 of 2"
    assert item(page, "conv29: conv of").first.is_visible()
    assert "block3/unit_2/bottleneck_v2/conv1/kernel" in page.inner_text("#details")


@pytest.mark.parametrize("name", ["hidden", "grad_bias1", "weight1"])
def test_an_address_leads_to_an_operation(
    show: Open, tmp_path: Path, name: str
) -> None:
    page = show(mlp())
    page.click("#fold")
    assert "#" not in page.url
    path = tmp_path / "report.html"
    page.goto(f"{path.as_uri()}#{name}")
    page.reload()
    chosen = page.locator('[aria-selected="true"][role=treeitem]')
    assert chosen.count() == 1
    assert name in page.inner_text("#details")
    page.keyboard.press("Escape")
    assert chosen.count() == 0
    assert "#" not in page.url


def test_what_is_selected_is_in_the_address(show: Open) -> None:
    page = show(mlp())
    item(page, "hidden:").first.click()
    assert page.url.endswith("#hidden")
    page.goto(page.url.replace("#hidden", "#grad_bias1"))
    chosen = page.locator('[aria-selected="true"][role=treeitem]')
    assert chosen.get_attribute("aria-label").startswith("grad_bias1:")


def test_what_is_not_found_is_said(show: Open) -> None:
    page = show(mlp())
    page.fill("#query", "nothing like this")
    assert page.inner_text("#hits") == "0 found"
    page.keyboard.press("Enter")


# ---- Folding ----


def test_folds_open_and_close(show: Open) -> None:
    page = show(resnet())
    unit = item(page, "unit_1/bottleneck_v2")
    assert unit.first.get_attribute("aria-expanded") == "false"
    unit.first.dblclick()
    assert (
        item(page, "unit_1/bottleneck_v2").first.get_attribute("aria-expanded")
        == "true"
    )
    assert item(page, "conv4: conv of").first.is_visible()
    page.keyboard.press(" ")
    assert item(page, "conv4: conv of").count() == 0


def test_a_derivative_opens_to_its_operations(show: Open) -> None:
    page = show(resnet())
    derivative = item(page, "Derivative of conv1:")
    derivative.dblclick()
    assert item(page, "grad_bias1: squeeze of").is_visible()


def test_everything_unfolds_and_folds(show: Open) -> None:
    graph = resnet()
    page = show(graph)
    page.click("#unfold")
    hidden = "backward.operations.filter((o) => !scene.items.has(shownKey(o))).length"
    assert inside(page, hidden) == 0
    derivatives = nnef_grad.differentiate(graph).graph.operations
    shown = "backward.operations.filter((o) => o.isDerivative && scene.items.has(stepKey(o))).length"
    assert inside(page, shown) == sum(op.origin is not None for op in derivatives)
    page.click("#fold")
    assert page.locator(".pane.forward .item").count() == 11


# ---- Large graphs ----


@pytest.fixture
def large(show: Open) -> Any:
    """A graph of more operations than are drawn at once, unfolded as a whole."""
    lines = [f"h{i + 1} = tanh(add(h{i}, {i}.0));" for i in range(1000)]
    text = f"version 1.0; extension KHR_enable_operator_expressions; graph net( h0 ) -> ( h1000 ) {{ h0 = external(shape = [2]); {' '.join(lines)} }}"
    page = show(nnef_grad.loads(text))
    page.click("#unfold")
    return page


def test_what_is_in_sight_is_drawn(large: Any) -> None:
    drawn = "document.querySelectorAll('#world *').length"
    in_sight = "[...scene.items.values()].filter(i => meets(i.place, inSight())).every(i => elements.has(i.key))"
    assert inside(large, "scene.items.size") > 5000
    for _ in range(4):
        assert large.evaluate(drawn) < 6000
        assert inside(large, in_sight)
        large.mouse.move(400, 400)
        large.mouse.wheel(0, 3000)
    assert inside(large, "painted().area.y") > 1000


def test_what_is_too_much_to_be_read_is_drawn_as_areas(large: Any) -> None:
    large.keyboard.press("0")
    inside(large, "[...Array(12)].map(() => zoomBy(0.5))")
    assert large.locator(".area").count() > 0
    assert large.locator(".item").count() == 1
    middle = inside(
        large,
        "(() => { const { left, top } = canvas.getBoundingClientRect();"
        " const middle = ({ place }) => [left + view.x + (place.x + place.width / 2) * view.zoom, top + view.y + (place.y + place.height / 2) * view.zoom].map(Math.floor);"
        " const isAt = ({ place }, [x, y]) => covers(place, { x: (x - left - view.x) / view.zoom, y: (y - top - view.y) / view.zoom, width: 0, height: 0 });"
        " return middle([...scene.items.values()].filter((i) => i.key.startsWith('forward-u') && covers(inSight(), i.place) && isAt(i, middle(i))).pop()); })()",
    )
    large.mouse.click(*middle)
    assert inside(large, "selected().key").startswith("forward-u")
    large.keyboard.press("Escape")
    large.fill("#query", "tanh")
    assert large.locator(".area.hit").count() == 1


def test_the_keyboard_stays_where_it_is_when_that_is_out_of_sight(large: Any) -> None:
    focused = "document.activeElement.dataset.key"
    for _ in range(3):
        large.keyboard.press("ArrowDown")
    before = large.evaluate(focused)
    large.mouse.move(400, 400)
    large.mouse.wheel(0, 30_000)
    assert large.evaluate(focused) == before
    large.keyboard.press("ArrowDown")
    now = large.evaluate(focused)
    assert now != before
    assert inside(large, f"covers(inSight(), scene.items.get('{now}').place)")


def test_paper_has_all_of_it(large: Any) -> None:
    large.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert inside(large, "scene.items.size === elements.size")
    assert large.locator("#layers tbody tr").count() == inside(large, "units.size")


# ---- What can be read ----

SIZES = [(1280, 800), (1440, 900), (390, 844)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("model", ["mlp", "resnet"])
def test_no_label_is_smaller_than_nine_pixels(
    show: Open, model: str, size: tuple[int, int]
) -> None:
    graph = mlp() if model == "mlp" else resnet()
    page = show(graph)
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    page.reload()
    assert page.evaluate(SMALLEST) >= 9
    for button in ("#unfold", "#fit", *(["#out"] * 6), *(["#in"] * 12)):
        page.click(button)
        assert page.evaluate(SMALLEST) >= 9


def test_no_label_of_a_large_graph_is_smaller_than_nine_pixels(large: Any) -> None:
    for button in ("#fit", *(["#in"] * 20)):
        large.click(button)
        assert large.evaluate(SMALLEST) >= 9


def test_on_a_phone_the_graphs_have_most_of_the_screen(show: Open) -> None:
    page = show(mlp())
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    canvas = page.locator("#canvas").bounding_box()
    assert canvas["height"] > 844 / 2
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_step_is_one_from_its_first_sight(show: Open, tmp_path: Path) -> None:
    """It says what it is, and its second half is beside the first."""
    step = nnef_grad.training_step(
        mlp(), loss="categorical_cross_entropy", optimizer="adam"
    )
    nnef_grad.report(step.objective, step.shown, tmp_path / "step.html")
    page = show.file(tmp_path / "step.html")  # type: ignore[attr-defined]
    said = page.locator("#summary").inner_text()
    assert said.startswith(
        "A training step of 'mlp': categorical_cross_entropy of y, by adam."
    )
    assert f"{len(step.graph.operations)} operations out" in said
    heading, canvas = (
        page.locator(name).bounding_box() for name in ("#right-heading", "#canvas")
    )
    assert heading["x"] + heading["width"] <= canvas["x"] + canvas["width"]


def test_what_is_unfolded_at_first_is_as_wide_as_the_page(show: Open) -> None:
    page = show(mlp())
    sight = "[...scene.items.values()].every(({ place }) => inSight().x <= place.x && place.x + place.width <= inSight().x + inSight().width)"
    assert inside(page, sight)


def test_the_page_gives_the_window_one_name(show: Open, tmp_path: Path) -> None:
    names = "Object.getOwnPropertyNames(window)"
    (tmp_path / "empty.html").write_text("<!DOCTYPE html><title>empty</title>")
    empty = show.file(tmp_path / "empty.html").evaluate(names)  # type: ignore[attr-defined]
    assert set(show(mlp()).evaluate(names)) - set(empty) == {"report"}


def test_an_optimizer_is_one_card_for_each_variable(show: Open, tmp_path: Path) -> None:
    """With all that it keeps of the variable, beside the gradient that it takes."""
    step = nnef_grad.training_step(mlp(), loss="mean_squared_error", optimizer="adamw")
    nnef_grad.report(step.objective, step.shown, tmp_path / "step.html")
    page = show.file(tmp_path / "step.html")  # type: ignore[attr-defined]
    page.click("#unfold")
    page.click("#unfold")
    shown = (
        "[...units.values()].flatMap(({ steps }) => steps.filter(({ parts }) => parts))"
    )
    for_each = inside(page, f"{shown}.map(({{ results }}) => results)")
    kept = ["", "_first_moment", "_second_moment"]
    assert [x for x in for_each if len(x) == 3] == [
        [f"updated_{name}{state}" for state in kept]
        for name in ("weight1", "bias1", "weight2", "bias2")
    ]
    assert inside(page, "[...units.values()].every(({ steps }) => steps.length < 12)")
    page.locator('[aria-label^="updated_weight1, "]').click()
    said = page.inner_text("#details")
    assert said.startswith("adamw")
    assert "new_weight1 = sub(decayed_weight1, change_weight1)" in said
    page.locator("#details button").first.click()
    assert page.locator(".item.step.chosen").count() == 1


# ---- Keys ----


@pytest.mark.parametrize("button", ["#unfold", "#fold", "#fit", "#theme", "#tab-graph"])
def test_the_arrows_go_on_after_a_click_on_a_button(show: Open, button: str) -> None:
    page = show(mlp())
    page.keyboard.press("ArrowDown")
    before = page.evaluate("document.activeElement.dataset.key")
    page.click(button)
    page.keyboard.press("ArrowDown")
    now = page.evaluate("document.activeElement.dataset.key")
    assert now is not None
    assert now != before
    page.keyboard.press("ArrowRight" if now.startswith("forward") else "ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.key") != now


def test_costs_are_added_up_by_module(show: Open) -> None:
    page = show(resnet())
    page.click("#tab-modules")
    names = page.locator("#modules tbody th").all_inner_texts()
    assert len(names) == len({*names}) > 3
    totals = page.locator("#modules tfoot td").all_inner_texts()
    page.click("#tab-layers")
    assert totals[2:] == page.locator("#layers tfoot td").all_inner_texts()[3:]
    assert not show(mlp()).locator("#tab-modules").is_visible()


def test_a_notebook_shows_a_report(browser: Any, tmp_path: Path) -> None:
    graph = mlp()
    backward = nnef_grad.differentiate(graph)
    shown = nnef_grad.report(graph, backward, tmp_path / "r.html")
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html>{shown._repr_html_()}", "utf-8")
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(notebook.as_uri())
    cell = page.frame_locator("iframe")
    cell.locator('[aria-label^="linear1:"]').first.click()
    assert cell.locator(".item.chosen").count() == 1
    page.close()
    assert errors == []


def test_the_keys_of_a_table_are_its_own(show: Open) -> None:
    page = show(resnet())
    page.click("#tab-layers")
    page.click("text=multiply-adds backward")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"


def test_keys_work_after_a_click_on_a_button(show: Open) -> None:
    page = show(mlp())
    page.click("#in")
    before = inside(page, "view.zoom")
    page.keyboard.press("-")
    assert inside(page, "view.zoom") < before
    page.keyboard.press("Enter")  # presses the button
    assert inside(page, "view.zoom") == pytest.approx(before)


def test_the_arrows_lead_along_a_graph_and_across(show: Open) -> None:
    page = show(mlp())
    focused = "document.activeElement.getAttribute('aria-label')"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused).startswith("linear1: linear of x")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused).startswith("Derivative of linear1")
    page.keyboard.press("Enter")
    assert "linear1" in lit(page)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused).startswith("linear1: linear of x")
    page.keyboard.press("Escape")
    assert lit(page) == set()


def test_the_graph_is_reached_by_the_tab_key(show: Open) -> None:
    page = show(mlp())
    page.focus("#compare")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "treeitem"


# ---- Screen readers ----


def test_everything_has_a_name(show: Open) -> None:
    page = show(resnet())
    snapshot = page.locator("body").aria_snapshot()
    assert 'tree "Forward graph"' in snapshot
    assert 'tree "Backward graph"' in snapshot
    assert 'img "Backward memory over' in snapshot
    assert page.locator("[role=treeitem]:not([aria-label])").count() == 0
    for button in page.locator("button").all():
        assert button.get_attribute("aria-label") or button.inner_text()


# ---- Tables and memory ----


def test_the_tables_are_sorted_and_lead_to_the_graph(show: Open) -> None:
    graph = resnet()
    page = show(graph)
    page.click("#tab-layers")
    page.click("text=multiply-adds backward")
    costs = page.locator("#layers tbody tr").first.inner_text()
    expected = max(
        nnef_grad.statistics(graph).by_operation, key=lambda c: c.multiply_adds
    )
    assert expected.operation in costs
    page.locator("#layers tbody tr").first.locator("button").click()
    assert page.locator("#graph").is_visible()
    assert page.locator(".item.chosen").count() == 1
    page.click("#tab-kinds")
    total = page.locator("#kinds tfoot td").nth(1).inner_text()
    assert total == str(len(graph.operations))


def test_the_bars_name_the_peak_and_lead_to_the_graph(show: Open) -> None:
    graph = mlp()
    page = show(graph)
    assert "peak 1.14 KiB at grad_bias1" in page.inner_text("#memory")
    assert nnef_grad.statistics(nnef_grad.differentiate(graph)).peak_bytes == 1164
    chart = page.locator("#memory svg").nth(1)
    box = chart.bounding_box()
    chart.click(position={"x": box["width"] - 3, "y": box["height"] - 3})
    assert item(page, "grad_bias1:").get_attribute("aria-selected") == "true"


# Whether two ticks of an axis stand in one another's way.
CROWDED = """[...document.querySelectorAll(".plot")].some((plot) => ["x", "y"].some((axis) => {
  const boxes = [...plot.querySelectorAll(`.tick.${axis}`), plot.querySelector(".unit")].map((tick) => tick.getBoundingClientRect());
  return boxes.some((a, i) => boxes.slice(i + 1).some((b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom));
}))"""


@pytest.mark.parametrize("width", [390, 1280])
def test_the_bars_have_axes(show: Open, width: int) -> None:
    page = show(mlp())
    page.set_viewport_size({"width": width, "height": 844})
    chart = page.locator("#memory .plot").nth(1)
    assert chart.locator(".tick.y").all_text_contents() == ["0 B", "512 B", "1 KiB"]
    assert chart.locator(".tick.x").all_text_contents() == ["5", "10", "15"]
    assert chart.locator(".unit").text_content() == "operation"
    assert not page.evaluate(CROWDED)
    assert page.evaluate("document.documentElement.scrollWidth") == width


# ---- A training ----


def trained(folder: Path, losses: dict[int, float], name: str = "step.html") -> Path:
    step = nnef_grad.training_step(
        mlp(), loss="categorical_cross_entropy", optimizer="sgd"
    )
    nnef_grad.report(
        step.objective, step.shown, folder / name, losses=losses, overwrite=True
    )
    return folder / name


def test_the_losses_of_a_training_are_a_curve(show: Open, tmp_path: Path) -> None:
    losses = {step: 2.0 * 0.99**step for step in range(1, 1001)}
    losses |= {500: float("nan"), 501: float("inf")}
    page = show.file(trained(tmp_path, losses))  # type: ignore[attr-defined]
    page.click("#tab-training")
    text = page.inner_text("#training")
    assert "1000 steps, from a loss of 1.98 at step 1 to" in text
    assert "not shown: the losses of 2 steps, first nan at step 500" in text
    ticks = page.locator("#training .tick.y").all_text_contents()
    assert ticks == ["0", "0.5", "1", "1.5"]
    page.click("text=Logarithmic")
    ticks = page.locator("#training .tick.y").all_text_contents()
    assert ticks == ["0.0001", "0.001", "0.01", "0.1", "1"]
    assert not page.evaluate(CROWDED)
    # A straight line, of the losses that are numbers.
    way = page.get_attribute("#training .curve", "d")[1:].split("L")
    points = np.array([point.split(",") for point in way], float)
    assert len(points) == 333
    line = np.polyval(np.polyfit(points[:, 0], points[:, 1], 1), points[:, 0])
    assert np.abs(line - points[:, 1]).max() < 0.3
    assert (points[0] < [3, 3]).all()
    assert (points[-1] > [997, 297]).all()


@pytest.mark.parametrize(
    "losses", [{1: 0.5}, {7: 0.0, 8: 0.0}, {1: float("nan")}, {1: -2.0, 2: -3.0}]
)
def test_losses_that_make_no_curve(
    show: Open, tmp_path: Path, losses: dict[int, float]
) -> None:
    page = show.file(trained(tmp_path, losses))  # type: ignore[attr-defined]
    page.click("#tab-training")
    page.click("text=Logarithmic")
    page.click("text=Logarithmic")
    assert "NaN" not in page.inner_html("#training")


def test_there_is_no_view_of_a_training_that_was_none(show: Open) -> None:
    assert not show(mlp()).locator("#tab-training").is_visible()


# ---- Two reports ----


def compared(show: Open, before: Path, now: Path) -> Any:
    page = show.file(now)  # type: ignore[attr-defined]
    with page.expect_file_chooser() as chooser:
        page.click("#compare")
    chooser.value.set_files(before)
    page.wait_for_selector("#compared > *")
    return page


def rows(page: Any, caption: str) -> list[list[str]]:
    """The cells of a table of changes."""
    table = page.locator("#compared table", has_text=caption).locator("tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in table.all()]


def test_two_reports_are_compared(show: Open, tmp_path: Path) -> None:
    before, now = tmp_path / "before.html", tmp_path / "now.html"
    text = nnef_grad.dumps(mlp())
    changed = nnef_grad.loads(text.replace("relu(linear1)", "tanh(linear1)"))
    for graph, path in ((mlp(), before), (changed, now)):
        backward = nnef_grad.differentiate(graph)
        checked = nnef_grad.check(graph, backward)
        nnef_grad.report(graph, backward, path, checked=checked)
    page = compared(show, before, now)
    kinds = {row[0]: row[1:] for row in rows(page, "Operations by kind")}
    assert kinds["relu"] == ["1 \u2192 0 (\u2212100 %)"] * 2
    assert kinds["tanh"] == ["0 \u2192 1 (new)"] * 2
    assert "linear" not in kinds
    costs = {row[0]: row[1:] for row in rows(page, "Costs")}
    assert costs["operations"] == ["9", "22 \u2192 23 (+4.55 %)"]
    assert rows(page, "Verdicts of gradients") == [["no change"]]
    operations = {row[0]: row[1:] for row in rows(page, "Operations\n")}
    assert operations["hidden"] == ["hidden = relu(linear1)", "hidden = tanh(linear1)"]
    assert operations["mask_hidden"][1] == ""
    assert "linear1" not in operations
    page.locator("#compared th button", has_text="grad_linear1").click()
    assert item(page, "grad_linear1").get_attribute("aria-selected") == "true"
    page.click("#tab-compared")
    page.click("text=in the graphs")
    assert item(page, "hidden: tanh").first.get_attribute("aria-selected") == "true"
    assert page.locator(".item.hit").count() > 2


def test_two_trainings_are_compared(show: Open, tmp_path: Path) -> None:
    before = trained(tmp_path, {1: 2.0, 2: 1.5}, "before.html")
    page = compared(show, before, trained(tmp_path, {1: 2.0, 2: 1.0, 3: 0.5}))
    page.click("#tab-training")
    assert page.locator("#training .curve").count() == 2
    assert "2 steps, from a loss of 2.00" in page.inner_text("#training")


def test_a_report_is_compared_with_a_report(show: Open, tmp_path: Path) -> None:
    # Some browsers tell that the policy of the page kept a handler from being run.
    show.blocked = "Executing inline event handler violates"  # type: ignore[attr-defined]
    for text in ("", "<p id=contents>{}</p>", f"<p id=contents>{HOSTILE}</p>"):
        (tmp_path / "other.html").write_text(text)
        page = compared(show, tmp_path / "other.html", trained(tmp_path, {}))
        assert "other.html is no report" in page.inner_text("#compared")
        assert page.title() != "taken"


# ---- A file of the drawing ----


def saved(page: Any, folder: Path) -> Path:
    with page.expect_download() as download:
        page.click("#save")
    path = folder / str(download.value.suggested_filename)
    download.value.save_as(path)
    return path


PRESENTED = {
    *("x", "y", "width", "height", "rx", "cx", "cy", "r", "d", "text-anchor"),
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin"),
    *("paint-order", "opacity"),
    *("font-size", "font-weight", "font-family", "viewBox", "role"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("model", ["mlp", "resnet"])
def test_the_drawing_is_saved_as_a_file_of_its_own(
    show: Open, tmp_path: Path, model: str, theme: str
) -> None:
    page = show(mlp() if model == "mlp" else resnet(), color_scheme=theme)
    page.click("#unfold")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    drawn = page.locator("#world text").all_text_contents()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    in_sight = page.locator("#world *").count()
    path = saved(page, tmp_path)
    assert page.locator("#world *").count() == in_sight
    picture = ET.parse(path)
    elements = [*picture.iter()]
    assert {name for e in elements for name in e.attrib} <= PRESENTED
    colors = {e.get(name) for e in elements for name in ("fill", "stroke")}
    assert all(c is None or re.fullmatch(r"none|#[0-9a-f]{6}", c) for c in colors)
    texts = [e.text for e in elements if e.tag.endswith("}text")]
    assert texts == ["forward \u2193", "\u2191 backward", *drawn]
    alone = show.file(path)  # type: ignore[attr-defined]
    shade = {"light": "#f6f7f9", "dark": "#14171c"}[theme]
    assert alone.locator("rect").first.get_attribute("fill") == shade


def test_a_file_of_a_drawing_is_one_whatever_the_labels_are(
    show: Open, tmp_path: Path
) -> None:
    graph = mlp()
    data = contents(graph, nnef_grad.differentiate(graph), nnef_grad.Rules())
    for operation in data["forward"]["operations"]:
        operation["kind"] = "\x01\ud800<&\ufffe"
    path = tmp_path / "hostile.html"
    path.write_text(page_of(data), "utf-8")
    page = show.file(path)  # type: ignore[attr-defined]
    texts = [e.text for e in ET.parse(saved(page, tmp_path)).iter()]
    assert "\ufffd\ufffd<&\ufffd" in texts


# ---- Looks ----


def test_dark_and_light(show: Open) -> None:
    page = show(mlp(), color_scheme="dark")
    shade = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(shade)
    page.click("#theme")
    light = page.evaluate(shade)
    page.click("#theme")
    assert page.evaluate(shade) == dark
    assert dark == "rgb(20, 23, 28)"
    assert light == "rgb(246, 247, 249)"


def test_paper_has_the_graphs_and_the_tables(show: Open) -> None:
    page = show(mlp(), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#layers table").is_visible()
    assert page.locator("#kinds table").is_visible()
    assert not page.locator("#buttons").is_visible()
    assert page.get_attribute("#canvas", "viewBox")
    assert page.pdf()[:4] == b"%PDF"


def test_a_hostile_model_is_shown_as_text(show: Open, tmp_path: Path) -> None:
    graph = mlp()
    data = contents(graph, nnef_grad.differentiate(graph), nnef_grad.Rules())
    data["title"] = HOSTILE
    data["folds"]["name"] = HOSTILE
    for side in ("forward", "backward"):
        for operation in data[side]["operations"]:
            operation["text"] = operation["kind"] = HOSTILE
            operation["attributes"] = [[HOSTILE, HOSTILE]]
    path = tmp_path / "hostile.html"
    path.write_text(page_of(data), "utf-8")
    page = show.file(path)  # type: ignore[attr-defined]
    page.click("#unfold")
    page.locator(".item").first.click()
    page.click("#tab-layers")
    page.click("#tab-kinds")
    assert page.locator("img").count() == 0
    assert page.title() != "taken"
    assert HOSTILE in page.inner_text("h1")


def test_a_graph_without_anything_to_compute(show: Open) -> None:
    text = "version 1.0; graph net( x ) -> ( y ) { x = external(shape = [2]); y = copy(x); }"
    page = show(nnef_grad.loads(text))
    page.click("#unfold")
    page.click("#fold")


def test_a_gradient_of_zeros_is_shown_and_called_no_derivative(show: Open) -> None:
    text = "version 1.0; graph net( x ) -> ( y ) { x = external(shape = [2]); y = sign(x); }"
    page = show(nnef_grad.loads(text))
    item(page, "no derivative").click()
    assert "Computed again" not in page.inner_text("#details")
    page.click("#unfold")
    item(page, "grad_x: constant").click()
    assert "the gradient of x" in page.inner_text("#details")


def test_the_names_of_a_file_are_shown_and_found(show: Open, tmp_path: Path) -> None:
    graph = mlp()
    backward = nnef_grad.differentiate(graph)
    called = {"weight1": "/layer.1/weight", "grad_weight1": "grad_/layer.1/weight"}
    nnef_grad.report(graph, backward, tmp_path / "named.html", called=called)
    page = show.file(tmp_path / "named.html")  # type: ignore[attr-defined]
    page.fill("#query", "/layer.1/weight")
    assert page.inner_text("#hits") == "3 found"
    page.press("#query", "Enter")
    assert "/layer.1/weight" in page.inner_text("#details")
