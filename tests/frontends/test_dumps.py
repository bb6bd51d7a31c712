"""What tract writes of ONNX files, with and without extended identifiers. The original file in
ONNX Runtime says what it computes, central differences say the gradients, and tract loads what
is made of it, with the names of the dump.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tract
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import nnef_grad
from nnef_grad.base.errors import NnefGradError
from nnef_grad.commandline.cli import main
from nnef_grad.commandline.fmt_cli import main as fmt

# The operation and its gates; the last one is a call of tract's own, and no loop in the dump.
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "GRU with a bias of its own": 3}
STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 3, 4
PROPERTIES = {"author": 'a "b" \\ c', "text": "two\nlines", "名": "模型"}


def written(
    nodes: list[Any], inputs: Any, outputs: Any, weights: Any, path: Path
) -> Path:
    """An ONNX file of these nodes, with metadata of any text."""
    ends = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in of.items()]
        for of in (inputs, outputs)
    ]
    initializers = [numpy_helper.from_array(x, name) for name, x in weights.items()]
    graph = helper.make_graph(nodes, "g", *ends, initializers)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    helper.set_model_props(model, PROPERTIES)
    onnx.save(model, str(path))
    return path


def recurrent(kind: str, steps: Any, folder: Path) -> Path:
    random, gates = np.random.default_rng(3), GATES[kind]
    shapes = {
        "enc/W": (1, gates * HIDDEN, INPUTS),
        "enc/R": (1, gates * HIDDEN, HIDDEN),
        "enc/B": (1, 2 * gates * HIDDEN),
    }
    weights = {n: random.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    names = ["x:0", *weights]
    settings = {"linear_before_reset": 1} if "bias" in kind else {}
    kind = kind.split()[0]
    node = helper.make_node(
        kind, names, ["y.seq"], hidden_size=HIDDEN, name=f"enc/{kind}", **settings
    )
    inputs = {"x:0": [steps, BATCH, INPUTS]}
    outputs = {"y.seq": [steps, 1, BATCH, HIDDEN]}
    return written([node], inputs, outputs, weights, folder / f"{kind}.onnx")


def convolution(folder: Path) -> Path:
    random = np.random.default_rng(4)
    weights = {"conv2d_5/kernel": random.normal(size=(5, 2, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node(
            "Conv", ["in:0", *weights], ["a b;c"], pads=[1] * 4, name="conv"
        ),
        helper.make_node("Tanh", ["a b;c"], ['it\'s\n"t"\\'], name='it\'s\n"t"\\'),
        helper.make_node("Mul", ['it\'s\n"t"\\', "a b;c"], ["out:0"], name="mul"),
    ]
    inputs, outputs = {"in:0": [1, 2, 4, 4]}, {"out:0": [1, 5, 4, 4]}
    return written(nodes, inputs, outputs, weights, folder / "conv.onnx")


def dumped(path: Path, *, extended: bool) -> Path:
    """What tract writes of an ONNX file."""
    registries = tract.nnef().with_onnx().with_tract_extra().with_tract_transformers()
    if extended:
        registries = registries.with_extended_identifier_syntax()
    folder = path.with_suffix(".extended" if extended else ".plain")
    registries.write_model_to_dir(
        tract.onnx().load(str(path)).into_model(), str(folder)
    )
    return folder


def in_tract(folder: Path, fed: dict[str, Any]) -> dict[str, Any]:
    """What a model in a folder makes of its inputs, by name."""
    model = tract.nnef().with_onnx().load(str(folder))
    names = [model.input_name(i) for i in range(model.input_count())]
    assert {*names} == {*fed}
    made = model.into_runnable().run([fed[name] for name in names])
    outputs = nnef_grad.load(folder).output_names
    return dict(zip(outputs, (y.to_numpy() for y in made), strict=True))


def check(path: Path, folder: Path, tmp_path: Path, x: str, w: str) -> None:
    """Forward values against ONNX Runtime, gradients against differences, both in tract."""
    random = np.random.default_rng(5)
    graph, data = nnef_grad.load(folder), nnef_grad.load_data(folder)
    session = onnxruntime.InferenceSession(str(path))
    (own,) = session.get_inputs()
    shape = [STEPS if isinstance(n, str) else n for n in own.shape]
    value = random.normal(size=shape).astype(np.float32)
    (expected,) = session.run(None, {own.name: value})
    (y,) = nnef_grad.evaluate(graph, {x: value}, data).values()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    dy = random.normal(size=expected.shape).astype(np.float32)
    backward = nnef_grad.differentiate(graph, wrt=[x, w])
    (seed,) = backward.seeds.values()
    gradients = nnef_grad.evaluate(
        backward.graph,
        {x: value, seed: dy},
        {n: np.asarray(a, np.float64) for n, a in data.items()},
    )
    assert list(gradients) == [f"grad_{x}", f"grad_{w}"]
    checked = nnef_grad.check(graph, backward, variables=data)
    assert [row.verdict for row in checked.gradients] == ["ok", "ok"]
    lowered = nnef_grad.lower(backward.graph, "tract")
    whole = {**data, **lowered.data}
    nnef_grad.save(lowered.graph, tmp_path / "backward", data=whole)
    made = in_tract(tmp_path / "backward", {x: value, seed: dy})
    for name, gradient in gradients.items():
        np.testing.assert_allclose(made[name], gradient, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("steps", [STEPS, "T"])
@pytest.mark.parametrize("extended", [False, True])
def test_recurrent_layers(
    kind: str, steps: Any, *, extended: bool, tmp_path: Path
) -> None:
    """The body of a scan has names that its call spells as they were in the file."""
    path = recurrent(kind, steps, tmp_path)
    folder = dumped(path, extended=extended)
    labels = nnef_grad.load(folder).labels
    weight = next(n for n in labels if nnef_grad.load(folder).tensors[n].rank == 2)
    check(path, folder, tmp_path, "x:0" if extended else "x_0", weight)


def test_names_of_any_text(tmp_path: Path) -> None:
    path = convolution(tmp_path)
    folder = dumped(path, extended=True)
    text = (folder / "graph.nnef").read_text("utf-8")
    # tract does not read what it writes of a single quote.
    (folder / "graph.nnef").write_text(text.replace("it's", "it\\'s"), "utf-8")
    graph = nnef_grad.load(folder)
    assert {"in:0", "out:0", "conv2d_5/kernel.0", 'it\'s\n"t"\\'} <= {*graph.tensors}
    check(path, folder, tmp_path, "in:0", "conv2d_5/kernel.0")
    again = nnef_grad.loads(nnef_grad.dumps(graph))
    assert again == graph
    assert again.tensors.keys() == graph.tensors.keys()


def test_what_is_loaded_is_written_for_tract_again(tmp_path: Path) -> None:
    """With the names and the files that it had."""
    path = convolution(tmp_path)
    folder = dumped(path, extended=True)
    graph, data = nnef_grad.load(folder), nnef_grad.load_data(folder)
    nnef_grad.save(graph, tmp_path / "again", data=data)
    value = np.random.default_rng(6).normal(size=(1, 2, 4, 4)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(str(path)).run(None, {"in:0": value})
    made = in_tract(tmp_path / "again", {"in:0": value})
    np.testing.assert_allclose(made["out:0"], expected, rtol=1e-4, atol=1e-5)
    assert {p.name for p in tmp_path.glob("again/**/*.dat")} == {"kernel.0.dat"}


# ---- Commands ----


def run(*words: str, command: Any = main) -> str:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_options_take_the_names_of_the_dump(tmp_path: Path) -> None:
    folder = str(dumped(convolution(tmp_path), extended=True))
    wrt = ["--wrt", "in:0,conv2d_5/kernel.0"]
    for target, outputs in {
        "tract": ("grad_in:0", "grad_conv2d_5/kernel.0"),
        "nnef": ("grad_in_0", "grad_conv2d_5_kernel_0"),
        "portable": ("grad_in_0", "grad_conv2d_5_kernel_0"),
    }.items():
        out = str(tmp_path / target)
        told = run(folder, "-o", out, "--target", target, *wrt, "--check")
        assert "grad_conv2d_5/kernel.0" in told
        assert "all agree" in told
        made = nnef_grad.load(out)
        assert made.output_names == outputs
        text = nnef_grad.dumps(made)
        assert ("extension tract_registry tract_core;" in text) == (target == "tract")
    out = str(tmp_path / "backward.onnx")
    run(folder, "-o", out, *wrt)
    made = onnx.load(out)
    assert [x.name for x in made.graph.input] == ["in:0", "grad_out:0"]
    assert [y.name for y in made.graph.output] == [
        "grad_in:0",
        "grad_conv2d_5/kernel.0",
    ]
    assert "conv2d_5/kernel.0" in [x.name for x in made.graph.initializer]


def test_a_dump_is_formatted(tmp_path: Path) -> None:
    folder = dumped(recurrent("GRU", "T", tmp_path), extended=True)
    before = nnef_grad.load(folder)
    run(str(folder / "graph.nnef"), command=fmt)
    assert nnef_grad.load(folder) == before
    assert tract.nnef().load(str(folder)).input_name(0) == "x:0"


# ---- Texts ----

HEAD = "version 1.0;\nextension tract_registry tract_core;\n"


def test_properties_are_comments(tmp_path: Path) -> None:
    folder = dumped(convolution(tmp_path), extended=False)
    notes = nnef_grad.load(folder).notes
    assert any("模型" in note for note in notes)
    assert 'onnx.metadata_props.author = a "b" \\ c' in "\n".join(notes)


def test_strings_of_several_lines() -> None:
    more = "fragment tract_core_properties() -> (p: (string, string)[])\n"
    more += "{\n    p = [('text', 'two\nlines; \"it\\'s\"')];\n}\n"
    text = (
        f"{HEAD}{more}graph net(x) -> (y) {{ x = external(shape = [2]); y = relu(x); }}"
    )
    (note,) = nnef_grad.loads(text).notes
    assert note == 'tract_core_properties: text = twolines; "it\'s"'


def test_standard_documents_have_plain_names() -> None:
    text = (
        'graph net(i"x:0") -> (y) { i"x:0" = external(shape = [2]); y = relu(i"x:0"); }'
    )
    with pytest.raises(NnefGradError) as caught:
        nnef_grad.loads(f"version 1.0;\n{text}")
    assert 'i"x:0" is a name in tract\'s dialect' in str(caught.value)
    assert caught.value.problems[0].remedy == "dialect"
    read = nnef_grad.loads(f"version 1.0;\n{text}", dialect="tract")
    assert read.input_names == ("x:0",)


def test_symbols_of_any_text() -> None:
    """The extension line has the name as it is, and the extents spell it."""
    line = "extension tract_symbol p2o.DynamicDimension.0;\n"
    body = 'x = external(shape = [i"p2o.DynamicDimension.0", 3]); y = tanh(x);'
    graph = nnef_grad.loads(f"{HEAD}{line}graph net(x) -> (y) {{ {body} }}")
    text = nnef_grad.dumps(nnef_grad.differentiate(graph))
    assert line in text
    assert 'shape = [i"p2o.DynamicDimension.0", 3]' in text
    assert nnef_grad.loads(text).inputs[0].shape == graph.inputs[0].shape
    numbers = {"p2o.DynamicDimension.0": 4}
    sized = nnef_grad.loads(text, symbols=numbers)
    assert sized.inputs[0].shape == (4, 3)


def test_quantization_info_has_the_names_of_the_document() -> None:
    text = f'{HEAD}graph net(i"x:0") -> (y) {{ i"x:0" = external(shape = [2]); y = relu(i"x:0"); }}'
    info = 'i"x:0": linear_quantize(min = 0.0, max = 1.0, bits = 8);'
    graph = nnef_grad.loads(text, quant=info)
    assert [*graph.quantization] == ["x:0"]
    from nnef_grad.graph.printer import print_quantization

    assert print_quantization(graph.quantization).startswith('i"x:0": linear_quantize')


def test_axes_of_a_product_that_only_the_result_has() -> None:
    """tract writes layers of recurrent networks this way: they have extent 1."""
    body = "w = external(shape = [5, 3]); x = external(shape = [1, 2, 3]);"
    body += "y = tract_core_einsum([x, w], expr = 'amk,nk->bmdn', acc = 'f32', output = '');"
    graph = nnef_grad.loads(f"{HEAD}graph net(x, w) -> (y) {{ {body} }}")
    random = np.random.default_rng(7)
    x, w = random.normal(size=(1, 2, 3)), random.normal(size=(5, 3))
    (y,) = nnef_grad.evaluate(graph, {"x": x, "w": w}).values()
    np.testing.assert_allclose(y, np.einsum("amk,nk->amn", x, w)[:, :, None])
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
    assert [row.verdict for row in checked.gradients] == ["ok", "ok"]
