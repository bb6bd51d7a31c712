"""Inputs that become constants, in documents and programs: what follows from them is computed
while they are read, and the rest has the gradients that it had.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

import nnef_grad
from nnef_grad.base.errors import UsageError
from nnef_grad.commandline.cli import main

Array = npt.NDArray[Any]

TEXT = """version 1.0;
graph net( x, mask, scale ) -> ( y, twice )
{
    x = external<scalar>(shape = [2, 3]);
    mask = external<logical>(shape = [2, 3]);
    scale = external<scalar>(shape = []);
    weight = variable<scalar>(shape = [1, 3], label = 'weight');
    off = select(mask, 0.0, -10000.0);
    factor = mul(scale, 2.0);
    score = add(mul(mul(x, weight), factor), off);
    y = softmax(score, axes = [1]);
    twice = copy(factor);
}
"""
DIALECT = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
graph net( x, i ) -> ( y )
{
    x = tract_core_external(shape = [B, 4], datum_type = 'f32');
    i = tract_core_external(shape = [2], datum_type = 'i64');
    y = tract_core_gather(x, i, axis = 1);
}
"""
MASK = np.array([[True, True, False], [True, False, False]])


def feeds(seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    shapes = {"x": (2, 3), "grad_y": (2, 3), "grad_twice": ()}
    return {name: generator.standard_normal(s) for name, s in shapes.items()}


@pytest.mark.parametrize("mask", [True, 1, MASK])
@pytest.mark.parametrize("scale", [None, 1.5])
def test_gradients_are_those_of_the_inputs_with_these_numbers(
    mask: Any, scale: float | None
) -> None:
    constants = {"mask": mask, **({} if scale is None else {"scale": scale})}
    graph = nnef_grad.loads(TEXT, constants=constants)
    whole = nnef_grad.loads(TEXT)
    data, given = {"weight": np.array([[0.5, -1.0, 2.0]])}, feeds()
    before, now = map(nnef_grad.differentiate, (whole, graph))
    whole_mask = np.broadcast_to(np.asarray(mask, bool), (2, 3))
    fed: dict[str, Any] = {**given, "mask": whole_mask, "scale": scale or 1.5}
    wanted = nnef_grad.evaluate(before.graph, fed, data)
    own = {n: fed[n] for n in now.graph.input_names}
    found = nnef_grad.evaluate(now.graph, own, data)
    assert set(wanted) - set(found) == (set() if scale is None else {"grad_scale"})
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-12)


def test_what_follows_from_constants_is_computed() -> None:
    graph = nnef_grad.loads(TEXT, constants={"mask": MASK, "scale": 1.5})
    names = [op.name for op in graph.operations]
    assert names == ["external", "variable", "mul", "mul", "constant", "add",
                     "softmax", "copy"]  # fmt: skip
    assert graph.tensors["off"].shape == (2, 3)
    assert graph.output_names == ("y", "twice")


def test_a_mask_of_ones_is_gone() -> None:
    graph = nnef_grad.loads(TEXT, constants={"mask": 1, "scale": 0.5})
    assert [op.name for op in graph.operations] == [
        "external", "variable", "mul", "softmax", "copy",
    ]  # fmt: skip


def test_results_in_lists_and_operations_of_the_user() -> None:
    text = """version 1.0;
    extension KHR_enable_fragment_definitions;
    fragment own( a: tensor<scalar>, b: tensor<scalar> ) -> ( y: tensor<scalar> );
    graph net( x, k ) -> ( y, z )
    {
        x = external<scalar>(shape = [2, 3]);
        k = external<scalar>(shape = [2, 3]);
        [p, q, r] = split(k, axis = 1, ratios = [1, 1, 1]);
        c = concat([p, x, mul(q, 2.0)], axis = 1);
        [u, v] = split(c, axis = 1, ratios = [2, 3]);
        y = own(u, p);
        z = copy(v);
    }
    """
    rules = nnef_grad.loads_rules(
        """fragment own( a: tensor<scalar>, b: tensor<scalar> ) -> ( y: tensor<scalar> );
        fragment own_shape( a: tensor<scalar>, b: tensor<scalar> ) -> ( y: tensor<scalar> )
        { y = a; }
        fragment own_vjp( a: tensor<scalar>, b: tensor<scalar>, y: tensor<scalar>,
            dy: tensor<scalar> )
        -> ( da: tensor<scalar>, db: tensor<scalar> )
        { da = mul(dy, b); db = sum_reduce(dy, axes = [1]); }"""
    )
    array = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    graph = nnef_grad.loads(text, rules=rules, constants={"k": array})
    backward = nnef_grad.differentiate(graph, rules=rules)
    assert list(backward.gradients) == ["x"]
    seeds = {"grad_y": np.ones((2, 2)), "grad_z": np.full((2, 3), 10.0)}
    found = nnef_grad.evaluate(backward.graph, {"x": np.zeros((2, 3)), **seeds})
    np.testing.assert_allclose(found["grad_x"], [[1, 10, 10], [4, 10, 10]])


def test_the_dialect_of_tract() -> None:
    graph = nnef_grad.loads(DIALECT, constants={"i": np.array([-1, 2])})
    assert graph.input_names == ("x",)
    x = np.arange(8.0).reshape(2, 4)
    found = nnef_grad.evaluate(graph, {"x": x})
    np.testing.assert_array_equal(found["y"], x[:, [-1, 2]])
    assert str(graph.tensors["x"].shape[0]) == "B"


def test_an_array_decides_a_symbol() -> None:
    text = DIALECT.replace("shape = [2]", "shape = [B]")
    graph = nnef_grad.loads(text, constants={"i": np.array([0, 1, 3])})
    assert graph.tensors["x"].shape == (3, 4)


def test_programs_of_torch(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return torch.softmax(x.masked_fill(mask == 0, -1e9) * mask.sum(), -1)

    x = torch.randn(2, 3, dtype=torch.float64)
    mask = torch.tensor(MASK)
    program = torch.export.export(Net(), (x, mask))
    torch.export.save(program, tmp_path / "net.pt2")
    for module in (program, tmp_path / "net.pt2"):
        model = nnef_grad.interop.from_torch(module, constants={"mask": MASK})
        assert model.graph.input_names == ("x",)
        assert "reduce" not in str([op.name for op in model.graph.operations])
        backward = nnef_grad.differentiate(model.graph)
        seed = np.random.default_rng(3).standard_normal((2, 3))
        found = nnef_grad.evaluate(
            backward.graph, {"x": x.numpy(), "grad_output": seed}
        )
        leaf = x.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(Net()(leaf, mask), leaf, torch.tensor(seed))
        np.testing.assert_allclose(found["grad_x"], wanted, rtol=1e-6, atol=1e-12)
    with pytest.raises(UsageError, match="the program has no input 'masks'; did you"):
        nnef_grad.interop.from_torch(program, constants={"masks": MASK})


# ---- The command line ----


def test_the_command_takes_numbers_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.nnef").write_text(TEXT)
    np.savez("mask.npz", mask=MASK)
    words = ["net.nnef", "--constant", "mask.npz", "--constant", "scale=1.5"]
    result = CliRunner().invoke(main, [*words, "-o", "out.nnef"])
    assert result.exit_code == 0, result.output
    wanted = nnef_grad.loads(TEXT, constants={"mask": MASK, "scale": 1.5})
    backward = nnef_grad.differentiate(wanted)
    assert nnef_grad.load("out.nnef") == nnef_grad.loads(nnef_grad.dumps(backward))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("mask=2", "the constant 'mask' is of type logical, and 2 is not"),
        ("mask=yes", "--constant expects NAME=X, a number, or FILE.npz and got"),
        ("scale=", "--constant expects NAME=X, a number, or FILE.npz and got"),
        ("masc=1", "the graph has no input 'masc'; did you mean 'mask'?"),
        ("other.npz", "cannot read 'other.npz': No such file"),
        ("net.nnef", "'net.nnef' has no arrays of numpy.savez: it is not called x.npz"),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.nnef").write_text(TEXT)
    words = ["net.nnef", "--constant", option, "-o", "out.nnef"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert message in result.output
    assert not Path("out.nnef").exists()
