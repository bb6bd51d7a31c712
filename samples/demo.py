"""Compiles each sample, prints a summary, and shows the smallest backward graph."""

from __future__ import annotations

from pathlib import Path

import nnef_grad

SAMPLES = Path(__file__).parent


def main() -> None:
    for path in sorted(SAMPLES.glob("*.nnef")):
        graph = nnef_grad.load(path)
        backward = nnef_grad.differentiate(graph)
        print(f"{path.name}: {nnef_grad.summary(graph, backward)}")
        for tensor, gradient in backward.gradients.items():
            shape = list(graph.tensors[tensor].shape)
            print(f"    {gradient} {shape}")
    print("\nbroadcast.nnef, compiled:\n")
    print(
        nnef_grad.dumps(
            nnef_grad.differentiate(nnef_grad.load(SAMPLES / "broadcast.nnef"))
        )
    )


if __name__ == "__main__":
    main()
