"""The live client keeps the contract of the cluster port, over the twin's REST paths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.builders import a_cluster
from tests.cluster.contract.base import ClusterContract
from tests.cluster.contract.deletes import DeleteContract
from tests.cluster.contract.pods import BindContract, PodContract
from tests.cluster.contract.reads import ReadContract
from tests.cluster.contract.watches import WatchContract
from tests.cluster.contract.writes import CreateContract, PatchContract, UpdateContract
from tests.cluster.live.embedded import served
from webhook.cluster.api import ClusterApi


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


class TestWatch(OverRest, WatchContract):
    pass
