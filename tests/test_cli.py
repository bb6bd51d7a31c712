"""The command line: files, pipes, exit codes."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.processes import environment, python

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.graph.extents import as_numbers

MODEL = """version 1.0;

graph net( x, w ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = external(shape = [1, 3]);
    v = variable(shape = [2], label = 'v');
    h = mul(x, w);
    y = add(h, v);
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.nnef"
    path.write_text(MODEL, "utf-8")
    return path


def run(*arguments: object, text: str = "") -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], input=text.encode())


def graph_in(text: str) -> nnef_grad.Graph:
    return nnef_grad.loads(text)


def input_shapes(text: str) -> dict[str, tuple[int, ...]]:
    graph = graph_in(text)
    return {name: as_numbers(graph.tensors[name].shape) for name in graph.input_names}


def test_a_file_to_a_file(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.nnef"
    result = run(model, "-o", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert (
        result.stderr
        == "net: 5 operations in, 8 operations out, 2 reductions inserted, 3 gradients\n"
    )
    assert graph_in(out.read_text("utf-8")).name == "net_backward"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.nnef", "out.nnef"]


def test_a_pipe_to_a_pipe(model: Path) -> None:
    result = run("-", text=MODEL)
    assert result.exit_code == 0
    assert result.stdout == nnef_grad.dumps(
        nnef_grad.differentiate(nnef_grad.load(model))
    )


def test_quiet_says_warnings_only(model: Path) -> None:
    assert run(model, "--quiet").stderr == ""
    unreached = MODEL.replace("y = add(h, v)", "y = exp(h)")
    assert (
        run("-", "-q", text=unreached).stderr
        == "warning: 'v' does not influence 'y': its gradient is zeros\n"
    )


def test_names_come_separated_by_commas_or_one_by_one(model: Path) -> None:
    for options in (["--wrt", "v, h"], ["--wrt", "v", "--wrt", "h"]):
        made = graph_in(run(model, *options).stdout)
        assert made.output_names == ("grad_v", "grad_h")


def test_the_options_reach_the_compiler(model: Path) -> None:
    text = run(
        model, "--wrt", "inputs", "--seed", "ones", "--with-outputs", "--outputs", "y"
    ).stdout
    graph = graph_in(text)
    assert graph.input_names == ("x", "w")
    assert graph.output_names == ("grad_x", "grad_w", "y")


def test_other_shapes_for_the_inputs(model: Path) -> None:
    text = run(model, "--input-shape", "x=2,5", "--input-shape", "w=2,1").stdout
    assert input_shapes(text) == {"x": (2, 5), "w": (2, 1), "grad_y": (2, 5)}


def test_another_batch(model: Path) -> None:
    text = run(
        "-",
        "--batch",
        "2",
        "--wrt",
        "inputs",
        text=MODEL.replace("[1, 3]", "[3, 1]").replace("[2, 3]", "[3, 3]"),
    ).stdout
    assert input_shapes(text) == {
        "x": (2, 3),
        "w": (2, 1),
        "grad_y": (2, 3),
    }


def test_rules_of_the_users_go_first(model: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.nnef"
    rules.write_text(
        "# half of the truth\nfragment mul_vjp( x: tensor<scalar>, y: tensor<scalar>, z: tensor<scalar>, dz: tensor<scalar> )\n"
        "-> ( dx: tensor<scalar>, dy: tensor<scalar> )\n{\n    half = 0.5 * dz;\n    dx = half * y;\n    dy = half * x;\n}\n"
    )
    text = run(model, "--rules", rules).stdout
    assert "half_h = mul(0.5, grad_y);" in text
    assert "grad_x = mul(half_h, w);" in text


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            "fragment mul( x: tensor<scalar> ) -> ( dx: tensor<scalar> ) { dx = x; }",
            "operation 'mul' is already defined",
        ),
        (
            "fragment exp_vjp( x: tensor<scalar> ) -> ( dx: tensor<scalar> ) { dx = x; }",
            "must be (x, y, dy)",
        ),
        (
            "fragment exp_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dz: tensor<scalar> ) { dz = x; }",
            "'dz' is not the gradient of an operand of 'exp': dx",
        ),
        (
            "fragment exp_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> );",
            "has no body",
        ),
        ("graph g( x ) -> ( y ) { y = relu(x); }", "unexpected 'graph'"),
    ],
)
def test_a_rule_that_does_not_fit(
    model: Path, tmp_path: Path, rule: str, message: str
) -> None:
    path = tmp_path / "rules.nnef"
    path.write_text(rule)
    result = run(model, "--rules", path)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith(f"{path}:1:")


def test_a_rule_that_fails_shows_the_operation_and_the_rule(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rules.nnef"
    path.write_text(
        "fragment mul_vjp( x: tensor<scalar>, y: tensor<scalar>, z: tensor<scalar>, dz: tensor<scalar> )\n"
        "-> ( dx: tensor<scalar>, dy: tensor<scalar> )\n{\n    dx = sum_reduce(dz, axes = [5]);\n    dy = dz * x;\n}\n"
    )
    result = run(model, "--rules", path)
    assert result.exit_code == 2
    assert f"{path}:4:10: error: sum_reduce: 'axes' must be in 0..1" in result.stderr
    assert f"{model}:8:9: called from here" in result.stderr


def test_a_rule_is_checked_when_it_is_read(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "rules.nnef"
    path.write_text(
        "fragment exp_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> )\n"
        "-> ( dx: tensor<scalar> )\n{\n    dx = dy * q + 1;\n}\n"
    )
    result = run(model, "--rules", path)
    assert result.exit_code == 2
    assert f"{path}:4:15: error: 'q' is not defined" in result.stderr


def test_a_rule_that_returns_another_shape(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "rules.nnef"
    path.write_text(
        "fragment mul_vjp( x: tensor<scalar>, y: tensor<scalar>, z: tensor<scalar>, dz: tensor<scalar> )\n"
        "-> ( dx: tensor<scalar>, dy: tensor<scalar> )\n{\n    dx = sum_reduce(dz, axes = [0, 1]);\n    dy = dz * x;\n}\n"
    )
    result = run(model, "--rules", path)
    assert result.exit_code == 2
    assert (
        "the rule 'mul_vjp' returns a gradient of shape [1, 1] for operand 'x' of shape [2, 3]"
        in result.stderr
    )


def test_an_existing_file_is_not_replaced_without_force(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.nnef"
    out.write_text("mine")
    result = run(model, "-o", out)
    assert (result.exit_code, out.read_text()) == (2, "mine")
    assert (
        result.stderr == f"error: '{out}' exists already: use --force to replace it\n"
    )
    out.chmod(0o640)
    assert run(model, "-o", out, "--force").exit_code == 0
    assert out.read_text().startswith("version 1.0;")
    assert stat.S_IMODE(out.stat().st_mode) == 0o640


def test_a_mistake_leaves_nothing_after(tmp_path: Path) -> None:
    out = tmp_path / "out.nnef"
    result = run("-", "-o", out, text=MODEL.replace("mul", "mull"))
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_leaves_the_old_file(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.nnef"
    out.write_text("mine")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = run(model, "-o", out, "--force")
    assert result.exit_code == 2
    assert result.stderr == f"error: cannot write '{out}': No space left on device\n"
    assert out.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.nnef", "out.nnef"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["missing.nnef"],
            "error: cannot read 'missing.nnef': No such file or directory\n",
        ),
        (["."], "error: there is no graph.nnef in '.': it is empty\n"),
        (
            ["-", "-o", "no/such/folder/out.nnef"],
            "error: cannot write 'no/such/folder/out.nnef': No such file or directory\n",
        ),
        (
            ["-", "--rules", "missing.nnef"],
            "error: cannot read 'missing.nnef': No such file or directory\n",
        ),
        (["-", "--outputs", ","], "error: no output is named\n"),
        (
            ["-", "--input-shape", "x"],
            "error: --input-shape expects NAME=EXTENT,EXTENT,... and got 'x'\n",
        ),
        (
            ["-", "--input-shape", "x=2,a"],
            "error: --input-shape expects NAME=EXTENT,EXTENT,... and got 'x=2,a'\n",
        ),
        (
            ["-", "--input-shape", "x=0,3"],
            "error: the extents of input 'x' must be positive, but are [0, 3]\n",
        ),
        (["-", "--input-shape", "xx=2,3"], "error: the graph has no input 'xx'\n"),
        (["-", "--wrt", ""], "error: no tensor is named\n"),
        (
            ["-", "--wrt", "variable"],
            "error: the graph has no tensor 'variable'; did you mean 'variables'?\n",
        ),
        (
            ["-", "--wrt", "x,inputs"],
            "error: the graph has no tensor 'inputs': the group 'inputs' stands alone\n",
        ),
    ],
)
def test_mistakes_in_the_call(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, text=MODEL)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-", "--seed", "zeros"],
        ["-", "--batch", "0"],
        ["-", "--nonsense"],
        ["a", "b"],
    ],
)
def test_mistakes_in_the_options(arguments: list[str]) -> None:
    result = run(*arguments, text=MODEL)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "<stdin>: error: the text ends too early; expected 'version'\n"),
        (
            b"\xff\xfe\x00",
            "<stdin>:1:1: error: this is not NNEF text: it is not UTF-8\n",
        ),
        (
            b"PK\x03\x04",
            "<stdin>:1:3: error: this is not NNEF text: it contains a control character\n",
        ),
        (
            b"version 1.0;\r\ngraph",
            "<stdin>:2:5: error: the text ends too early; expected a name\n",
        ),
    ],
)
def test_what_is_no_text_of_nnef(data: bytes, message: str) -> None:
    result = CliRunner().invoke(main, ["-"], input=data)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)


def test_a_byte_order_mark_and_foreign_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.nnef"
    path.write_bytes(b"\xef\xbb\xbf" + MODEL.replace("\n", "\r\n").encode())
    assert run(path).exit_code == 0


def test_a_bug_of_ours_is_called_one(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(nnef_grad, "differentiate", broken)
    result = run(model)
    assert result.exit_code == 1
    assert (
        result.stderr
        == "error: this is a bug in nnef-grad (RuntimeError: oh); set NNEF_GRAD_TRACEBACK=1 to see where\n"
    )


def test_a_reader_that_goes_away_is_no_bug(model: Path) -> None:
    command = f"{sys.executable} -m nnef_grad {model} -q | true"
    done = subprocess.run(
        ["bash", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


def test_the_whole_process(model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nnef_grad", str(model)],
        check=True,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert graph_in(done.stdout).name == "net_backward"


@pytest.mark.parametrize("module", ["torch", "numpy", "nnef", "nnef_tools"])
def test_compiling_text_imports_nothing_heavy(model: Path, module: str) -> None:
    program = (
        "import sys, nnef_grad\n"
        f"nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.load({str(model)!r})))\n"
        f"assert {module!r} not in sys.modules"
    )
    done = python(program)
    assert done.returncode == 0, done.stderr


QUANT = """"x": linear_quantize(min = 0.0, max = 1.0, bits = 8);
"h": linear_quantize(min = -1.0, max = 1.0, bits = 8);
"y": linear_quantize(min = -2.0, max = 2.0, bits = 8);
"""


def test_quantization_info_travels_beside_the_models(
    model: Path, tmp_path: Path
) -> None:
    model.with_suffix(".quant").write_text(QUANT)
    out = tmp_path / "out.nnef"
    assert run(model, "-o", out, "--wrt", "inputs", "-q").exit_code == 0
    # Neither h nor y is needed for the gradients of x and w.
    assert out.with_suffix(".quant").read_text() == QUANT.splitlines(True)[0]
    result = run(model, "-o", out, "-q")
    assert result.exit_code == 2
    assert "exists already" in result.stderr


def test_quantization_info_is_checked(model: Path, tmp_path: Path) -> None:
    path = model.with_suffix(".quant")
    path.write_text(QUANT.replace('"h"', '"hidden"'))
    result = run(model, "-o", tmp_path / "out.nnef")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{path}:2:1: error: ")
    assert not (tmp_path / "out.nnef").exists()


def test_a_graph_without_quantization_info_has_no_file_of_it(
    model: Path, tmp_path: Path
) -> None:
    assert run(model, "-o", tmp_path / "out.nnef", "-q").exit_code == 0
    assert not (tmp_path / "out.quant").exists()


def test_reports_for_programs(model: Path) -> None:
    done = json.loads(run(model, "--format", "json", "--wrt", "x").stderr)
    assert done["warnings"] == []
    assert done["summary"].startswith("net: 5 operations in")
    failed = run("-", "--format", "json", text=MODEL.replace("mul(x, w)", "mul(x, q)"))
    assert failed.exit_code == 2
    (problem,) = json.loads(failed.stderr)["errors"]
    assert problem["message"] == "'q' is not defined"
    assert problem["places"] == [
        {"file": "<stdin>", "line": 8, "column": 16, "end_line": 8, "end_column": 17}
    ]


def test_stop_jacobian_and_gelu(model: Path, tmp_path: Path) -> None:
    stopped = run(model, "--stop", "h", "--wrt", "h,x")
    assert (
        "'x' does not influence 'y' other than through what is stopped"
        in stopped.stderr
    )
    assert "grad_x = constant(shape = [2, 3], value = [0.0]);" in stopped.stdout

    jacobian = run(model, "--jacobian", "--wrt", "v")
    assert [t.shape for t in graph_in(jacobian.stdout).outputs] == [(2, 3, 2)]
    refused = run(model, "--jacobian", "--seed", "ones")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--jacobian takes no seed" in refused.stderr

    text = MODEL.replace("add(h, v)", "gelu(h)")
    assert "gelu" in run("-", text=text).stdout
    sigmoid = run("-", "--gelu", "sigmoid", text=text).stdout
    assert "gelu" not in sigmoid
    assert "mul(1.702, h)" in sigmoid


# ---- Statistics ----


def test_statistics_of_both_graphs_go_to_stderr(model: Path) -> None:
    plain, with_stats = run(model), run(model, "--stats")
    assert with_stats.stdout == plain.stdout
    graph = nnef_grad.load(model)
    found = [nnef_grad.statistics(g) for g in (graph, nnef_grad.differentiate(graph))]
    heading, operations, *_ = with_stats.stderr.splitlines()
    assert heading.split() == [costs.name for costs in found]
    assert operations.split()[1:] == [str(costs.operations) for costs in found]
    assert with_stats.stderr.endswith(plain.stderr)


def test_full_statistics_have_a_line_for_each_operation(model: Path) -> None:
    lines = run(model, "--stats", "full").stderr.splitlines()
    assert lines[1].split() == [
        "operation", "result", "shape", "multiply-adds", "moved", "alive",
    ]  # fmt: skip
    found = nnef_grad.statistics(nnef_grad.load(model)).by_operation
    shown = [line.split()[1] for line in lines[2 : 2 + len(found)]]
    assert shown == [cost.result for cost in found]


@pytest.mark.parametrize("option", [["--stats"], ["--stats", "full"], ["--stats=full"]])
def test_statistics_for_programs(model: Path, option: list[str]) -> None:
    first, _ = run(model, *option, "--format", "json").stderr.splitlines()
    found = json.loads(first)["statistics"]
    costs = nnef_grad.statistics(nnef_grad.load(model))
    data = costs.as_data(by_operation="full" in option[-1])
    assert found["forward"] == json.loads(json.dumps(data))
    assert found["backward"]["name"] == "net_backward"


def test_statistics_before_the_model(model: Path) -> None:
    """The model is no value of the option."""
    result = CliRunner().invoke(main, ["--stats", str(model)])
    assert (result.exit_code, result.stderr.split()[2]) == (0, "operations")


def test_statistics_are_of_the_graph_that_is_written(model: Path) -> None:
    result = run(model, "--stats", "--target", "portable", "-q")
    written = nnef_grad.statistics(graph_in(result.stdout))
    assert result.stderr.splitlines()[1].split()[2] == str(written.operations)


@pytest.mark.parametrize(
    ("target", "wanted"), [("nnef", "f2"), ("tract", "f2"), ("portable", "f4")]
)
def test_data_in_half_precision(target: str, wanted: str, tmp_path: Path) -> None:
    statements = "w = variable(label = 'w', shape = [1, 2]); y = mul(x, w);"
    text = f"version 1.0;\ngraph g(x) -> (y)\n{{\n    x = external(shape = [3, 2]); {statements}\n}}\n"
    data = np.array([[0.1, 2.0]], "f2")
    nnef_grad.save(nnef_grad.loads(text), tmp_path / "model/", data={"w": data})
    result = run(tmp_path / "model", "--target", target, "-o", tmp_path / "out/")
    assert result.exit_code == 0, result.stderr
    stored = nnef_grad.load_data(tmp_path / "out")["w"]
    assert stored.dtype == wanted
    np.testing.assert_array_equal(stored, data)


@pytest.mark.parametrize("most", [2**20, 4])
def test_half_precision_is_cast_in_tract(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is the one of the model; a large variable is cast by parts."""
    tract = pytest.importorskip("tract")
    monkeypatch.setattr("nnef_grad.targets.tract.precision.MOST_FOLDED", most)
    statements = "w = variable(label = 'w', shape = [5, 3]); y = matmul(x, w);"
    text = f"version 1.0;\ngraph g(x) -> (y)\n{{\n    x = external(shape = [2, 5]); {statements}\n}}\n"
    data = np.random.default_rng(0).standard_normal((5, 3)).astype("f2")
    nnef_grad.save(nnef_grad.loads(text), tmp_path / "model/", data={"w": data})
    result = run(
        tmp_path / "model", "--target", "tract", "--wrt", "x", "-o", tmp_path / "out/"
    )
    assert result.exit_code == 0, result.stderr
    files = [tmp_path / folder / "w.dat" for folder in ("model", "out")]
    assert files[0].samefile(files[1])
    assert ("concat" in (tmp_path / "out/graph.nnef").read_text()) == (most == 4)
    seed = np.random.default_rng(1).standard_normal((2, 3)).astype("f4")
    runnable = tract.nnef().load(tmp_path / "out").into_runnable()
    inputs = [np.zeros((2, 5), "f4"), seed][-runnable.input_count() :]
    (found,) = runnable.run(inputs)
    np.testing.assert_allclose(found.to_numpy(), seed @ data.T.astype("f4"), rtol=1e-5)


# ---- Derivatives for each example ----

COLUMNS = """version 1.0;

graph net( x, u ) -> ( y )
{
    x = external(shape = [3, 2]);
    u = external(shape = [1, 3]);
    w = variable(shape = [3, 4], label = 'w');
    y = matmul(mul(w, transpose(u, axes = [1, 0])), tanh(x), transposeA = true);
}
"""
AXES = ["--example-axis", "x=1,y=1", "--example-axis", "u=shared"]


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ([], [(3, 2), (2, 1, 3), (2, 3, 4)]),
        (["--jacobian"], [(2, 4, 3), (2, 4, 1, 3), (2, 4, 3, 4)]),
        (["--hessian", "--wrt", "x"], [(2, 3, 3)]),
        (["--laplacian", "--wrt", "x"], [(4, 2)]),
        (["--saliency"], [(3, 2), (2, 1, 3)]),
        (["--per-example"], [(3, 2), (2, 1, 3), (2, 3, 4)]),
    ],
)
def test_examples_along_other_axes(
    options: list[str], shapes: list[tuple[int, ...]]
) -> None:
    result = run("-", *options, *AXES, text=COLUMNS)
    assert result.exit_code == 0, result.output
    assert [x.shape for x in graph_in(result.stdout).outputs] == shapes


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("x", "--example-axis expects x=1, or x=shared, and got 'x'"),
        ("x=one", "--example-axis expects x=1, or x=shared, and got 'x=one'"),
        ("x=2", "'x', of shape [3, 2], has no axis 2"),
        ("q=0", "the graph has no input or output 'q'"),
    ],
)
def test_axes_that_there_are_not(axes: str, message: str) -> None:
    result = run("-", "--example-axis", axes, text=COLUMNS)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_what_torch_has_is_released_at_the_end() -> None:
    """Its libraries print pages about what is not."""
    code = """
import gc, sys, types
from nnef_grad.__main__ import main
sys.modules["torch"] = types.ModuleType("torch")
sys.argv = ["nnef-grad", "--version"]
try:
    main()
except SystemExit:
    print(gc.get_freeze_count())
"""
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"
