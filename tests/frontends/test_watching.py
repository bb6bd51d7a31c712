"""What is watched while a module is exported: in its thread alone, and as far as a release of
torch has what is watched.
"""

from __future__ import annotations

import copy
import logging
import random
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import getattr_static
from pathlib import Path
from pkgutil import resolve_name
from threading import Event
from typing import Any

import pytest
import torch
from torch import nn

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.torch import internals, watching
from nnef_grad.frontends.torch.silence import silence

PACKAGE = Path(nnef_grad.__file__).parent
X = torch.linspace(-1, 1, 3)
PIECES = watching._PIECES


def owner_of(piece: internals.Piece) -> Any:
    return resolve_name(f"torch.{piece.owner}")


def now() -> dict[internals.Piece, Any]:
    """What is there: a release may lack what is new in a later one."""
    pieces = [
        p
        for p in PIECES
        if p.without or hasattr(torch.autograd.graph, "node_creation_hook")
    ]
    return {piece: getattr_static(owner_of(piece), piece.name) for piece in pieces}


BEFORE = now()


class Doubled(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        return dy * 2


class Called(nn.Module):  # type: ignore[misc]
    """Calls a function in the middle of its forward computation."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.function()
        return x.exp()


def uses_everything() -> list[Any]:
    """What a training loop may do, in a thread of its own."""
    done: list[Any] = []
    weight = nn.Parameter(torch.ones(3))
    weight.data = torch.full((3,), 2.0)
    y = (weight * weight).sum()
    y.register_hook(done.append)
    y.grad_fn.register_prehook(done.append)
    weight.register_post_accumulate_grad_hook(lambda _: done.append("accumulated"))
    torch.autograd.graph.register_multi_grad_hook([y], done.append)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        z = Doubled.apply(y)
    done.append(torch.autograd.grad(z, [weight], retain_graph=True)[0].tolist())
    z.backward()
    with torch.inference_mode():
        done.append((weight * 2).is_inference())
    module = nn.Linear(2, 2)
    module.mean = torch.zeros(2)
    module.mean = torch.ones(2)
    return [len(done), done[3:5], done[-1], weight.grad]


def test_another_thread_notices_nothing() -> None:
    alone = uses_everything()
    arrived, finished = Event(), Event()

    def wait() -> None:
        arrived.set()
        assert finished.wait(60)

    with ThreadPoolExecutor(1) as pool:
        exported = pool.submit(interop.from_torch, Called(wait), [X])
        assert arrived.wait(60)
        try:
            meanwhile = uses_everything()
        finally:
            finished.set()
        assert exported.result().graph.output_names == ("output",)
    assert str(meanwhile) == str(alone)


def test_another_thread_logs_as_before(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("torch.of_a_test")
    log.addHandler(caplog.handler)
    try:
        with silence(), ThreadPoolExecutor(1) as pool:
            log.warning("from torch")
            pool.submit(log.warning, "from elsewhere").result()
    finally:
        log.removeHandler(caplog.handler)
    heard = [record.message for record in caplog.records if record.name == log.name]
    assert set(heard) == {"from elsewhere"}


def test_modules_are_exported_side_by_side() -> None:
    modules = [nn.Sequential(nn.Linear(3, n), nn.Tanh()) for n in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda module: interop.from_torch(module, [X]), modules)
        shapes = [model.graph.outputs[0].shape for model in found]
    assert shapes == [(n,) for n in range(1, 9)]
    # Each has put back what was there, and not what another one had put in its place.
    assert now() == BEFORE


@pytest.mark.skipif(
    not hasattr(torch.autograd.graph, "node_creation_hook"), reason="new in torch 2.15"
)
def test_a_hook_on_new_nodes_is_refused() -> None:
    def hooked() -> None:
        with torch.autograd.graph.node_creation_hook(lambda node: None):
            pass

    with pytest.raises(UnsupportedError, match="a hook, which could change gradients"):
        interop.from_torch(Called(hooked), [X])


@pytest.mark.parametrize(
    ("owner", "name"), [piece[:2] for piece in PIECES if piece.without]
)
def test_a_release_without_a_piece_loses_what_needs_it(
    owner: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = [
        piece._replace(name=f"{name}_of_old")
        if (piece.owner, piece.name) == (owner, name)
        else piece
        for piece in PIECES
    ]
    monkeypatch.setattr(watching, "_PIECES", renamed)
    graph = interop.from_torch(nn.Linear(3, 2), [X]).graph
    (warning,) = graph.warnings
    what = f"torch {torch.__version__} has no {owner}.{name}_of_old: "
    assert warning.message.startswith(what)


def test_a_release_without_an_operation_reads_what_has_none() -> None:
    assert internals.find_operator("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert "aten.of_old.default" in internals.find_operator("aten.of_old.default")


def test_a_release_without_a_module_is_refused_by_name() -> None:
    with pytest.raises(
        UnsupportedError, match=r"torch .* has no module 'torch\.of_old'"
    ):
        internals._module("torch.of_old")


# What begins with an underscore is torch's own, and so is what stands for it.
PRIVATE = re.compile(
    r"\btorch(\.\w+)*\._[a-z]|^from torch\S* import .*\b_\w|^from torch\S*\._"
    r"|_orig_mod|\._schema\b|\._backward_"
)


def test_one_module_names_what_torch_may_change() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "internals.py"]
    found = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in files
        for line in path.read_text("utf-8").splitlines()
        if PRIVATE.search(line.partition("#")[0])
    }
    assert not found


# What an exception of a bug may be raised by: by this package, or by what it calls.
BUGS: dict[str, Any] = {
    "torch": torch.atleast_1d,
    "python": Path("a file").relative_to,
}


@pytest.mark.parametrize("by", BUGS)
@pytest.mark.parametrize("where", ["states", "_of_module", "_is_active"])
def test_a_bug_of_ours_is_not_torchs(
    where: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(PACKAGE / "frontends" / "torch" / "of_a_test.py")
    names: dict[str, Any] = {"bug": BUGS[by]}
    exec(compile("def broken(*_):\n    return bug(7)", place, "exec"), names)
    monkeypatch.setattr(watching, where, names["broken"])
    function = (lambda: Doubled.apply(X)) if where == "_is_active" else X.exp
    with pytest.raises(TypeError):
        interop.from_torch(Called(function), [X])


def test_pythons_own_code_is_not_of_the_module() -> None:
    with pytest.raises(UnsupportedError, match=r"at .*test_watching.py:\d+") as raised:
        interop.from_torch(Called(lambda: Path("nowhere").read_text()), [X])
    assert "pathlib" not in str(raised.value)


def test_a_mistake_of_the_module_is_torchs() -> None:
    def mistaken() -> None:
        torch.ones(3).reshape(2)

    with pytest.raises(
        UnsupportedError, match=r"torch cannot export the module: .*test_watching"
    ):
        interop.from_torch(Called(mistaken), [X])


class Layers(nn.Module):  # type: ignore[misc]
    """Layers in a plain list, which torch.export reads and `state_dict` does not."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(3, 3), nn.Linear(3, 2)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_layers_in_a_plain_list() -> None:
    module = Layers()
    message = "parameters that are in no module are constants, at .*test_watching"
    with pytest.warns(UserWarning, match=message):
        interop.from_torch(module, [X])
    model = interop.from_torch(module, [X])
    (y,) = nnef_grad.evaluate(
        model.graph, {"x": X.numpy()}, variables=model.data
    ).values()
    torch.testing.assert_close(torch.from_numpy(y).float(), module(X).detach())


def test_the_gradient_of_a_parameter_has_no_node() -> None:
    class Asks(nn.Linear):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (1 if self.weight.grad_fn is None else 2)

    module = Asks(3, 2)
    model = interop.from_torch(module, [X])
    (y,) = nnef_grad.evaluate(
        model.graph, {"x": X.numpy()}, variables=model.data
    ).values()
    torch.testing.assert_close(torch.from_numpy(y).float(), module(X).detach())


def test_a_refusal_shows_no_program(capfd: pytest.CaptureFixture[str]) -> None:
    class Decides(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.sum())

    with pytest.raises(UnsupportedError, match="decide by torch"):
        interop.from_torch(Decides(), [X])
    assert capfd.readouterr() == ("", "")


def half(x: torch.Tensor) -> torch.Tensor:
    return (x.half() * 2).float()


def mixed(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return torch.outer(x, x) @ x.exp()


@pytest.mark.parametrize(("function", "name"), [(half, "float16"), (mixed, "bfloat16")])
def test_precision_inside_of_a_module_is_warned_of(function: Any, name: str) -> None:
    class Half(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    message = f"torch.{name} becomes single precision in the graph"
    with pytest.warns(UserWarning, match=f"nnef-grad: {message}") as told:
        graph = interop.from_torch(Half(), [X]).graph
    assert [warning.message for warning in graph.warnings] == [message]
    assert [warning.filename for warning in told] == [__file__]


def test_what_beartype_looks_at_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its functions draw which item they check, by a default of their own."""
    monkeypatch.setitem(sys.modules, "beartype", random)
    names: dict[str, Any] = {"getrandbits": random.getrandbits}
    lines = "def checked(x, *, draw=getrandbits):\n    draw(32)\n    return x.sin()"
    exec(compile(lines, "<@beartype(checked) at 0x1>", "exec"), names)
    model = interop.from_torch(Called(lambda: names["checked"](X)), [X])
    assert [op.name for op in model.graph.operations] == ["external", "exp"]
    assert names["checked"].__kwdefaults__ == {"draw": random.getrandbits}
    other: dict[str, Any] = {"getrandbits": random.getrandbits}
    exec(compile(lines, "module.py", "exec"), other)
    with pytest.raises(UnsupportedError, match="draws random numbers"):
        interop.from_torch(Called(lambda: other["checked"](X)), [X])


def test_a_buffer_that_is_filled_is_as_before() -> None:
    class Fills(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", None, persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.table is None:
                self.register_buffer("table", x.new_ones(3), persistent=False)
            return x * self.table

    module = Fills()
    # Torch takes the buffer for a write into what it is made of.
    with suppress(UnsupportedError):
        interop.from_torch(module, [X])
    assert module.table is None
    torch.testing.assert_close(copy.deepcopy(module)(X), X)
