"""A model with data, written in each form by others than us: by nnef and tarfile."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import nnef
import numpy as np
import numpy.typing as npt
from click.testing import CliRunner, Result

from nnef_grad.commandline.cli import main

Array = npt.NDArray[Any]

# Its backward graph declares all variables but the last.
MODEL = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [2, 3, 4, 4]);
    filter = variable(shape = [5, 3, 3, 3], label = 'conv/filter');
    bias = variable(shape = [1, 5], label = 'Conv/Bias');
    gain = variable(shape = [1, 5], label = 'gain');
    offset = variable(shape = [1, 5], label = 'deep/in/offset');
    conv = conv(x, filter, bias);
    active = relu(conv);
    scaled = mul(active, gain);
    y = add(scaled, offset);
}
"""
QUANT = '"x": linear_quantize(min = 0.0, max = 1.0, bits = 8);\n"conv": linear_quantize(min = -1.0, max = 1.0, bits = 8);\n'

_random = np.random.default_rng(0)
DATA: dict[str, Array] = {
    "conv/filter": _random.standard_normal((5, 3, 3, 3)).astype(np.float32),
    "Conv/Bias": _random.standard_normal((1, 5)),
    "gain": _random.standard_normal((1, 5)).astype(np.float16),
    "deep/in/offset": _random.standard_normal((1, 5)).astype(np.float32),
}
USED = [label for label in DATA if label != "deep/in/offset"]


def tensor(array: Array) -> bytes:
    """A tensor file."""
    stream = BytesIO()
    nnef.write_tensor(_Unseekable(stream), array)
    return stream.getvalue()


class _Unseekable:
    """The nnef package writes to what cannot be seeked in without a file."""

    def __init__(self, stream: BytesIO) -> None:
        self.write = stream.write

    def seekable(self) -> bool:
        return False


def files(
    text: str = MODEL, quant: str = QUANT, data: Mapping[str, Array] = DATA
) -> dict[str, bytes]:
    """The files of a model, by their path."""
    stored = {f"{label}.dat": tensor(array) for label, array in data.items()}
    return {"graph.nnef": text.encode(), "graph.quant": quant.encode(), **stored}


def write_files(folder: Path, contents: Mapping[str, bytes]) -> Path:
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def write_archive(
    path: Path, contents: Mapping[str, bytes], mode: Any = "w:gz", format: int = 1
) -> Path:
    with tarfile.open(path, mode, format=format) as archive:
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))
    return path


def as_text(folder: Path) -> Path:
    write_files(folder, files())
    (folder / "graph.nnef").rename(folder / "model.nnef")
    (folder / "graph.quant").rename(folder / "model.quant")
    return folder / "model.nnef"


def as_folder(folder: Path) -> Path:
    return write_files(folder / "model", files())


def as_tgz(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return write_archive(folder / "model.nnef.tgz", files())


def as_tar(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return write_archive(folder / "model.tar", files(), "w:")


FORMS: dict[str, Callable[[Path], Path]] = {
    "text": as_text,
    "folder": as_folder,
    "tgz": as_tgz,
    "tar": as_tar,
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def names(folder: Path) -> list[str]:
    """Everything in a folder and its subfolders, hidden things too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
