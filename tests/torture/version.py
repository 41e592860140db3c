"""A version of the product: what is installed of it, and how its processes are started."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import webhook
from webhook.config import ReclaimMode
from webhook.install.rendering import render
from webhook.kube.api import Object

HEAP: Final = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=2"}
"""How the image has the C library keep its heap."""


class Installation(NamedTuple):
    """The objects of an installation whose webhook runs at a URL."""

    cluster: Sequence[Object]
    """Definitions and rights, those for reclaim included."""
    registrations: Sequence[Object]
    masks: Sequence[Object]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the product."""

    name: str
    """For reports."""
    python: Path
    """The interpreter that has what it depends on."""
    source: Path
    """The directory of its package `webhook`."""
    objects: Callable[[str, bytes], Installation]
    """URL and CA → what is installed."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that make its package the one that is imported, and those of the image."""
        return {"PYTHONPATH": str(self.source), "PYTHONSAFEPATH": "1", **HEAP}


def this_version(directory: Path) -> Version:
    """Return the version of this checkout, as a copy.

    A run lasts long; the checkout may be worked in meanwhile, and processes start anew.
    """
    source = directory / "source"
    package = Path(webhook.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, source / package.name, ignore=ignored, dirs_exist_ok=True)
    return Version("this checkout", Path(sys.executable), source, _objects)


def _objects(url: str, ca_pem: bytes) -> Installation:
    made = render(url=url, ca_pem=ca_pem, reclaim=ReclaimMode.ACT)
    return Installation((*made.cluster, *made.reclaim), made.registrations, made.masks)
