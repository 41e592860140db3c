"""What an API server has, by its own word: not every version of Kubernetes has all of it."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest

_GATE: Final = re.compile(
    r'^kubernetes_feature_enabled\{name="(\w+)",[^}]*\} ([01])$', re.MULTILINE
)
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Served:
    """A resource, or a subresource such as `pods/resize`, of a version of an API group."""

    path: str
    """Where that version is, such as `/api/v1`."""
    resource: str


@dataclass(frozen=True, slots=True)
class Gate:
    """A feature gate."""

    name: str
    is_on: bool = True
    """Whether it has to be on where no flag says otherwise; else it only has to be there."""


POLICIES: Final = Served(_ADMISSION, "mutatingadmissionpolicies")
RESIZE: Final = Served("/api/v1", "pods/resize")


@dataclass(frozen=True, slots=True)
class Features:
    """What an API server has."""

    version: str
    served: frozenset[Served]
    gates: Mapping[str, bool]
    """Feature gates, and whether they are on."""

    @classmethod
    def read(cls, rest: Rest) -> Features:
        """Ask an API server."""
        status, metrics = rest.call("GET", "/metrics")
        assert status == 200, metrics
        return cls(
            str(rest.get("/version")["gitVersion"]),
            frozenset(each for each in (POLICIES, RESIZE) if serves(rest, each)),
            gates(metrics.decode()),
        )

    def missing(self, feature: Served | Gate) -> str:
        """Return a sentence about what is not there; empty if it is."""
        if isinstance(feature, Served):
            is_there, what = feature in self.served, feature.resource
        else:
            is_there = self.gates.get(feature.name, False) >= feature.is_on
            is_there &= feature.name in self.gates
            what = f"the feature gate {feature.name}" + (" on" if feature.is_on else "")
        return "" if is_there else f"Kubernetes {self.version} does not have {what}"


def serves(rest: Rest, resource: Served) -> bool:
    """Return whether an API server has a resource."""
    return any(each["name"] == resource.resource for each in rest.get(resource.path)["resources"])


def gates(metrics: str) -> Mapping[str, bool]:
    """Read from an API server's metrics which feature gates there are, and which are on."""
    return {name: value == "1" for name, value in _GATE.findall(metrics)}


@functools.cache
def usual() -> Features:
    """Return what the API server that tests start has, where no flag says otherwise."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ControlPlane.start(Path(directory), scheduler=False, controller_manager=False) as plane,
    ):
        return Features.read(plane.rest)
