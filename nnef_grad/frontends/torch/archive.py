"""Programs in the files of torch.export.save, of which nothing is executed.

`torch.export.load` unpickles members, evaluates expressions as Python, calls what a program
names in all of torch, and compiles code with names of the program in it. Here weights are
read as numbers, and the document of the program is given to torch when nothing in it could
become code.
"""

from __future__ import annotations

import ast
import json
import os
import re
from math import prod
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import torch
from torch.export import ExportedProgram

from nnef_grad.base.errors import UsageError, brief
from nnef_grad.frontends.torch.call import HIGHER
from nnef_grad.frontends.torch.capture import reason
from nnef_grad.frontends.torch.internals import (
    functions_of_extents,
    schema,
    serialization,
)
from nnef_grad.frontends.torch.nodes import AUTOCAST, BLOCK, FRAME, is_network
from nnef_grad.frontends.torch.reading import ARITHMETIC
from nnef_grad.storage.files import PIECE, PathLike
from nnef_grad.storage.paths import open_file

_MODEL = "models/model.json"
_WEIGHTS = "data/weights/", "model_weights_config.json"
_CONSTANTS = "data/constants/", "model_constants_config.json"
# The numbers that tensors may have beyond those that are stored, as expanded ones do.
_EXPANDED = 2**26

Members = dict[str, ZipInfo]


def load(path: PathLike) -> ExportedProgram:
    """The program in a file."""
    name = os.fspath(path)
    with open_file(path) as file:
        try:
            return _program(file, name)
        except Exception as error:
            message = f"'{name}' cannot be read as a program of torch.export"
            raise UsageError(f"{message}: {reason(error)}") from None


def _program(file: BinaryIO, name: str) -> ExportedProgram:
    size = os.fstat(file.fileno()).st_size
    with ZipFile(file) as archive:
        members = {m.filename.partition("/")[2]: m for m in archive.infolist()}
        are_stored = {m.compress_type for m in members.values()} <= {ZIP_STORED}
        if not are_stored or sum(m.file_size for m in members.values()) > size:
            raise ValueError("its members are compressed, or overlap")
        if _MODEL not in members:
            raise ValueError(
                f"it has no {_MODEL}: save it again, by torch 2.8 or newer"
            )
        document = _Document(name).safe(json.loads(archive.read(members[_MODEL])))
        weights = _tensors(archive, members, *_WEIGHTS)
        constants = _tensors(archive, members, *_CONSTANTS)
    if (
        sum(x.numel() for x in (*weights.values(), *constants.values()))
        > size + _EXPANDED
    ):
        raise ValueError("its tensors have many more numbers than the file")
    made, text = serialization(), json.dumps(document).encode()
    artifact = made.SerializedArtifact(text, weights, constants, None)
    program: ExportedProgram = made.deserialize(artifact)
    return program


# ---- Tensors ----


def _tensors(
    archive: ZipFile, members: Members, folder: str, config: str
) -> dict[str, torch.Tensor]:
    """The tensors of a folder by name; those of one member share their memory."""
    stored: dict[str, torch.Tensor] = {}
    tensors: dict[str, torch.Tensor] = {}
    payloads = json.loads(archive.read(members[folder + config]))["config"]
    for name, payload in payloads.items():
        if payload["use_pickle"]:
            raise ValueError(f"'{name}' is a pickle, which could run a program")
        path, meta = payload["path_name"], payload["tensor_meta"]
        if path not in stored:
            stored[path] = _bytes(archive, members[folder + path])
        dtype = serialization().deserialize_scalar_type(meta["dtype"])
        flat = stored[path].view(dtype)
        tensor = _strided(name, flat, meta)
        if payload["is_param"]:
            tensor = torch.nn.Parameter(tensor, meta["requires_grad"])
        tensors[name] = tensor
    return tensors


def _bytes(archive: ZipFile, member: ZipInfo) -> torch.Tensor:
    array = np.empty(member.file_size, np.uint8)
    with archive.open(member) as file:
        # Read in one piece, it would be in memory twice.
        for start in range(0, len(array), PIECE):
            array[start : start + PIECE] = np.frombuffer(file.read(PIECE), np.uint8)
    return torch.from_numpy(array)


def _strided(name: str, flat: torch.Tensor, meta: Any) -> torch.Tensor:
    sizes, strides = ([x["as_int"] for x in meta[key]] for key in ("sizes", "strides"))
    offset = meta["storage_offset"]["as_int"]
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    is_inside = last < flat.numel() or prod(sizes) == 0
    if min([*sizes, *strides, offset]) < 0 or not is_inside:
        raise ValueError(f"'{name}' has more numbers than are stored")
    return torch.as_strided(flat, sizes, strides, offset)


# ---- The document ----


class _Document:
    """The check of a document: a table says what a text under a key must be."""

    def __init__(self, name: str) -> None:
        self._name = name

    def safe(self, value: Any, key: str = "") -> Any:
        """The value under a key, or `ValueError` if torch could execute a part of it."""
        if isinstance(value, dict):
            return {
                self.safe(name): self.safe(item, name)
                for name, item in value.items()
                if name not in _DROPPED or not isinstance(item, (str, list))
            }
        if isinstance(value, list):
            return [self.safe(item, key) for item in value]
        if key == "stack_trace":
            return self._places(value)
        if isinstance(value, str) and not _RULES.get(key, _is_plain)(value):
            raise ValueError(brief(f"it may not have {value!r} as {key or 'a key'}"))
        return value

    def _places(self, trace: str) -> str:
        """The lines that a node comes from, in files that exist for messages alone: their
        paths go through the file of the program.
        """
        return "".join(
            f'File "{self._name}/{file.lstrip("/")}", line {number}\n'
            for file, number in FRAME.findall(trace)
            if is_network(file) and file.isprintable() and ".." not in file
        )


# What torch would evaluate, and nothing here needs.
_DROPPED = ("guards_code", "torch_fn", "source_fn_stack", "from_node", "custom")


def _is_plain(text: str) -> bool:
    """Whether it stays a text where torch puts it into code as one."""
    return text.isprintable() and not {*text} & {*"\"'\\"}


def _is_name(text: str) -> bool:
    return not text or text.isidentifier()


def _is_function(text: str) -> bool:
    """Whether it names an operation on tensors, or what computes with numbers."""
    if found := re.fullmatch(r"torch\.ops\.aten\.(\w+)\.(\w+)", text):
        operation = getattr(getattr(torch.ops.aten, found[1]), found[2])
        kinds = [str(a.type) for a in schema(operation).arguments]
        # Operations on texts alone read and write files.
        is_of_texts = any("str" in kind for kind in kinds)
        is_of_tensors = any("Tensor" in kind for kind in kinds)
        return is_of_tensors or not is_of_texts or found[1].startswith("_assert")
    of_numbers = re.fullmatch(r"(math\.|torch\.sym_)[a-z]\w*", text)
    return of_numbers is not None or text in _functions()


def _functions() -> set[str]:
    numbers = {f"_operator.{f.__name__}" for f in ARITHMETIC}
    higher = {f"torch.ops.higher_order.{f}" for f in (BLOCK, AUTOCAST, *HIGHER)}
    return numbers | higher


# What sympy prints extents as.
_CALLED = {
    "Symbol", "Integer", "Float", "Rational", "Mul", "Add", "Pow", "Max", "Min",
    "Equality", "Unequality", "LessThan", "GreaterThan", "StrictLessThan",
    "StrictGreaterThan", "And", "Or", "Not",
}  # fmt: skip
_IN_EXPRESSIONS = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.UnaryOp,
    ast.USub,
)  # fmt: skip


def _is_expression(text: str) -> bool:
    """Whether it is an expression of extents: sympy evaluates it as Python."""
    nodes = [*ast.walk(ast.parse(text, mode="eval"))]
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    words = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    is_of_numbers = all(re.fullmatch(r"[\w.+-]*", word) for word in words)
    are_known = all(isinstance(node, _IN_EXPRESSIONS) for node in nodes)
    return are_known and is_of_numbers and calls <= {*_CALLED, *functions_of_extents()}


def _is_tree(text: str) -> bool:
    """Whether it is a structure of results for which torch imports nothing."""

    def is_plain(node: Any) -> bool:
        is_imported = node["type"] == "collections.defaultdict"
        is_imported = is_imported or "__enum__" in _unescaped(str(node["context"]))
        return not is_imported and all(map(is_plain, node["children_spec"]))

    return is_plain(json.loads(text)[1])


def _unescaped(context: str) -> str:
    try:
        return repr(json.loads(context))
    except ValueError:
        return context


_RULES = {
    **dict.fromkeys(("name", "as_name", "forward_arg_names"), _is_name),
    **dict.fromkeys(("target", "as_operator"), _is_function),
    **dict.fromkeys(("in_spec", "out_spec"), _is_tree),
    **dict.fromkeys(("as_string", "as_strings"), lambda _: True),
    "nn_module_stack": str.isprintable,
    "expr_str": _is_expression,
}
