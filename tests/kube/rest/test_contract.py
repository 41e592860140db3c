"""The live client keeps the contract of the cluster port, over the twin's REST paths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.builders import a_cluster
from tests.kube.contract.base import ClusterContract
from tests.kube.contract.deletes import DeleteContract
from tests.kube.contract.pods import BindContract, EvictContract, PodContract
from tests.kube.contract.reads import ReadContract
from tests.kube.contract.watches import WatchContract
from tests.kube.contract.writes import CreateContract, PatchContract, UpdateContract
from tests.kube.rest.served import served
from webhook.kube.api import ClusterApi


class OverRest(ClusterContract):
    @pytest.fixture
    def api(self) -> Iterator[ClusterApi]:
        with served(a_cluster()) as client:
            yield client


class TestCreate(OverRest, CreateContract):
    pass


class TestRead(OverRest, ReadContract):
    pass


class TestUpdate(OverRest, UpdateContract):
    pass


class TestPatch(OverRest, PatchContract):
    pass


class TestDelete(OverRest, DeleteContract):
    pass


class TestPods(OverRest, PodContract):
    pass


class TestBind(OverRest, BindContract):
    pass


class TestEvict(OverRest, EvictContract):
    pass


class TestWatch(OverRest, WatchContract):
    pass
