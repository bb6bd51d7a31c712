"""Writing models atomically: texts, folders and archives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from io import BytesIO
from pathlib import Path
from stat import S_ISREG

from nnef_grad.base.errors import UsageError
from nnef_grad.storage import files
from nnef_grad.storage.archives import compressed, write_end, write_member
from nnef_grad.storage.containers import APPLY, GRAPH, QUANTIZATION, quantization_path
from nnef_grad.storage.files import Part, PathLike, exclusive, refuse_existing, writing
from nnef_grad.storage.paths import (
    DATA,
    Steps,
    entries_inside,
    files_inside,
    refuse_other_name,
)


class ModelFormat(Enum):
    """The format of a stored model."""

    TEXT = "text"
    FOLDER = "folder"
    ARCHIVE = "archive"


ARCHIVES = (".tgz", ".tar.gz", ".tar")
TEXTS = (".nnef", ".txt", ".text")
# Suffixes of what is not written, which are no part of a name with dots either.
_OTHERS = (
    *(".zip", ".7z", ".gz", ".bz2", ".xz", ".zst", ".onnx", ".dat", ".json", ".html"),
    *(".pt2", ".pt", ".pth", ".bin", ".safetensors", ".npz", ".npy", ".tflite", ".py"),
    *(".h5", ".keras", ".pb", ".csv", ".yaml", ".yml", ".xml", ".md", ".pdf", ".svg"),
)
# The texts of a folder; a training step may have a second document.
_TEXTS = ((GRAPH,), (QUANTIZATION,), (APPLY, GRAPH))
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


# The targets whose graphs ONNX files are: for ONNX Runtime, and for any engine.
ONNX_TARGETS = ("onnx", "onnx-portable")


def onnx_target(target: str) -> str:
    """The target of an ONNX file, which may be the default of documents."""
    return target if target in ONNX_TARGETS else "onnx"


def target_at(path: PathLike, target: str) -> str:
    """The target of what is written at a path."""
    return onnx_target(target) if is_onnx(path) else target


def is_onnx(path: PathLike) -> bool:
    """Whether a path is that of an ONNX file."""
    return os.fspath(path).lower().endswith(".onnx")


def format_of(path: PathLike) -> ModelFormat:
    """The format to write at a path: by its suffix; without one, or there, a folder."""
    name = os.fspath(path)
    if name.endswith(_SEPARATORS):
        return ModelFormat.FOLDER
    if name.lower().endswith(ARCHIVES):
        return ModelFormat.ARCHIVE
    with writing(path):
        is_new = not Path(name).exists()
        if Path(name).is_dir() or (is_new and not Path(name).suffix):
            return ModelFormat.FOLDER
    if is_onnx(name):
        raise UsageError(f"'{name}' is an ONNX file: interop.to_onnx writes it")
    if Path(name).suffix and not name.lower().endswith(TEXTS):
        message = f"'{name}' does not have the suffix of a text or an archive"
        known = f".nnef, {', '.join(ARCHIVES)}, or a slash for a folder; .onnx writes an ONNX file"
        raise UsageError(f"{message}: {known}")
    return ModelFormat.TEXT


def beside_data(path: PathLike) -> str:
    """The path of what is made of a model with data: if its suffix is not a known one, that
    of a folder, with a slash at its end.
    """
    name = os.fspath(path)
    is_known = name.lower().endswith((*TEXTS, *ARCHIVES, *_OTHERS, *_SEPARATORS))
    return name if is_known or not Path(name).suffix else name + os.sep


def refuse_output(path: PathLike, *, overwrite: bool) -> None:
    """Raises `UsageError` if the output exists and must not be replaced."""
    with writing(path):
        if format_of(path) is ModelFormat.FOLDER:
            _refuse_folder_now(Path(path), overwrite)
        else:
            refuse_existing(Path(path), overwrite=overwrite)


def refuse_loss(path: PathLike, model: PathLike) -> None:
    """Raises `UsageError` if the output would replace what it is made from."""
    source = _real(model)
    if format_of(path) is ModelFormat.TEXT:
        places = map(_real, (path, quantization_path(path)))
        is_lost = any(_is_part(place, source) for place in places)
    else:
        is_lost = _real(path) in (source, *source.parents)
    if is_lost:
        raise UsageError(f"'{path}' is the model itself, or where it is stored")


def _is_part(place: Path, model: Path) -> bool:
    """Whether a place is that of a model, or of one of its files."""
    if model in place.parents:
        return place.is_file() and _is_of_model(model, place.relative_to(model).parts)
    return place.is_file() and place in (model, model.with_suffix(".quant"))


def _real(path: PathLike) -> Path:
    """The path without links. Unlike that of pathlib, it allows cyclic links."""
    return Path(os.path.realpath(path))


def refuse_text(path: PathLike) -> None:
    """Raises `UsageError` if a path is that of a text."""
    if format_of(path) is ModelFormat.TEXT:
        message = f"'{path}' is a text, which cannot hold data"
        raise UsageError(f"{message}: write a folder or an archive")


def write_stored(
    path: PathLike, parts: Mapping[Steps, Part], *, overwrite: bool
) -> None:
    """Writes a folder or an archive atomically; `overwrite` replaces models only."""
    if format_of(path) is not ModelFormat.FOLDER:
        _write_archive(path, parts, overwrite)
        return
    with writing(path):
        place = _real(path)
        _refuse_folder_now(place, overwrite)
    with writing(path), files.unfinished_folder(place) as draft:
        for steps, part in parts.items():
            refuse_other_name(steps)
            target = draft.joinpath(*steps)
            target.parent.mkdir(parents=True, exist_ok=True)
            # It may exist already on file systems that ignore case, or forms of letters.
            if not target.exists():
                part.place(target)
            elif not _is_same(part, target):
                name = "/".join(steps)
                message = f"'{name}' is the file of another name in this file system"
                raise UsageError(f"{message}: write an archive")
        files.commit_folder(draft, place, lambda old: _refuse_folder(old, overwrite))


def _is_same(part: Part, written: Path) -> bool:
    """Whether a part is what was written."""
    with BytesIO() as own:
        part.write(own)
        return own.getvalue() == written.read_bytes()


def _write_archive(
    path: PathLike, parts: Mapping[Steps, Part], overwrite: bool
) -> None:
    place = Path(path)
    with (
        writing(path),
        files.new_files(place, overwrite=overwrite) as drafts,
        drafts[place].open("wb") as file,
        compressed(file, place.name) as target,
    ):
        for steps, part in parts.items():
            write_member(target, steps, part)
        write_end(target)


def _refuse_folder_now(folder: Path, overwrite: bool) -> None:
    """As `_refuse_folder`, while no other process replaces the folder."""
    if folder.exists():
        with exclusive(_real(folder)):
            _refuse_folder(folder, overwrite)


def _refuse_folder(folder: Path, overwrite: bool) -> None:
    """Refuses to replace anything but a model or an empty folder."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is a file, not a folder")
    here = Path.cwd()
    if _real(folder) in (here, *here.parents):
        message = f"'{folder}' is the current folder, which cannot be replaced"
        raise UsageError(f"{message}: name a new one")
    if not entries_inside(folder):
        return
    if not overwrite:
        raise UsageError(f"'{folder}' exists already", remedy="overwrite")
    inside = list(files_inside(folder))
    foreign = [steps for steps in inside if not _is_of_model(folder, steps)]
    if foreign or (GRAPH,) not in inside:
        why = f"it has '{'/'.join(foreign[0])}'" if foreign else f"it has no {GRAPH}"
        message = f"'{folder}' is not replaced, because it is not the folder of a model"
        raise UsageError(f"{message}: {why}")


def _is_of_model(folder: Path, steps: Steps) -> bool:
    is_known = steps in _TEXTS or steps[-1].lower().endswith(DATA)
    return is_known and S_ISREG(folder.joinpath(*steps).lstat().st_mode)
