"""The fake API server keeps the contract of the cluster port."""

from __future__ import annotations

import pytest

from tests.kube.builders import a_cluster, a_config_map
from tests.kube.contract.base import ClusterContract
from tests.kube.contract.deletes import DeleteContract
from tests.kube.contract.pods import BindContract, EvictContract, PodContract
from tests.kube.contract.reads import PagesContract, ReadContract
from tests.kube.contract.watches import WatchContract
from tests.kube.contract.writes import CreateContract, PatchContract, UpdateContract
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import CONFIG_MAPS, ClusterApi, ExpiredError


class OnMemory(ClusterContract):
    @pytest.fixture
    def api(self) -> ClusterApi:
        return FakeClient(a_cluster())


class TestCreate(OnMemory, CreateContract):
    pass


class TestRead(OnMemory, ReadContract):
    pass


class TestPages(OnMemory, PagesContract):
    def test_a_moment_that_is_forgotten_cannot_be_continued(self, api: ClusterApi) -> None:
        assert isinstance(api, FakeClient)
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


class TestEvict(OnMemory, EvictContract):
    pass


class TestWatch(OnMemory, WatchContract):
    pass
