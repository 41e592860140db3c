"""GPU memory of a pod in GB, the resource `nos.nebuly.com/gpu-memory`.

Whole GPUs count as configured, MIG devices and slices by the size in their names:

    nvidia.com/gpu: 1               32 (by default)
    nvidia.com/mig-1g.10gb: 2       20
    nvidia.com/mig-1c.3g.20gb: 1    20
    nvidia.com/gpu-10gb: 3          30

Source: nos v0.1, pkg/gpu/util/resource.go; the rules here count profiles with attributes
(`.me`) and compute instances (`1c.`) too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList

GPU_MEMORY: Final = "nos.nebuly.com/gpu-memory"
"""Name of the resource, and quota key where a whole GPU has `DEFAULT_GB`."""

DEFAULT_GB: Final = 32
"""Memory of a whole GPU where the configuration says nothing."""

_KEY: Final = re.compile(rf"{re.escape(GPU_MEMORY)}(?:\.([1-9]\d{{0,5}})gb)?")
_REQUESTS: Final = "requests."
_GPU: Final = "nvidia.com/gpu"
_MIG: Final = "nvidia.com/mig-"
_SLICE: Final = "nvidia.com/gpu-"
_SIZES: Final = (
    re.compile(r"nvidia\.com/mig-(?:[1-9]\d*c\.)?[1-9]\d*g\.([1-9]\d*)gb(?:[.+-][a-z.+-]+)?"),
    re.compile(r"nvidia\.com/gpu-([1-9]\d*)gb"),
)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The GPU memory that a pod requests."""

    amount: Quantity
    unknown: tuple[str, ...] = ()
    """Resources that look like profiles of a GPU and name no size; they count nothing."""


def gpu_memory(usage: ResourceList, gb_per_gpu: int = DEFAULT_GB) -> GpuMemory | None:
    """Return the GPU memory of what a pod is charged; None where it asks for no GPU.

    Args:
        usage: The charge of the pod, by quota key.
        gb_per_gpu: Memory of a whole GPU, GB.
    """
    total, unknown, asks = ZERO, [], False
    for key, amount in usage.items():
        name = key.removeprefix(_REQUESTS)
        if name == key or not name.startswith((_GPU, _MIG)):
            continue
        size = _gb_of(name, gb_per_gpu)
        if size is None and name.startswith((_MIG, _SLICE)):
            unknown.append(name)
            asks = True
        elif size is not None:
            total += Quantity.of_nano(amount.nano * size)
            asks = True
    return GpuMemory(total, tuple(sorted(unknown))) if asks else None


def gpu_memory_key(gb_per_gpu: int) -> str:
    """Return the quota key of GPU memory.

    It says what a whole GPU counts, so that whatever charges by a quota does so alike.
    """
    return GPU_MEMORY if gb_per_gpu == DEFAULT_GB else f"{GPU_MEMORY}.{gb_per_gpu}gb"


def gpu_memory_keys(keys: Iterable[str]) -> list[str]:
    """Return those of some quota keys that are of GPU memory."""
    return [key for key in keys if key.startswith(GPU_MEMORY) and _KEY.fullmatch(key)]


def gb_of(key: str) -> int:
    """Return what a whole GPU counts by a quota key of GPU memory, GB."""
    found = _KEY.fullmatch(key)
    return DEFAULT_GB if found is None or found[1] is None else int(found[1])


def is_gpu_profile(name: str) -> bool:
    """Return whether the name of a resource is a whole GPU, or has the size of a part."""
    return _gb_of(name, DEFAULT_GB) is not None


def _gb_of(name: str, gb_per_gpu: int) -> int | None:
    if name == _GPU:
        return gb_per_gpu
    found = next((match for size in _SIZES if (match := size.fullmatch(name))), None)
    return None if found is None else int(found[1])
