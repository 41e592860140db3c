"""The twin keeps the contract of the cluster port."""

from __future__ import annotations

import pytest

from tests.cluster.builders import a_cluster, a_config_map
from tests.cluster.contract.base import ClusterContract
from tests.cluster.contract.deletes import DeleteContract
from tests.cluster.contract.pods import BindContract, PodContract
from tests.cluster.contract.reads import PagesContract, ReadContract
from tests.cluster.contract.watches import WatchContract
from tests.cluster.contract.writes import CreateContract, PatchContract, UpdateContract
from webhook.cluster.api import CONFIG_MAPS, ClusterApi, ExpiredError
from webhook.cluster.memory import MemoryClient


class OnMemory(ClusterContract):
    @pytest.fixture
    def api(self) -> ClusterApi:
        return MemoryClient(a_cluster())


class TestCreate(OnMemory, CreateContract):
    pass


class TestRead(OnMemory, ReadContract):
    pass


class TestPages(OnMemory, PagesContract):
    def test_a_moment_that_is_forgotten_cannot_be_continued(self, api: ClusterApi) -> None:
        assert isinstance(api, MemoryClient)
        for name in "abc":
            api.create(CONFIG_MAPS, a_config_map(name))
        pages = api.pages(CONFIG_MAPS, limit=2)
        next(pages)
        api.create(CONFIG_MAPS, a_config_map("d"))
        api.cluster.compact()
        with pytest.raises(ExpiredError):
            next(pages)


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
