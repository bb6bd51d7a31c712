"""What PyTorch saves between the passes of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functorch.compile import (  # type: ignore[import-untyped]
    aot_function,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves


def saved_bytes(function: Callable[..., Any], given: Sequence[Tensor]) -> int:
    """The bytes between the passes of a function of one result, which PyTorch has split by
    a minimum cut, besides its operands and views of them. Nothing is computed.
    """
    nodes: list[Node] = []

    def forward(half: GraphModule, _: object) -> Any:
        # The first output is that of the function.
        nodes.extend(tree_leaves(half.graph.output_node().args)[1:])
        return make_boxed_func(half.forward)

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fed = [mode.from_tensor(tensor.detach()) for tensor in given]
        for fake, tensor in zip(fed, given, strict=True):
            fake.requires_grad_(tensor.requires_grad)
        aot_function(
            function,
            fw_compiler=forward,
            bw_compiler=lambda half, _: make_boxed_func(half.forward),
            partition_fn=min_cut_rematerialization_partition,
        )(*fed)
    bases = {_base(node) for node in nodes}
    kept = [node.meta["val"] for node in bases if node.op != "placeholder"]
    return sum(t.numel() * t.element_size() for t in kept if isinstance(t, Tensor))


def _base(node: Any) -> Any:
    """What a view is a view of."""
    while node.op == "call_function" and getattr(node.target, "is_view", False):
        node = node.args[0]
    return node
