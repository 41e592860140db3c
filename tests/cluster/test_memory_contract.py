"""The twin keeps the contract of the cluster port."""

from __future__ import annotations

import pytest

from tests.cluster.builders import a_cluster
from tests.cluster.contract.base import ClusterContract
from tests.cluster.contract.deletes import DeleteContract
from tests.cluster.contract.pods import BindContract, PodContract
from tests.cluster.contract.reads import ReadContract
from tests.cluster.contract.watches import WatchContract
from tests.cluster.contract.writes import CreateContract, PatchContract, UpdateContract
from webhook.cluster.api import ClusterApi
from webhook.cluster.memory import MemoryClient


class OnMemory(ClusterContract):
    @pytest.fixture
    def api(self) -> ClusterApi:
        return MemoryClient(a_cluster())


class TestCreate(OnMemory, CreateContract):
    pass


class TestRead(OnMemory, ReadContract):
    pass


class TestUpdate(OnMemory, UpdateContract):
    pass


class TestPatch(OnMemory, PatchContract):
    pass


class TestDelete(OnMemory, DeleteContract):
    pass


class TestPods(OnMemory, PodContract):
    pass


class TestBind(OnMemory, BindContract):
    pass


class TestWatch(OnMemory, WatchContract):
    pass
