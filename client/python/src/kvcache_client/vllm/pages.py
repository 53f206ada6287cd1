# SPDX-License-Identifier: Apache-2.0
"""Where the engine's pages lie: regions of bytes for each layer of each group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from kvcache_client import PageLayout, Region
from kvcache_client.vllm.plan import Refused

if TYPE_CHECKING:
    from kvcache_client.vllm.plan import Plan

__all__ = ["Pages", "regions"]


def regions(tensor: torch.Tensor, blocks: int) -> Iterator[Region]:
    """The bytes of a layer's blocks: shape [blocks * k, ...], k kernel blocks in a block.

    Whatever lies behind a block in its tensor (another layer, padding) is left out. A block whose
    bytes lie in several places (heads outside of blocks) becomes several regions.
    """
    size = tensor.element_size()
    pages = tensor.shape[0]
    if pages % blocks:
        raise Refused(f"a KV cache tensor of shape {tuple(tensor.shape)} for {blocks} blocks")
    per_block = pages // blocks
    dims = [
        (n, s * size) for n, s in zip(tensor.shape[1:], tensor.stride()[1:], strict=True) if n > 1
    ]
    if per_block > 1:
        dims.append((per_block, tensor.stride(0) * size))
    dims.sort(key=lambda d: d[1])
    dense = size
    while dims and dims[0][1] == dense:
        dense *= dims.pop(0)[0]
    if any(stride < dense for _, stride in dims):
        raise Refused(f"a KV cache tensor of strides {tensor.stride()}: its elements overlap")
    outer = list(reversed(dims))
    for index in product(*(range(n) for n, _ in outer)):
        at = tensor.data_ptr() + sum(i * s for i, (_, s) in zip(index, outer, strict=True))
        yield Region(at, tensor.stride(0) * size * per_block, dense)


class Pages:
    """The KV caches of a worker.

    Attributes:
        layout: of all groups.
        device: the GPU that they are on; None: host memory.
    """

    def __init__(self, plan: Plan, caches: dict[str, Any], blocks: int) -> None:
        groups: list[list[Region]] = []
        self.device = self._device_of(caches)
        for i, group in enumerate(plan.groups):
            groups.append([])
            for layer, wanted in zip(group.layers, group.page_bytes, strict=True):
                tensors = caches[layer]
                tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
                made = [r for t in tensors for r in regions(t, blocks)]
                got = sum(r.bytes for r in made)
                if got != wanted:
                    shapes = [tuple(t.shape) for t in tensors]
                    raise Refused(
                        f"layer {layer} of group {i} has {got} bytes in a block (shapes {shapes}); "
                        f"vLLM's specification says {wanted}"
                    )
                groups[-1].extend(made)
        self.layout = PageLayout(groups, blocks, keep=list(caches.values()))

    @staticmethod
    def _device_of(caches: dict[str, Any]) -> torch.device | None:
        """The one that all tensors are on."""
        devices: dict[str, torch.device] = {}
        for layer, tensors in caches.items():
            for t in tensors if isinstance(tensors, (list, tuple)) else [tensors]:
                devices[str(t.device)] = t.device
                if t.device.type not in ("cpu", "cuda"):
                    raise Refused(
                        f"the KV cache of {layer} is on {t.device}: the connector copies host "
                        "memory and memory of CUDA devices"
                    )
        if len(devices) > 1:
            raise Refused(f"KV caches on {' and '.join(devices)}: one device a worker was expected")
        (device,) = devices.values()
        return device if device.type == "cuda" else None
