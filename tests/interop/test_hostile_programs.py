"""Programs of torch.export in files that strangers wrote: nothing in them is executed."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad import interop

pytest.importorskip("torch")

import torch
from torch import nn
from torch._export.serde.schema import SCHEMA_VERSION

VERSION = ".".join(map(str, SCHEMA_VERSION)).encode()

# torch warns of views that it saves.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Members = dict[str, bytes]

MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


class Model(nn.Module):  # type: ignore[misc]
    """A parameter, a buffer that is expanded, a constant, an open batch, nested results, and
    a write, because of which torch traces the program again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"3x3-first": nn.Linear(3, 4)})
        self.register_buffer("mask", torch.ones(2).expand(4, 2))
        self.table = torch.tensor([1.0, 2.0])

    def forward(self, x: Any) -> Any:
        y = self.layers["3x3-first"](x).reshape(x.shape[0] * 2, 2)
        z = torch.einsum("ij,j->ij", y, self.table).mul_(2.0)
        return {"y": z * self.mask[0], "more": (y.sum(),)}


@pytest.fixture(scope="module")
def program() -> Any:
    shapes = {"x": {0: torch.export.Dim("batch", min=2, max=99)}}
    return torch.export.export(Model(), (torch.ones(5, 3),), dynamic_shapes=shapes)


@pytest.fixture
def members(program: Any) -> Members:
    return members_of(program)


def members_of(program: Any) -> Members:
    """The members of the file that torch writes."""
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"notes.txt": "mine"})
    with zipfile.ZipFile(file) as archive:
        return {n.partition("/")[2]: archive.read(n) for n in archive.namelist()}


def stored(path: Path, members: Members, kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(f"m/{name}", data)
    return path


def test_a_file_is_read_as_its_program(
    program: Any, members: Members, tmp_path: Path
) -> None:
    wanted = interop.from_torch(program)
    found = interop.from_torch(stored(tmp_path / "ExportedProgram.pt2", members))
    texts = [nnef_grad.dumps(model.graph).split("{", 1)[1] for model in (wanted, found)]
    assert texts[0] == texts[1]
    assert found.trainable == wanted.trainable
    assert found.parameters == wanted.parameters
    assert {*found.data} == {*wanted.data}
    for name, array in wanted.data.items():
        np.testing.assert_array_equal(found.data[name], array)


def test_tied_weights_stay_one(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    torch.export.save(
        torch.export.export(module, (torch.ones(2, 3),)), tmp_path / "m.pt2"
    )
    found = interop.from_torch(tmp_path / "m.pt2")
    assert len(found.data) == 3
    assert found.parameters["0.weight"] == found.parameters["2.weight"]


# ---- What would be executed ----


def pickled(marker: Path) -> bytes:
    """A pickle that writes a file where it is read, as pickle writes it."""
    return pickle.dumps(_written(marker))


def saved(marker: Path) -> bytes:
    """The same, as torch.save writes it."""
    file = io.BytesIO()
    torch.save({"x": _written(marker)}, file)
    return file.getvalue()


def _written(marker: Path) -> Any:
    class Written:
        def __reduce__(self) -> Any:
            return open, (str(marker), "w")

    return Written()


def config(members: Members, name: str, **payload: Any) -> None:
    """Changes the first payload of a config."""
    document = json.loads(members[name])
    next(iter(document["config"].values())).update(payload)
    members[name] = json.dumps(document).encode()


def _of_weights(members: Members, marker: Path) -> None:
    config(members, WEIGHTS, use_pickle=True)
    members["data/weights/weight_0"] = saved(marker)


def _of_constants(members: Members, marker: Path) -> None:
    config(members, CONSTANTS, use_pickle=True)
    members["data/constants/tensor_0"] = saved(marker)


def _objects(members: Members, marker: Path) -> None:
    config(members, CONSTANTS, use_pickle=True, path_name="opaque_obj_0")
    members["data/constants/opaque_obj_0"] = pickled(marker)


def _scripts(members: Members, marker: Path) -> None:
    config(members, CONSTANTS, use_pickle=True, path_name="custom_obj_0")
    members["data/constants/custom_obj_0"] = pickled(marker)


def _old_program(members: Members, marker: Path) -> None:
    """As torch wrote it until 2.7."""
    document = members[MODEL]
    members.clear()
    parts = ("state_dict", "constants", "example_inputs")
    members |= {f"serialized_{part}.pt": saved(marker) for part in parts}
    members |= {"serialized_exported_program.json": document, "version": VERSION}


REFUSED: dict[str, Callable[[Members, Path], None]] = {
    "weights": _of_weights,
    "constants": _of_constants,
    "objects": _objects,
    "scripts": _scripts,
    "an old program": _old_program,
}


@pytest.mark.parametrize("what", REFUSED)
def test_pickles_are_refused(what: str, members: Members, tmp_path: Path) -> None:
    REFUSED[what](members, tmp_path / "marker")
    path = stored(tmp_path / "m.pt2", members)
    with pytest.raises(nnef_grad.UsageError, match=r"m\.pt2' cannot be read"):
        interop.from_torch(path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "name",
    ["data/sample_inputs/model.pt", "data/weights/model.pt", "data/constants/model.pt"],
)
def test_pickles_that_are_not_needed(
    name: str, members: Members, tmp_path: Path
) -> None:
    members[name] = saved(tmp_path / "marker")
    assert interop.from_torch(stored(tmp_path / "m.pt2", members)).data
    assert not (tmp_path / "marker").exists()


def replaced(value: Any, old: str, new: Any) -> Any:
    """A document with another text, or with another thing under a key."""
    if isinstance(value, dict):
        return {
            new if key == old and isinstance(new, str) else key: (
                new
                if key == old and not isinstance(new, str)
                else replaced(x, old, new)
            )
            for key, x in value.items()
        }
    if isinstance(value, list):
        return [replaced(x, old, new) for x in value]
    return new if value == old and isinstance(new, str) else value


TREE = '[1, {{"type": "{}", "context": {}, "children_spec": []}}]'
ENUM = json.dumps(json.dumps({"__enum__": True, "fqn": "hostile:X", "name": "y"}))
HIDDEN = ENUM.replace("__enum__", r"\\u005f_enum__")
FACTORY = {
    "default_factory_module": "hostile",
    "default_factory_name": "X",
    "dict_context": [],
}
DEFAULT = TREE.format("collections.defaultdict", json.dumps(FACTORY))
# What stands in the document, what takes its place, and what a message says of it.
CODE: dict[str, tuple[str, Any, str]] = {
    "an extent": ("expr_str", ["open('{}', 'w')"], "expr_str"),
    "a hidden call": ("expr_str", ["Max(1, (open)('{}', 'w'))"], "expr_str"),
    "an attribute": ("expr_str", ["Integer(1).__class__"], "expr_str"),
    "an argument": ("x", "x=open('{}', 'w')", "name"),
    "a node": ("linear", "linear = open('{}', 'w'); y", "name"),
    "a parameter": ("mask", 'a"), open("{}", "w"), getattr(self, "b', "buffer_name"),
    "a function": ("torch.ops.aten.linear.default", "torch.hub.load", "target"),
    "a library": ("torch.ops.aten.linear.default", "torch.ops.load_library", "target"),
    "a call": ("torch.ops.aten.linear.default", "_operator.methodcaller", "target"),
    "a method": ("torch.ops.aten.linear.default", "_operator.call", "target"),
    "a higher one": (
        "torch.ops.aten.linear.default",
        "torch.ops.higher_order.print",
        "target",
    ),
    "an enum": ("out_spec", [TREE.format("builtins.dict", ENUM)], "out_spec"),
    "a hidden enum": ("out_spec", [TREE.format("builtins.dict", HIDDEN)], "out_spec"),
    "a default": ("in_spec", [DEFAULT], "in_spec"),
}


@pytest.mark.parametrize("what", CODE)
def test_code_is_refused(
    what: str, members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    old, new, key = CODE[what]
    changed = json.loads(members[MODEL])
    if isinstance(new, list):
        changed = of_key(changed, old, new[0].replace("{}", str(tmp_path / "marker")))
    else:
        changed = replaced(changed, old, new.replace("{}", str(tmp_path / "marker")))
    members[MODEL] = json.dumps(changed).encode()
    path = stored(tmp_path / "m.pt2", members)
    with pytest.raises(nnef_grad.UsageError, match=f"as {key}"):
        interop.from_torch(path)
    assert not (tmp_path / "marker").exists()


def of_key(value: Any, key: str, new: Any) -> Any:
    """A document with another value under a key."""
    if isinstance(value, list):
        return [of_key(x, key, new) for x in value]
    if isinstance(value, dict):
        return {k: new if k == key else of_key(x, key, new) for k, x in value.items()}
    return value


def test_code_that_is_not_needed(members: Members, tmp_path: Path) -> None:
    """Guards, which torch runs before a program, and functions that exporters noted."""
    call = f"open({str(tmp_path / 'marker')!r}, 'w')"
    document = of_key(json.loads(members[MODEL]), "guards_code", [call])
    document = of_key(document, "torch_fn", call)
    members[MODEL] = json.dumps(document).encode()
    assert interop.from_torch(stored(tmp_path / "m.pt2", members)).data
    assert not (tmp_path / "marker").exists()


def test_no_file_is_read_for_a_message(tmp_path: Path) -> None:
    """The lines of a module are named, but whatever file they are in is not opened."""

    class Bessel(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.special.i0(x)

    members = members_of(torch.export.export(Bessel(), (torch.ones(4),)))
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    trace = f'File "{secret}", line 1, in forward\n    return'
    document = of_key(json.loads(members[MODEL]), "stack_trace", trace)
    members[MODEL] = json.dumps(document).encode()
    with pytest.raises(nnef_grad.NnefGradError, match=r"secret\.py:1") as error:
        interop.from_torch(stored(tmp_path / "m.pt2", members))
    assert "password" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["from_file.default", "save.default", "_print.default"]
)
def test_operations_on_texts(name: str, members: Members, tmp_path: Path) -> None:
    """One that makes a file of tensors, which torch computes where it knows its operands."""
    document = json.loads(members[MODEL])
    graph = document["graph_module"]["graph"]
    values = {
        "filename": {"as_string": str(tmp_path / "marker")},
        "shared": {"as_bool": True},
        "size": {"as_int": 4},
    }
    node: dict[str, Any] = {
        "name": "made",
        "target": f"torch.ops.aten.{name}",
        "inputs": [{"name": n, "arg": x, "kind": 1} for n, x in values.items()],
        "outputs": [{"as_tensor": {"name": "made"}}],
        "metadata": {},
        "is_hop_single_tensor_return": None,
    }
    graph["nodes"].insert(0, node)
    graph["tensor_values"]["made"] = graph["tensor_values"]["b_mask"]
    members[MODEL] = json.dumps(document).encode()
    with pytest.raises(nnef_grad.UsageError, match="as target"):
        interop.from_torch(stored(tmp_path / "m.pt2", members))
    assert not (tmp_path / "marker").exists()


# ---- Sizes ----


def test_compressed_members(members: Members, tmp_path: Path) -> None:
    members["data/weights/weight_0"] = bytes(2**24)
    path = stored(tmp_path / "m.pt2", members, zipfile.ZIP_DEFLATED)
    with pytest.raises(nnef_grad.UsageError, match="compressed, or overlap"):
        interop.from_torch(path)


@pytest.mark.parametrize(
    ("sizes", "strides", "offset"),
    [
        ([10**6, 3], [3, 1], 0),
        ([4, 3], [3, 1], 1),
        ([4, 3], [3, 1], -1),
        ([4, 3], [-3, 1], 9),
        ([2, 2], [2**62, 2**62], 0),
        ([10**9, 10**9], [0, 0], 0),
        ([2**33], [0], 0),
    ],
)
def test_sizes_that_are_not_so(
    sizes: list[int],
    strides: list[int],
    offset: int,
    members: Members,
    tmp_path: Path,
) -> None:
    document = json.loads(members[WEIGHTS])
    meta = next(iter(document["config"].values()))["tensor_meta"]
    meta["sizes"], meta["strides"] = (
        [{"as_int": n} for n in numbers] for numbers in (sizes, strides)
    )
    meta["storage_offset"] = {"as_int": offset}
    members[WEIGHTS] = json.dumps(document).encode()
    with pytest.raises(nnef_grad.UsageError, match=r"more numbers|many more"):
        interop.from_torch(stored(tmp_path / "m.pt2", members))


@pytest.mark.parametrize("place", range(0, 40, 9))
def test_damage(place: int, members: Members, tmp_path: Path) -> None:
    """A file that is cut, or whose document is: one message."""
    whole = stored(tmp_path / "m.pt2", members).read_bytes()
    (tmp_path / "cut.pt2").write_bytes(whole[: place * len(whole) // 40])
    members[MODEL] = members[MODEL][: place * len(members[MODEL]) // 40]
    for path in (tmp_path / "cut.pt2", stored(tmp_path / "m.pt2", members)):
        with pytest.raises(nnef_grad.UsageError, match="cannot be read as a program"):
            interop.from_torch(path)


def test_constants_have_limits(tmp_path: Path) -> None:
    class Large(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + torch.zeros(30_000, 30_000).sum()

    program = torch.export.export(Large(), (torch.ones(3),))
    torch.export.save(program, tmp_path / "large.pt2")
    with pytest.raises(nnef_grad.NnefGradError, match="comes to more than"):
        interop.from_torch(tmp_path / "large.pt2")
