"""Gradients in ONNX, in engines that compile for GPUs, here for the processor: IREE, TVM and
tinygrad, each that is installed.

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
        for engine in filter(lambda f: find_spec(f.__name__), (iree, tvm, tinygrad)):
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


if __name__ == "__main__":
    main()
