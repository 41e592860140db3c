"""A real API server keeps the contract of the cluster port, and the live client with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.waiting import eventually
from tests.kube.contract.base import ClusterContract
from tests.kube.contract.deletes import DeleteContract
from tests.kube.contract.pods import BindContract, EvictContract, PodContract
from tests.kube.contract.reads import PagesContract, ReadContract
from tests.kube.contract.watches import WatchContract
from tests.kube.contract.writes import CreateContract, PatchContract, UpdateContract
from webhook.kube.api import (
    NAMESPACES,
    QUOTA_LEDGERS,
    ClusterApi,
    NotFoundError,
    TooManyRequestsError,
    kind_of,
)
from webhook.kube.rest import RestClient, load_config

_DEFINITIONS = kind_of("apiextensions.k8s.io/v1", "CustomResourceDefinition", namespaced=False)
_NUMBERS = count(1)


def roomy_definition() -> dict[str, Any]:
    """A definition of ledgers that keeps whatever fields a test sends."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    kind = QUOTA_LEDGERS
    return {
        "apiVersion": _DEFINITIONS.api_version,
        "kind": _DEFINITIONS.kind,
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    """A client of a control plane without controllers, which change nothing then."""
    directory: Path = tmp_path_factory.mktemp("plane")
    with ControlPlane.start(directory, scheduler=False, controller_manager=False) as plane:
        client = RestClient(load_config(plane.kubeconfig()))
        client.create(_DEFINITIONS, roomy_definition())
        eventually(lambda: serves_ledgers(client), "ledgers are served")
        yield client
        client.close()


def serves_ledgers(client: RestClient) -> bool:
    """Whether the API server knows the kind by now."""
    try:
        client.list(QUOTA_LEDGERS)
    except (NotFoundError, TooManyRequestsError):  # the latter while its storage begins
        return False
    return True


class OnRealServer(ClusterContract):
    @pytest.fixture
    def api(self, client: RestClient) -> ClusterApi:
        return client

    @pytest.fixture
    def namespace(self, client: RestClient) -> str:
        name = f"contract-{next(_NUMBERS)}"
        client.create(NAMESPACES, {"metadata": {"name": name}})
        return name


class TestCreate(OnRealServer, CreateContract):
    pass


class TestRead(OnRealServer, ReadContract):
    pass


class TestPages(OnRealServer, PagesContract):
    pass


class TestUpdate(OnRealServer, UpdateContract):
    pass


class TestPatch(OnRealServer, PatchContract):
    pass


class TestDelete(OnRealServer, DeleteContract):
    pass


class TestPods(OnRealServer, PodContract):
    pass


class TestBind(OnRealServer, BindContract):
    pass


class TestEvict(OnRealServer, EvictContract):
    pass


class TestWatch(OnRealServer, WatchContract):
    pass
