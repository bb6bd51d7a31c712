"""The rows of bench.memory."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import nnef_grad
from bench.processes import answer_by_kind
from bench.workers import memory
from bench.workers.memory_alone import LENGTH, STEPS, WORDS, batches
from bench.workers.min_cut import saved_bytes
from bench.workers.torch_models import (
    declare_compiled_operators,
    of_timm,
    of_torchvision,
)
from bench.workers.torch_written import GPT2, UNet
from nnef_grad import interop
from nnef_grad.runtimes import find_runtime

MIB = 2**20


class Residual(nn.Module):  # type: ignore[misc]
    """48 convolutions in 24 residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(16, 16, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1),
            )
            for _ in range(24)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return x.mean((2, 3))


def network(net: str, batch: int) -> tuple[Any, torch.Tensor]:
    """A module in evaluation mode, and its input."""
    declare_compiled_operators()
    torch.manual_seed(0)
    if net == "gpt2":
        tokens = torch.randint(WORDS, (max(batch // 4, 1), 256))
        return GPT2(WORDS).eval(), tokens
    if net == "residual":
        return Residual().eval(), torch.randn(batch, 16, 64, 64)
    if net == "unet":
        return UNet().eval(), torch.randn(batch, 3, 128, 128)
    made = of_timm("vit_tiny_patch16_224") if net == "vit_tiny" else of_torchvision(net)
    for part in made.modules():
        if hasattr(part, "fused_attn"):
            part.fused_attn = False
    return made.eval(), torch.randn(batch, 3, 224, 224)


# ---- Computed ----


def limit(net: str, share: float) -> dict[str, Any]:
    module, x = network(net, 8)
    model = interop.from_torch(module, [x])
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    found = nnef_grad.recompute(backward.graph, share)
    work = nnef_grad.statistics(backward.graph).multiply_adds
    return {
        "kept": found.peak_bytes <= share * found.peak_bytes_before,
        "alive": found.peak_bytes / found.peak_bytes_before,
        "before": found.peak_bytes_before / MIB,
        "work": 1 + found.multiply_adds / work,
    }


def saved(net: str) -> dict[str, Any]:
    """In torch, what the first half returns besides the output, inputs and parameters."""
    module, x = network(net, 1 if net in ("alexnet", "vgg19", "resnet50") else 8)
    model = interop.from_torch(module, [x])
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    ours = nnef_grad.split_costs(nnef_grad.split(model.graph, backward)).saved_bytes
    return {"ours": ours / MIB, "torch": _saved_by_torch(module, x) / MIB}


def _saved_by_torch(module: Any, x: torch.Tensor) -> int:
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def called(x: torch.Tensor, *values: torch.Tensor) -> Any:
        given = dict(zip(state, values, strict=True))
        return torch.func.functional_call(module, given, x)

    return saved_bytes(called, [x, *state.values()])


# ---- Measured ----


def resident(net: str, runtime: str, share: float | None) -> dict[str, Any]:
    module, x = network(net, 8 if net == "residual" else 4)
    model = interop.from_torch(module, [x])
    backward = nnef_grad.differentiate(
        model.graph, wrt=model.trainable, recompute=share
    )
    run = find_runtime(runtime).compile(backward.graph, dict(model.data))
    random = np.random.default_rng(0)
    fed = [
        random.standard_normal(t.shape).astype(np.float32)
        for t in backward.graph.inputs
    ]
    return {"grown": memory.peak(lambda: run(fed))}


def export(net: str, path: str) -> None:
    """An ONNX file, as PyTorch writes it."""
    sizes = {} if net == "gpt2" else {"width": 1280, "layers": 25, "heads": 20}
    module = GPT2(50257, **sizes).eval()
    tokens = torch.randint(WORDS, (1, 16))
    torch.onnx.export(module, (tokens,), path, dynamo=False)


# ---- Adapters in tract ----

RANK, RATE = 8, 1e-3
# The matrices with adapters.
ADAPTED = "attention", "mixed", "wider", "narrower"


def step(path: str, *, in_blocks: bool) -> None:
    """GPT-2 small, its matrices in blocks of four bits or in single precision, as a step."""
    folder = Path(path)
    torch.manual_seed(0)
    module = GPT2(50257).eval()
    model = interop.from_torch(module, [torch.zeros(1, LENGTH, dtype=torch.long)])
    nnef_grad.save(model.graph, folder / "model", data=model.data)
    if in_blocks:
        for label in model.data:
            if label.split(".")[-2] in (*ADAPTED, "words") and label.endswith("weight"):
                _rewrite_in_blocks(folder / "model" / f"{label}.dat")
    data = nnef_grad.load_data(folder / "model")
    made = nnef_grad.training_step(
        nnef_grad.load(folder / "model"),
        data=data,
        loss="softmax_cross_entropy_with_labels(axis = -1)",
        optimizer="adam",
        learning_rate=RATE,
        adapters={f"blocks.*.{name}.weight": {"rank": RANK} for name in ADAPTED},
        target="tract",
    )
    nnef_grad.training.save_step(made, folder / "step")
    numbers = {label: torch.tensor(np.asarray(data[label])) for label in data}
    torch.save(numbers, folder / "numbers.pt")


def _rewrite_in_blocks(file: Path) -> None:
    """Q4_0 as tract has it: a scale in half precision, then codes k and k + 16 in a byte."""
    numbers = nnef_grad.load_data(file.parent)[file.stem].reshape(-1, 32)
    scales = (np.abs(numbers).max(1, keepdims=True) / 7).astype(np.float16)
    codes = np.clip(np.round(numbers / scales), -8, 7).astype(int) + 8
    halves = (codes[:, 16:] << 4 | codes[:, :16]).astype(np.uint8)
    content = np.concatenate([scales.view(np.uint8), halves], 1).tobytes()
    header = bytearray(file.read_bytes()[:128])
    header[4:8] = struct.pack("<I", len(content))
    header[44:52] = struct.pack("<2I", 2**32 - 1, 0x54523040)
    file.unlink()
    file.write_bytes(bytes(header) + content)


def in_torch(path: str) -> dict[str, Any]:
    """The same adapters, beside the same numbers."""
    folder = Path(path)
    state = torch.load(folder / "numbers.pt")
    module = GPT2(50257).eval()
    module.load_state_dict(
        {n: state[n].reshape(t.shape) for n, t in module.state_dict().items()}
    )
    module.requires_grad_(requires_grad=False)
    for name, layer in [*module.named_modules()]:
        if isinstance(layer, nn.Linear):
            file = folder / "step" / f"{name.replace('.', '_')}_weight_lora_A.dat"
            a = np.fromfile(file, np.float32, offset=128)
            parent = module.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], Adapted(layer, a))
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, RATE)
    losses = []
    begun = time.process_time()
    for tokens, target in batches():
        scores = module(torch.tensor(tokens))
        loss = nn.functional.cross_entropy(scores[0], torch.tensor(target[0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    seconds = (time.process_time() - begun) / STEPS
    return {"losses": losses, "peak": memory.mebibytes("VmHWM"), "seconds": seconds}


class Adapted(nn.Module):  # type: ignore[misc]
    """A linear layer with an adapter beside it."""

    def __init__(self, layer: nn.Linear, a: Any) -> None:
        super().__init__()
        self.layer = layer
        self.a = nn.Parameter(torch.tensor(a).reshape(RANK, layer.in_features))
        self.b = nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x) + x @ self.a.T @ self.b.T
        return y


if __name__ == "__main__":
    answer_by_kind(limit, saved, resident, export, step, in_torch)
