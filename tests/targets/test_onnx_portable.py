"""ONNX for any engine: what some lack, or compute wrong, is in no file of the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.processes import python

import nnef_grad
from nnef_grad import interop

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
onnxruntime = pytest.importorskip("onnxruntime")

Arrays = dict[str, npt.NDArray[Any]]

_CONV = "w = variable(shape = [3, 2, 3, 3], label = 'w'); "
# Their results are y, their operands x, and i, which is an index.
MODELS = {
    "pool": "y = max_pool(x, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], padding ="
    " [(0, 0), (0, 0), (1, 1), (1, 1)], border = 'ignore');",
    "overlapping": "y = max_pool(x, size = [1, 1, 2, 2], stride = [1, 1, 1, 1],"
    " padding = [(0, 0), (0, 0), (0, 0), (0, 0)], border = 'ignore');",
    "conv": f"{_CONV} y = conv(x, w, stride = [2, 2], padding = [(1, 1), (1, 1)]);",
    "deconv": "w = variable(shape = [2, 3, 3, 3], label = 'w');"
    "y = deconv(x, w, stride = [2, 2], padding = [(1, 0), (1, 0)]);",
    "rows": "w = variable(shape = [7, 4], label = 'w');"
    "flat = squeeze(max_reduce(x, axes = [1, 2, 3]), axes = [1, 2, 3]);"
    "rows = gather(w, i, axis = 0); y = mul(rows, flat);",
}


def _document(name: str) -> nnef_grad.Graph:
    # Of what no gradient reaches, there is nothing to say.
    index = "i = external<integer>(shape = [2]);" if name == "rows" else ""
    inputs = "x, i" if name == "rows" else "x"
    return nnef_grad.loads(
        f"version 1.0; graph net({inputs}) -> (y) {{ x = external(shape = [2, 2, 7, 7]);"
        f" {index} {MODELS[name]} }}"
    )


def _written(folder: Path, name: str, target: str) -> tuple[Path, Arrays, Arrays]:
    """A file of gradients, what it is fed, and what it returns by the interpreter."""
    graph, random = _document(name), np.random.default_rng(5)
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    variables = zip(graph.labels.values(), graph.variables, strict=True)
    data = {label: random.standard_normal(x.shape) for label, x in variables}
    path = folder / f"{name}.onnx"
    interop.to_onnx(backward, path, data, target=target)
    fed = {
        n: random.integers(0, 7, x.shape)
        if x.dtype == "integer"
        else random.standard_normal(x.shape).astype(np.float32)
        for n, x in zip(backward.graph.input_names, backward.graph.inputs, strict=True)
    }
    return path, fed, nnef_grad.evaluate(backward, fed, data)


@pytest.mark.parametrize("name", MODELS)
def test_a_file_for_any_engine(tmp_path: Path, name: str) -> None:
    path, fed, wanted = _written(tmp_path, name, "onnx-portable")
    model = onnx.load(path)
    (version,) = (o.version for o in model.opset_import)
    assert version <= 18
    for node in model.graph.node:
        assert node.op_type not in ("ScatterND", "ScatterElements"), node
        assert node.op_type != "MaxPool" or len(node.output) == 1, node
    session = onnxruntime.InferenceSession(path)
    names = [x.name for x in session.get_outputs()]
    made = dict(zip(names, session.run(None, fed), strict=True))
    results = onnx.reference.ReferenceEvaluator(model).run(None, fed)
    for place, array in zip(names, results, strict=True):
        np.testing.assert_allclose(made[place], array, 1e-4, 1e-5)
    for place, array in wanted.items():
        np.testing.assert_allclose(made[place], array, 1e-4, 1e-5)


def test_files_for_onnx_runtime_have_what_is_fast_there(tmp_path: Path) -> None:
    kinds = set()
    for name in ("pool", "rows"):
        path, _, _ = _written(tmp_path, name, "onnx")
        kinds |= {node.op_type for node in onnx.load(path).graph.node}
    assert kinds & {"ScatterND", "ScatterElements"}


def test_other_targets_are_no_targets_of_files(tmp_path: Path) -> None:
    with pytest.raises(nnef_grad.UsageError, match="'onnx' or 'onnx-portable'"):
        interop.to_onnx(_document("conv"), tmp_path / "x.onnx", {}, target="tract")


# Feeds a file to an engine, and saves what it returns.
_ENGINES = {
    "tinygrad": """
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner
made = {n: y.numpy() for n, y in OnnxRunner(path)({n: Tensor(x) for n, x in fed.items()}).items()}
""",
    "tvm": """
import onnx, tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
model = onnx.load(path)
module = relax.transform.LegalizeOps()(from_onnx(model, keep_params_in_input=False))
machine = relax.VirtualMachine(relax.build(module, 'llvm'), tvm.cpu())
results = machine['main'](*[tvm.runtime.tensor(fed[x.name]) for x in model.graph.input])
made = {x.name: y.numpy() for x, y in zip(model.graph.output, results)}
""",
    "iree.runtime": """
import onnx, pathlib, subprocess, sys
import iree.runtime as runtime
model, tools = onnx.load(path), pathlib.Path(sys.executable).parent
subprocess.run([tools / 'iree-import-onnx', path, '-o', 'm.mlir'], check=True)
device = ['--iree-hal-target-device=local', '--iree-hal-local-target-device-backends=llvm-cpu']
subprocess.run([tools / 'iree-compile', *device, 'm.mlir', '-o', 'm.vmfb'], check=True)
context = runtime.SystemContext(config=runtime.Config('local-task'))
module = runtime.VmModule.mmap(context.instance, 'm.vmfb')
context.add_vm_module(module)
run = context.modules[module.name][model.graph.name]
results = run(*[fed[x.name] for x in model.graph.input])
made = {x.name: y.to_host() for x, y in zip(model.graph.output, results)}
""",
}


@pytest.mark.parametrize("engine", _ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_engines_compute_it_right(tmp_path: Path, engine: str, name: str) -> None:
    """Each in a process of its own: `pip install 'nnef-grad[engines]'`."""
    pytest.importorskip(engine)
    path, fed, wanted = _written(tmp_path, name, "onnx-portable")
    np.savez(tmp_path / "fed.npz", **fed)  # type: ignore[arg-type]
    done = python(
        f"import numpy as np\npath, fed = {str(path)!r}, dict(np.load('fed.npz'))\n"
        f"{_ENGINES[engine]}\nnp.savez('made.npz', **made)",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    made = np.load(tmp_path / "made.npz")
    for place, array in wanted.items():
        np.testing.assert_allclose(made[place], array, 1e-3, 1e-4)
