"""The operators of ONNX for training: Gradient, Adagrad, Adam and Momentum. No runtime has them:
gradients are compared with autograd in double precision, and steps with what ONNX says that
they compute.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.commandline.cli import main

Array = npt.NDArray[Any]

onnx: Any = import_module("onnx") if find_spec("onnx") else None
torch: Any = import_module("torch") if find_spec("torch") else None
pytestmark = pytest.mark.skipif(
    not (onnx and torch), reason="the tests of these operators need onnx and torch"
)

RANDOM = np.random.default_rng(7)
DOMAIN = "ai.onnx.preview.training"


def save(folder: Path, text: str) -> Path:
    """A file of a graph in ONNX's text, in which G stands for the gradient."""
    heading = f'<ir_version: 8, opset_import: ["": 17, "{DOMAIN}": 1]>\n'
    text = heading + text.replace("= G<", f"= {DOMAIN}.Gradient<")
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return folder / "model.onnx"


def scalars(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def read(folder: Path, text: str) -> tuple[Any, Any]:
    graph, data = interop.from_onnx(save(folder, text))
    return graph, data


def computed(folder: Path, text: str, fed: dict[str, Array]) -> dict[str, Array]:
    graph, data = read(folder, text)
    return nnef_grad.evaluate(graph, fed, data)


def leaves(*arrays: Array) -> list[Any]:
    return [torch.tensor(x, requires_grad=True) for x in arrays]


def close(found: Any, wanted: Any) -> None:
    wanted = wanted.detach().numpy() if hasattr(wanted, "detach") else wanted
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, 1e-9, 1e-9)


# ---- Gradients ----

LAYERS = """h = MatMul(x, w)
  t = Tanh(h)
  y = Mul(t, z)"""
SIGNATURE = "(float[2,3] x, float[3,4] w, float[2,4] z)"


def operands() -> dict[str, Array]:
    return {"x": scalars(2, 3), "w": scalars(3, 4), "z": scalars(2, 4)}


def test_the_models_of_onnx_are_right(tmp_path: Path) -> None:
    data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "simple"
    models = sorted(data.glob("test_gradient_of_*"))
    assert len(models) == 2
    for model in models:
        graph, stored = interop.from_onnx(model / "model.onnx")
        sides = [
            [
                onnx.numpy_helper.to_array(onnx.load_tensor(path))
                for path in sorted(model.glob(f"test_data_set_0/{side}_*.pb"))
            ]
            for side in ("input", "output")
        ]
        fed = dict(zip(graph.input_names, sides[0], strict=True))
        found = nnef_grad.evaluate(graph, fed, stored)
        for name, wanted in zip(graph.output_names, sides[1], strict=True):
            close(found[name], wanted)


def test_gradients_of_what_is_no_number_are_those_of_its_sum(tmp_path: Path) -> None:
    text = f"""net {SIGNATURE} => (float[2,4] y, float[2,3] dx, float[3,4] dw) {{
      {LAYERS}
      dx, dw = G<xs=["x", "w"], zs=["z"], y="y">(x, w, z) }}"""
    fed = operands()
    found = computed(tmp_path, text, fed)
    x, w, z = leaves(*fed.values())
    y = (x @ w).tanh() * z
    wanted = torch.autograd.grad(y.sum(), [x, w])
    for name, value in zip(("y", "dx", "dw"), (y, *wanted), strict=True):
        close(found[name], value)


def test_gradients_with_respect_to_tensors_inside(tmp_path: Path) -> None:
    """What is in xs is independent, also of others in xs that it is made of."""
    text = f"""net {SIGNATURE} => (float[2,4] dh, float[2,3] dx) {{
      {LAYERS}
      q = Mul(y, h)
      dh, dx = G<xs=["h", "x"], zs=["z"], y="q">(h, x, z) }}"""
    fed = operands()
    found = computed(tmp_path, text, fed)
    h, z = leaves(fed["x"] @ fed["w"], fed["z"])
    (wanted,) = torch.autograd.grad((h.tanh() * z * h).sum(), [h])
    close(found["dh"], wanted)
    close(found["dx"], np.zeros((2, 3)))


def test_gradients_at_other_values_than_the_tensors_have(tmp_path: Path) -> None:
    text = f"""net (float[2,3] x, float[3,4] w, float[2,4] z, float[2,4] h1)
      => (float[2,4] y, float[2,4] dh, float[2,4] dz) {{
      {LAYERS}
      z1 = Neg(z)
      dh, dz = G<xs=["h", "z"], y="y">(h1, z1) }}"""
    fed = {**operands(), "h1": scalars(2, 4)}
    found = computed(tmp_path, text, fed)
    h, z = leaves(fed["h1"], -fed["z"])
    wanted = torch.autograd.grad((h.tanh() * z).sum(), [h, z])
    close(found["y"], np.tanh(fed["x"] @ fed["w"]) * fed["z"])
    for name, value in zip(("dh", "dz"), wanted, strict=True):
        close(found[name], value)


def test_tensors_that_are_one_in_the_graph_are_independent(tmp_path: Path) -> None:
    """By an Identity, and by two nodes that compute the same."""
    text = """net (float[3] x) => (float[3] da, float[3] db, float[3] dc) {
      a = Sin(x)
      b = Sin(x)
      c = Identity(a)
      ab = Mul(a, b)
      y = Mul(ab, c)
      da, db = G<xs=["a", "b"], y="y">(a, b)
      dc = G<xs=["c"], y="y">(c) }"""
    fed = {"x": scalars(3)}
    found = computed(tmp_path, text, fed)
    close(found["dc"], np.sin(fed["x"]) ** 2)
    close(found["db"], np.sin(fed["x"]) ** 2)
    # c is made of a.
    close(found["da"], 2 * np.sin(fed["x"]) ** 2)


def test_gradients_of_a_chain_that_stands_for_one_operation(tmp_path: Path) -> None:
    """Inside of it, too."""
    text = """net (float[3] x) => (float[3] y, float[3] de) {
      root = Constant<value = float {1.4142135}>()
      one = Constant<value = float {1.0}>()
      half = Constant<value = float {0.5}>()
      s = Div(x, root)
      e = Erf(s)
      f = Add(e, one)
      g = Mul(x, f)
      y = Mul(g, half)
      de = G<xs=["e"], y="y">(e) }"""
    fed = {"x": scalars(3)}
    close(computed(tmp_path, text, fed)["de"], fed["x"] / 2)


def test_what_y_does_not_depend_on_has_zeros(tmp_path: Path) -> None:
    text = """net (float[2,3] x, float[3] u) => (float[3] du, float[2,3] dx, float[3] dk) {
      k = Constant<value = float[3] {1.0, 2.0, 3.0}>()
      y = Sin(x)
      du, dx, dk = G<xs=["u", "x", "k"], y="y">(u, x, k) }"""
    graph, data = read(tmp_path, text)
    fed = {"x": scalars(2, 3), "u": scalars(3)}
    found = nnef_grad.evaluate(graph, fed, data)
    close(found["dx"], np.cos(fed["x"]))
    for name in ("du", "dk"):
        close(found[name], np.zeros(3))
    assert "'u', 'k' do not influence 'y': their gradients" in str(graph.warnings)


def test_results_that_nobody_wants_may_have_no_name(tmp_path: Path) -> None:
    text = f"""net {SIGNATURE} => (float[3,4] dw) {{
      {LAYERS}
      skipped, dw = G<xs=["x", "w"], zs=["z"], y="y">(x, w, z) }}"""
    model = onnx.load(save(tmp_path, text))
    model.graph.node[-1].output[0] = ""
    onnx.save(model, tmp_path / "model.onnx")
    graph, data = interop.from_onnx(tmp_path / "model.onnx")
    fed = operands()
    x, w, z = leaves(*fed.values())
    (wanted,) = torch.autograd.grad(((x @ w).tanh() * z).sum(), [w])
    close(nnef_grad.evaluate(graph, fed, data)["dw"], wanted)


SECOND = f"""net {SIGNATURE} => (float[3,4] dw, float[2,3] ddx, float[3,4] ddw) {{
  {LAYERS}
  dx, dw = G<xs=["x", "w"], zs=["z"], y="y">(x, w, z)
  s = Sin(dw)
  ddx, ddw = G<xs=["x", "w"], zs=["z"], y="s">(x, w, z) }}"""


def seconds(x: Any, w: Any, z: Any) -> list[Any]:
    """The results of that by autograd."""
    y = (x @ w).tanh() * z
    (dw,) = torch.autograd.grad(y.sum(), [w], create_graph=True)
    return [dw, *torch.autograd.grad(dw.sin().sum(), [x, w], create_graph=True)]


def test_gradients_of_gradients(tmp_path: Path) -> None:
    fed = operands()
    found = computed(tmp_path, SECOND, fed)
    wanted = seconds(*leaves(*fed.values()))
    for name, value in zip(("dw", "ddx", "ddw"), wanted, strict=True):
        close(found[name], value)


def test_a_gradient_depends_on_what_the_inner_one_does_not_name(tmp_path: Path) -> None:
    """The inner gradient takes x as it is; the outer one differentiates by it."""
    text = """net (float[3] x, float[3] w) => (float[3] dwdx) {
      p = Mul(x, w)
      y = Sin(p)
      dw = G<xs=["w"], y="y">(w)
      dwdx = G<xs=["x"], y="dw">(x) }"""
    fed = {"x": scalars(3), "w": scalars(3)}
    x, w = leaves(*fed.values())
    (dw,) = torch.autograd.grad((x * w).sin().sum(), [w], create_graph=True)
    (wanted,) = torch.autograd.grad(dw.sum(), [x])
    close(computed(tmp_path, text, fed)["dwdx"], wanted)


def test_what_is_read_can_be_differentiated_again(tmp_path: Path) -> None:
    """To the third order, with random cotangents."""
    graph, data = read(tmp_path, SECOND)
    backward = nnef_grad.differentiate(graph)
    fed = operands()
    cotangents = [scalars(3, 4), scalars(2, 3), scalars(3, 4)]
    seeds = dict(zip(backward.seeds.values(), cotangents, strict=True))
    found = nnef_grad.evaluate(backward.graph, {**fed, **seeds}, data)
    inputs = leaves(*fed.values())
    given = [torch.tensor(x) for x in cotangents]
    wanted = torch.autograd.grad(seconds(*inputs), inputs, given)
    for name, value in zip(("x", "w", "z"), wanted, strict=True):
        close(found[backward.gradients[name]], value)


def test_initializers_are_differentiated_by(tmp_path: Path) -> None:
    text = """net (float[1,2,5,5] x) => (float[3,2,3,3] dw, float[3] db, float da)
    <float a = {0.5}> {
      c = Conv(x, w, b)
      r = Sigmoid(c)
      q = Mul(r, r)
      y = Mul(q, a)
      dw, db, da = G<xs=["w", "b", "a"], y="y">(w, b, a) }"""
    model = onnx.load(save(tmp_path, text))
    w, b = (scalars(*shape).astype(np.float32) for shape in ((3, 2, 3, 3), (3,)))
    for name, array in (("w", w), ("b", b)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "model.onnx")
    graph, data = interop.from_onnx(tmp_path / "model.onnx")
    x = scalars(1, 2, 5, 5)
    found = nnef_grad.evaluate(graph, {"x": x}, data)
    filters, bias, a = leaves(w.astype(float), b.astype(float), np.array(0.5))
    c = torch.nn.functional.conv2d(torch.tensor(x), filters, bias)
    wanted = torch.autograd.grad((c.sigmoid() ** 2 * a).sum(), [filters, bias, a])
    for name, value in zip(("dw", "db", "da"), wanted, strict=True):
        close(found[name], value)


def test_gradients_inside_and_of_branches_and_loops(tmp_path: Path) -> None:
    text = """net (float[3] x) => (float[3] dx, float[3] last, float[3] dl) {
      yes = Constant<value = bool {1}>()
      n = Constant<value = int64 {3}>()
      dx = If(yes) <
        then_branch = g () => (float[3] d) { s = Sin(x)
          d = G<xs=["x"], y="s">(x) },
        else_branch = k () => (float[3] d) { d = Identity(x) }>
      last = Loop(n, yes, x) <
        body = b (int64 i, bool c, float[3] v) => (bool o, float[3] u) {
          o = Identity(c)
          q = Mul(v, x)
          r = Sin(q)
          u = G<xs=["v"], y="r">(v) }>
      dl = G<xs=["x"], y="last">(x) }"""
    fed = {"x": scalars(3)}
    found = computed(tmp_path, text, fed)
    (x,) = leaves(fed["x"])
    v = x
    for _ in range(3):
        v = (v * x).cos() * x
    (wanted,) = torch.autograd.grad(v.sum(), [x])
    for name, value in (("dx", x.cos()), ("last", v), ("dl", wanted)):
        close(found[name], value)


def scan(y: str) -> str:
    """A loop of the graph, whose body differentiates y."""
    return f"""net (float[3] x, float[5,3] rows) => (float[3] last, float[3] dx) {{
      o = Sin(x)
      last = Scan<num_scan_inputs = 1,
        body = b (float[3] v, float[3] row) => (float[3] u) {{
          q = Mul(v, row)
          r = Sin(q)
          u = G<xs=["v"], y="{y}">(v) }}>(x, rows)
      dx = G<xs=["x"], y="last">(x) }}"""


def test_gradients_in_and_of_loops_of_the_graph(tmp_path: Path) -> None:
    fed = {"x": scalars(3), "rows": scalars(5, 3)}
    graph, data = read(tmp_path, scan("r"))
    assert any(op.name == "<loop>" for op in graph.operations)
    found = nnef_grad.evaluate(graph, fed, data)
    (x,) = leaves(fed["x"])
    v = x
    for row in torch.tensor(fed["rows"]):
        v = (v * row).cos() * row
    (wanted,) = torch.autograd.grad(v.sum(), [x])
    close(found["last"], v)
    close(found["dx"], wanted)


def test_what_is_outside_of_a_loop_is_not_differentiated_in_it(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="from outside of the loop"):
        read(tmp_path, scan("o"))


def test_extents_may_be_open(tmp_path: Path) -> None:
    text = """net (float[N,3] x, float[3] w) => (float[N,3] dx, float[3] dw) {
      m = Mul(x, w)
      y = Sin(m)
      dx, dw = G<xs=["x", "w"], y="y">(x, w) }"""
    graph, data = read(tmp_path, text)
    w = scalars(3)
    for rows in (1, 4):
        x = scalars(rows, 3)
        found = nnef_grad.evaluate(graph, {"x": x, "w": w}, data)
        close(found["dx"], np.cos(x * w) * w)
        close(found["dw"], (np.cos(x * w) * x).sum(0))


@pytest.mark.parametrize("words", ["--forward", "--seed ones --outputs ddw"])
def test_the_file_that_is_written_runs_in_onnx_runtime(
    tmp_path: Path, words: str
) -> None:
    """The graph itself, or its derivative, of the third order."""
    pytest.importorskip("onnxruntime")
    model, out = save(tmp_path, SECOND), tmp_path / "out.onnx"
    result = CliRunner().invoke(main, [str(model), "-o", str(out), *words.split()])
    assert result.exit_code == 0, result.stderr
    fed = {n: x.astype(np.float32) for n, x in operands().items()}
    inputs = leaves(*(x.astype(float) for x in fed.values()))
    wanted = dict(zip(("dw", "ddx", "ddw"), seconds(*inputs), strict=True))
    if words != "--forward":
        gradients = torch.autograd.grad(wanted["ddw"].sum(), inputs)
        wanted = dict(zip(("grad_x", "grad_w", "grad_z"), gradients, strict=True))
    found = run(out, fed)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value.detach(), 1e-4, 1e-4)


def test_nothing_is_differentiated_of_a_forward_graph(tmp_path: Path) -> None:
    model = save(tmp_path, SECOND)
    words = [
        "--forward",
        "--wrt",
        "x",
        "--seed",
        "ones",
        "--split",
        "f.onnx",
        "--check",
    ]
    result = CliRunner().invoke(main, [str(model), *words])
    assert result.exit_code == 2
    assert "leave out --wrt, --seed, --split, --check" in result.stderr


REFUSED = {
    'd = G<xs=["x"], y="no">(x)': "there is no tensor 'no'",
    'd = G<xs=["x"], y="y">(x, x)': "one operand for each name",
    'd, e = G<xs=["x", "x"], y="y">(x, x)': "name a tensor twice",
    'd = G<xs=["i"], y="y">(i)': "'i' is no tensor of floating-point numbers",
    'd = G<xs=["x"], y="i">(x)': "'i', which 'y' names, is no tensor of floating-",
    'd = G<xs=["x"], y="q">(x)\n q = Sin(d)': "'q', which 'y' names, depends on its",
}


@pytest.mark.parametrize("node", REFUSED)
def test_gradients_without_a_meaning_are_refused(tmp_path: Path, node: str) -> None:
    text = f"""net (float[3] x, int64[3] i) => (float[3] d) {{
      y = Sin(x)
      {node} }}"""
    with pytest.raises(UnsupportedError) as raised:
        read(tmp_path, text)
    assert REFUSED[node] in str(raised.value)
    assert "Gradient'" in str(raised.value)


# ---- Optimizers, with settings that single precision has exactly ----

EPSILON = 2.0**-10


def adagrad(r: Any, t: int, x: Any, g: Any, h: Any) -> list[Any]:
    g = 0.125 * x + g
    h = h + g * g
    return [x - r / (1 + t * 0.375) * g / (h.sqrt() + EPSILON), h]


def adam(r: Any, t: int, x: Any, g: Any, v: Any, h: Any) -> list[Any]:
    g = 0.125 * x + g
    v, h = 0.75 * v + 0.25 * g, 0.875 * h + 0.125 * g * g
    rate = r * (1 - 0.875**t) ** 0.5 / (1 - 0.75**t) if t else r
    return [0.9375 * (x - rate * v / (h.sqrt() + EPSILON)), v, h]


def momentum(
    r: Any, t: int, x: Any, g: Any, v: Any, nesterov: bool = False
) -> list[Any]:
    g = 0.125 * x + g
    v = 0.75 * v + (0.625 if t else 1.0) * g
    return [x - r * (g + 0.75 * v if nesterov else v), v]


def nesterov(r: Any, t: int, x: Any, g: Any, v: Any) -> list[Any]:
    return momentum(r, t, x, g, v, nesterov=True)


_DECAY = {"norm_coefficient": 0.125}
_MOMENTUM = {"alpha": 0.75, "beta": 0.625, **_DECAY}
_ADAM = {"alpha": 0.75, "beta": 0.875, "norm_coefficient_post": 0.0625, **_DECAY}
OPTIMIZERS: dict[Any, tuple[str, int, dict[str, Any]]] = {
    adagrad: ("Adagrad", 1, {"decay_factor": 0.375, "epsilon": EPSILON, **_DECAY}),
    adam: ("Adam", 2, {"epsilon": EPSILON, **_ADAM}),
    momentum: ("Momentum", 1, {**_MOMENTUM, "mode": "standard"}),
    nesterov: ("Momentum", 1, {**_MOMENTUM, "mode": "nesterov"}),
}


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("step", OPTIMIZERS)
def test_steps_and_their_gradients(tmp_path: Path, step: Any, steps: int) -> None:
    """Of two variables of different shapes, differentiated by all that is no integer."""
    kind, states, settings = OPTIMIZERS[step]
    shapes = [(2, 3), (4,)]
    names = [f"{letter}{n}" for letter in "xgvh"[: 2 + states] for n in range(2)]
    results = [f"new_{n}" for n in names if n[0] != "g"]
    helper, number = onnx.helper, onnx.TensorProto
    values = [
        helper.make_tensor_value_info("r", number.FLOAT, []),
        helper.make_tensor_value_info("t", number.INT64, []),
        *(
            helper.make_tensor_value_info(n, number.FLOAT, shapes[int(n[1])])
            for n in names
        ),
    ]
    node = helper.make_node(
        kind, ["r", "t", *names], results, domain=DOMAIN, **settings
    )
    outputs = [helper.make_empty_tensor_value_info(n) for n in results]
    graph = helper.make_graph([node], "step", values, outputs)
    opsets = [helper.make_opsetid(DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "m.onnx")

    read_, data = interop.from_onnx(tmp_path / "m.onnx")
    backward = nnef_grad.differentiate(read_, with_outputs=True)
    fed = {n: abs(scalars(*shapes[int(n[1])])) + 0.1 for n in names}
    fed["r"] = np.array(0.3)
    cotangents = [scalars(*shapes[int(n[-1])]) for n in results]
    seeds = dict(zip(backward.seeds.values(), cotangents, strict=True))
    given = {**fed, **seeds, "t": np.array(steps)}
    found = nnef_grad.evaluate(backward.graph, given, data)

    inputs = dict(zip(fed, leaves(*fed.values()), strict=True))
    pairs = [
        step(inputs["r"], steps, *(inputs[n] for n in names[place::2]))
        for place in range(2)
    ]
    wanted = [x for pair in zip(*pairs, strict=True) for x in pair]
    for name, value in zip(results, wanted, strict=True):
        close(found[name], value)
    weights = [torch.tensor(x) for x in cotangents]
    gradients = torch.autograd.grad(wanted, list(inputs.values()), weights)
    for name, value in zip(inputs, gradients, strict=True):
        close(found[backward.gradients[name]], value)


def test_operands_of_an_optimizer_are_complete(tmp_path: Path) -> None:
    text = f"""net (float r, int64 t, float[3] x, float[3] g) => (float[3] y, float[3] h) {{
      y, h = {DOMAIN}.Adagrad(r, t, x, g) }}"""
    with pytest.raises(UnsupportedError, match="it needs 3 operands a variable"):
        read(tmp_path, text)
