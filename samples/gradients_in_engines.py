"""Gradients in ONNX, in engines for GPUs and phones, here for the processor: IREE, TVM,
tinygrad and MNN, each that is installed.

    pip install . --group engines
    python samples/gradients_in_engines.py
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import nnef_grad
from nnef_grad import interop

MODEL = Path(__file__).with_name("mlp.onnx")
LOCAL = (
    "--iree-hal-target-device=local --iree-hal-local-target-device-backends=llvm-cpu"
)


def main() -> None:
    graph, data = interop.from_onnx(MODEL)
    backward = nnef_grad.differentiate(graph)
    draw = np.random.default_rng(0).standard_normal
    feeds = {
        name: draw(tensor.shape).astype(np.float32)
        for name, tensor in zip(
            backward.graph.input_names, backward.graph.inputs, strict=True
        )
    }
    expected = nnef_grad.evaluate(backward, feeds, data)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mlp_bwd.onnx"
        interop.to_onnx(backward, path, data, target="onnx-portable")
        engines = {"iree": iree, "tvm": tvm, "tinygrad": tinygrad, "MNN": mnn}
        for engine in (f for package, f in engines.items() if find_spec(package)):
            pairs = zip(engine(path, feeds), expected.values(), strict=True)
            error = max(np.abs(found - wanted).max() for found, wanted in pairs)
            print(f"{engine.__name__}: {len(expected)} gradients, error {error:.0e}")


def iree(path, feeds, options=LOCAL, driver="local-sync"):
    import onnx
    from iree import runtime
    from iree.compiler.api import Output, Session, Source
    from iree.compiler.extras.onnx_importer import ModelInfo, NodeImporter
    from iree.compiler.ir import Context

    model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    info = ModelInfo(model)
    text = info.create_module(context=Context()).operation
    NodeImporter.define_function(info.main_graph, text).import_all()

    session, compiled = Session(), Output.open_membuffer()
    session.set_flags("--iree-input-type=onnx", *options.split())
    invocation = session.invocation()
    invocation.parse_source(Source.wrap_buffer(session, str(text).encode()))
    if not invocation.execute():
        raise ValueError("IREE does not compile it")
    invocation.output_vm_bytecode(compiled)

    context = runtime.SystemContext(config=runtime.Config(driver))
    code = bytes(compiled.map_memory())
    module = runtime.VmModule.copy_buffer(context.instance, code)
    context.add_vm_module(module)
    run = context.modules[module.name][model.graph.name]
    results = run(*(feeds[x.name] for x in model.graph.input))
    several = isinstance(results, (tuple, list))
    return [result.to_host() for result in (results if several else [results])]


def tvm(path, feeds, target="llvm"):
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(path)
    module = relax.transform.LegalizeOps()(from_onnx(model, keep_params_in_input=False))
    device = tvm.device(target if target != "llvm" else "cpu")
    machine = relax.VirtualMachine(relax.build(module, target), device)
    inputs = [tvm.runtime.tensor(feeds[x.name], device) for x in model.graph.input]
    results = machine["main"](*inputs)
    several = not hasattr(results, "numpy")
    return [result.numpy() for result in (results if several else [results])]


def tinygrad(path, feeds):
    from tinygrad import Tensor
    from tinygrad.nn.onnx import OnnxRunner

    results = OnnxRunner(path)({name: Tensor(x) for name, x in feeds.items()})
    return [result.numpy() for result in results.values()]


def mnn(path, feeds, backend="CPU"):
    # The compiled function: the module around it, MNN.tools, installs another package
    # with pip, and reports each conversion to its authors.
    import _tools
    import MNN
    import onnx

    words = f"mnnconvert -f ONNX --modelFile {path} --MNNModel {path}.mnn --bizCode x"
    _tools.mnnconvert([*words.split(), "--convertMatmulToConv", "0"])
    expr, graph = MNN.expr, onnx.load(path, load_external_data=False).graph
    # An input that nothing reads is gone.
    read = {name for node in graph.node for name in node.input}
    given = [x.name for x in graph.input if x.name in read]
    made = [x.name for x in graph.output]
    settings = {"backend": backend, "precision": "high"}
    runtime = MNN.nn.create_runtime_manager((settings,))
    # Copies of copies are not fused (GEOMETRY_COMPUTE_MASK): that leaves elements out.
    runtime.set_hint(4, 0xFFFE)
    network = MNN.nn.load_module_from_file(
        f"{path}.mnn", given, made, runtime_manager=runtime
    )
    inputs = []
    for array in (feeds[name] for name in given):
        is_float = array.dtype.kind == "f"
        kind = expr.dtype.float if is_float else expr.dtype.int
        inputs.append(expr.placeholder(array.shape, expr.data_format.NCHW, kind))
        inputs[-1].write(array if is_float else array.astype(np.int32))
    # A result of one-dimensional filters comes with another axis.
    shapes = [[n.dim_value for n in x.type.tensor_type.shape.dim] for x in graph.output]
    pairs = zip(network.onForward(inputs), shapes, strict=True)
    return [np.array(result.read()).reshape(shape) for result, shape in pairs]


if __name__ == "__main__":
    main()
