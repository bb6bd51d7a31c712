"""Quantization info: read, checked, carried over, written, beside the Khronos parser."""

from __future__ import annotations

from typing import Any

import nnef
import numpy as np
import pytest

import nnef_grad
from nnef_grad.emit.quantization import OPERATIONS, read_quantization
from nnef_grad.graph.ir import Quantization
from nnef_grad.graph.passes import carry_quantization
from nnef_grad.graph.printer import print_quantization
from nnef_grad.language.library import STDLIB, Library, with_fragments
from nnef_grad.language.parser import parse_document

MODEL = """version 1.0;

graph net( x ) -> ( y, k )
{
    x = external(shape = [2, 3, 4, 4]);
    filter = variable(shape = [5, 3, 1, 1], label = 'conv/filter');
    bias = variable(shape = [1, 5], label = 'conv/bias');
    conv = conv(x, filter, bias);
    y = relu(conv);
    k = argmax_reduce(y, axes = [1]);
}
"""
GRAPH = nnef_grad.loads(MODEL)

FRAGMENTS = """extension KHR_enable_fragment_definitions;

fragment round_to( x: tensor<scalar>, step: tensor<scalar>, places: integer[] = [1, 2], pair: (logical, string) = (true, 'up') )
-> ( y: tensor<scalar> )
{
    y = mul(round(div(x, step)), step);
}

fragment two( x: tensor<scalar> ) -> ( y: tensor<scalar>, z: tensor<scalar> )
{
    y = copy(x);
    z = copy(x);
}

"""
OWN = MODEL.replace("graph net", FRAGMENTS + "graph net")

MIN_MAX = '"x": min_max_linear_quantize(min = -1.0, max = 1.5, bits = 8, signed = true, symmetric = false);'
ZERO_POINT = '"x": zero_point_linear_quantize(zero_point = -3, scale = 0.1, bits = 4, signed = false, symmetric = true);'
LINEAR = '"x": linear_quantize(min = 0.0, max = 1e-05, bits = 8);'
LOGARITHMIC = '"x": logarithmic_quantize(max = 1e+16, bits = 1);'
PER_CHANNEL = (
    '"x": linear_quantize(min = [[-1.0, 0.0, 0.25]], max = [[1.0], [2.0]], bits = 8);'
)
PER_FILTER = '"filter": zero_point_linear_quantize(zero_point = [0, -1, 2, 3, 4], scale = [0.5, 1.0, 2.0, 4.0, 8.0], bits = 8, signed = true, symmetric = true);'
DEEP = '"bias": logarithmic_quantize(max = [[1.0, 2.0, 3.0, 4.0, 5.0]], bits = 8);'


def of(
    text: str, graph: nnef_grad.Graph = GRAPH, library: Library | None = None
) -> dict[str, Quantization]:
    return read_quantization(nnef_grad.Source("graph.quant", text), graph, library)


def own(text: str) -> dict[str, Quantization]:
    fragments = parse_document(nnef_grad.Source("graph.nnef", OWN)).fragments
    return of(text, nnef_grad.loads(OWN), with_fragments(fragments))


def khronos(model: str, text: str) -> dict[str, dict[str, Any]]:
    tensors = nnef.parse_string(model, text).tensors
    return {name: t.quantization for name, t in tensors.items() if t.quantization}


def same_as_khronos(model: str, text: str, entries: dict[str, Quantization]) -> None:
    theirs = khronos(model, text)
    assert theirs.keys() == entries.keys()
    for name, entry in entries.items():
        assert theirs[name].pop("op-name") == entry.operation.name
        assert theirs[name].keys() == entry.attributes.keys()
        for key, value in theirs[name].items():
            ours = np.array(entry.attributes[key], np.asarray(value).dtype)
            np.testing.assert_array_equal(ours, value, strict=True)


# ---- Reading ----


@pytest.mark.parametrize(
    "text",
    [MIN_MAX, ZERO_POINT, LINEAR, LOGARITHMIC, PER_CHANNEL, PER_FILTER, DEEP],
)
def test_an_entry_is_written_as_it_is_read(text: str) -> None:
    entries = of(text)
    assert print_quantization(entries) == f"{text}\n"
    assert of(print_quantization(entries)) == entries
    same_as_khronos(MODEL, text, entries)


@pytest.mark.parametrize(
    "text",
    [
        "'x': linear_quantize(min = 0.0, max = 1.0, bits = 8);",
        '"x": linear_quantize(bits = 8, max = 1.0, min = 0.0);',
        "'x':linear_quantize(min=0.0,max=1.0,bits=8);",
        "# of x\n'x' # its name\n: linear_quantize(min = 0.0, # low\n max = 1.0, bits = 8) # (\n; # that is all",
        "\r\n'x'\t:\r\n\tlinear_quantize(min = 0.0, max = 1., bits = 008);\r\n",
    ],
)
def test_ways_to_write_one_entry(text: str) -> None:
    entries = of(text)
    assert (
        print_quantization(entries)
        == '"x": linear_quantize(min = 0.0, max = 1.0, bits = 8);\n'
    )
    same_as_khronos(MODEL, text, entries)


@pytest.mark.parametrize("text", ["", "\n", "# nothing is quantized"])
def test_a_file_may_be_empty(text: str) -> None:
    assert not of(text)
    assert not khronos(MODEL, text)
    assert print_quantization({}) == ""


def test_entries_come_in_the_order_of_the_tensors() -> None:
    names = ["y", "filter", "conv", "x", "bias"]
    text = "\n".join(LOGARITHMIC.replace("x", name, 1) for name in names)
    entries = of(text)
    assert list(entries) == ["x", "filter", "bias", "conv", "y"]
    assert [
        line.split('"')[1] for line in print_quantization(entries).splitlines()
    ] == list(entries)
    assert print_quantization(of(print_quantization(entries))) == print_quantization(
        entries
    )
    same_as_khronos(MODEL, print_quantization(entries), entries)


def test_an_entry_knows_its_operation_and_its_place() -> None:
    entry = of(f"\n  {ZERO_POINT}")["x"]
    assert entry.operation is STDLIB["zero_point_linear_quantize"]
    assert str(entry.span) == "graph.quant:2:3"
    assert entry.attributes == {
        "zero_point": -3,
        "scale": 0.1,
        "bits": 4,
        "signed": False,
        "symmetric": True,
    }


def test_the_operations_are_those_that_the_standard_calls_so() -> None:
    assert {n for n in STDLIB if n.endswith("_quantize")} == set(OPERATIONS)


# ---- Operations of the document's own ----


def test_a_fragment_of_the_document_may_quantize() -> None:
    text = "'x': round_to(step = [[0.1, 0.2, 0.3]], pair = (false, 'down'));"
    entries = own(text)
    assert entries["x"].attributes == {
        "step": ((0.1, 0.2, 0.3),),
        "places": (1, 2),
        "pair": (False, "down"),
    }
    theirs = khronos(OWN, text)["x"]
    assert (theirs["places"], theirs["pair"]) == ([1, 2], (False, "down"))


def test_a_flat_graph_has_no_fragments_to_quantize_with() -> None:
    entries = own(f"{LINEAR}\n'y': round_to(step = 0.5);")
    text = print_quantization(entries)
    assert text == (
        f"{LINEAR}\n"
        "# \"y\": round_to(step = 0.5, places = [1, 2], pair = (true, 'up'));\n"
    )
    assert khronos(nnef_grad.dumps(nnef_grad.loads(OWN)), text).keys() == {"x"}


# ---- The backward graph ----


def test_entries_travel_to_the_backward_graph() -> None:
    names = ["x", "filter", "bias", "conv", "y"]
    entries = of("\n".join(LOGARITHMIC.replace("x", name, 1) for name in names))
    backward = nnef_grad.differentiate(GRAPH)
    carried = carry_quantization(entries, backward.graph)
    assert list(carried) == list(entries)
    assert carried == entries
    text = print_quantization(carried)
    assert of(text, backward.graph) == carried
    same_as_khronos(nnef_grad.dumps(backward), text, carried)


def test_a_made_tensor_does_not_take_the_entry_of_a_forward_one() -> None:
    body = """    x = external(shape = [2, 3]);
    mask_y = exp(x);
    grad_h = add(mask_y, x);
    h = add(x, 1.0);
    y = relu(h);
"""
    model = f"version 1.0;\ngraph net( x ) -> ( y, grad_h )\n{{\n{body}}}\n"
    graph = nnef_grad.loads(model)
    entries = of("\n".join(LINEAR.replace("x", n, 1) for n in graph.tensors), graph)
    backward = nnef_grad.differentiate(graph, outputs=["y"])
    kept = carry_quantization(entries, backward.graph)
    assert kept.keys() == {"x", "h", "y"}
    assert {"mask_y_1", "grad_x"} <= backward.graph.tensors.keys()
    again = nnef_grad.differentiate(backward.graph, wrt=["grad_y"])
    assert carry_quantization(kept, again.graph).keys() == kept.keys()


# ---- Errors ----

ERRORS = [
    # The text
    (
        "x: linear_quantize(min = 0.0, max = 1.0, bits = 8);",
        "1:1: unexpected 'x'; expected the end of the text or a string",
    ),
    (
        f"version 1.0;\n{LINEAR}",
        "1:1: unexpected 'version'; expected the end of the text or a string",
    ),
    ('"x" = linear_quantize();', "1:5: unexpected '='; expected ':'"),
    (
        '"x": linear_quantize;',
        "1:21: unexpected ';'; expected a type in angle brackets or '('",
    ),
    (f"{LINEAR[:-1]}", "1:54: the text ends too early; expected ';'"),
    (f"{LINEAR[:-2]},);", "1:55: unexpected ')'; expected an expression"),
    (f"{LINEAR[:-2]}, x);", "1:56: an argument needs its keyword here"),
    ("'x: linear_quantize();", "1:1: a string that does not end on its line"),
    # The tensor
    (
        LINEAR.replace('"x"', '"filtre"'),
        "1:1: the graph has no tensor 'filtre'; did you mean 'filter'?",
    ),
    (LINEAR.replace('"x"', '""'), "1:1: the graph has no tensor ''"),
    (
        LINEAR.replace('"x"', "'conv/filter'"),
        "1:1: the graph has no tensor 'conv/filter': this is a label, and the tensor is called 'filter'",
    ),
    (
        f"# low\n{LINEAR}\n {LOGARITHMIC}",
        "3:2: 'x' has its quantization already, in line 2",
    ),
    (
        LINEAR.replace('"x"', '"k"'),
        "1:1: argument 'x' of 'linear_quantize' must be tensor<scalar>, not tensor<integer>",
    ),
    # The operation
    (
        LINEAR.replace("linear", "liner"),
        "1:6: there is no operation 'liner_quantize'; did you mean 'linear_quantize'?",
    ),
    ("'x': quantize();", "1:6: there is no operation 'quantize'"),
    (
        "'x': softmax(axes = [1]);",
        f"1:6: 'softmax' does not quantize; the operations that do: {', '.join(OPERATIONS)}",
    ),
    (
        LINEAR.replace("(", "<scalar>(", 1),
        "1:6: 'linear_quantize' takes no data type here",
    ),
    # The arguments
    (
        "'x': linear_quantize(0.0, max = 1.0, bits = 8);",
        "1:22: an argument needs its keyword here",
    ),
    (
        LINEAR.replace("(", "(x = 1.0, "),
        "1:22: argument 'x' of 'linear_quantize' is given twice",
    ),
    (
        LINEAR.replace("bits", "bit"),
        "1:46: 'linear_quantize' has no parameter 'bit'; did you mean 'bits'?",
    ),
    (
        LINEAR.replace(")", ", signed = true)"),
        "1:56: 'linear_quantize' has no parameter 'signed'; it has x, min, max, bits",
    ),
    (
        LINEAR.replace(")", ", max = 2.0)"),
        "1:56: argument 'max' of 'linear_quantize' is given twice",
    ),
    (
        "'x': linear_quantize(max = 1.0);",
        "1:6: 'linear_quantize' needs 'min' and 'bits'",
    ),
    # The values
    (
        LINEAR.replace("0.0", "0"),
        "1:28: argument 'min' of 'linear_quantize' must be tensor<scalar>, not integer: write 0.0",
    ),
    (
        LINEAR.replace("0.0", "[0.0, -1]"),
        "1:34: the items of an array must be of one type, but this is integer",
    ),
    (
        LINEAR.replace("0.0", "(0.0, 1.0)"),
        "1:28: argument 'min' of 'linear_quantize' must be tensor<scalar>, not (scalar, scalar)",
    ),
    (
        LINEAR.replace("0.0", "conv"),
        "1:28: 'conv' is not defined",
    ),
    (
        LINEAR.replace("8", "4 + 4"),
        "1:53: 'bits' must consist of literals here",
    ),
    (
        LINEAR.replace("8", "[8]"),
        "1:53: argument 'bits' of 'linear_quantize' must be integer, not integer[]",
    ),
    (
        LINEAR.replace("8", "true"),
        "1:53: argument 'bits' of 'linear_quantize' must be integer, not logical",
    ),
    (
        LINEAR.replace("8", "2147483648"),
        "1:53: integer 2147483648 does not fit in 32 bits",
    ),
    (
        LINEAR.replace("8", "4000000000"),
        "1:53: integer 4000000000 does not fit in 32 bits",
    ),
    (
        LINEAR.replace("0.0", "-1e400"),
        "1:28: this scalar is too large",
    ),
    (
        LINEAR.replace("0.0", "[[0.0, 1.0, 2.0], [0.0]]"),
        "1:6: linear_quantize: the arrays of 'min' differ in length",
    ),
    (
        LINEAR.replace("0.0", "[0.0, [1.0]]"),
        "1:34: the items of an array must be of one type, but this is scalar[]",
    ),
    (
        LINEAR.replace("0.0", "[[], []]"),
        "1:6: linear_quantize: 'min' of shape [2, 0] cannot be broadcast to 'x' of shape [2, 3, 4, 4]",
    ),
    (
        LINEAR.replace("0.0", "[0.0, 1.0, 2.0]"),
        "1:6: linear_quantize: 'min' of shape [3] cannot be broadcast to 'x' of shape [2, 3, 4, 4]",
    ),
    (
        LINEAR.replace("8", "0"),
        "1:6: linear_quantize: 'bits' must be positive, but is 0",
    ),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_an_error_says_what_and_where(text: str, message: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        of(text)
    (problem,) = caught.value.problems
    assert str(problem).splitlines()[0] == f"graph.quant:{message}".replace(
        ": ", ": error: ", 1
    )


def test_errors_inside_the_attributes_of_a_fragment() -> None:
    text = "'x': round_to(step = 1.0, places = [1.0, 2.0], pair = (true, 1));\n'y': round_to(step = 1.0, pair = (true, 'a', 1), places = []);\n'conv': two();"
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        own(text)
    assert [
        f"{p.span.column}: {p.message}" for p in caught.value.problems if p.span
    ] == [
        "37: argument 'places' of 'round_to' must be integer[], not scalar[]",
        "62: argument 'pair' of 'round_to' must be (logical, string), not (logical, integer)",
        "34: argument 'pair' of 'round_to' must be (logical, string), not (logical, string, integer)",
        f"9: 'two' does not quantize; the operations that do: {', '.join(OPERATIONS)}, round_to",
    ]


def test_all_that_is_wrong_is_said_at_once_and_in_order() -> None:
    text = """\
"filtre": linear_quantize(min = 0, max = 1.0, bits = 8.0);
"x": linear_quantize(mean = 0.0, min = [], bits = 8, bits = 0, max = 1.0);
"y": linear_quantize(min = 0.0, max = 1.0, bits = -8);
"y": nothing(min = 0);
"""
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        of(text)
    places = [(p.span.line, p.span.column) for p in caught.value.problems if p.span]
    assert places == [
        (1, 1), (1, 33), (1, 54), (2, 22), (3, 6), (4, 1), (4, 6),
    ]  # fmt: skip
    assert str(caught.value).count("error: ") == len(places)
    assert caught.value.message.startswith("the graph has no tensor 'filtre'")


def test_arrays_that_are_nested_too_deeply_are_refused() -> None:
    text = LINEAR.replace("0.0", "[" * 3000 + "0.0" + "]" * 3000)
    with pytest.raises(nnef_grad.InvalidGraphError, match="nested too deeply"):
        of(text)
