"""What the parts of the contract share."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable

import pytest

from tests.builders import a_pod
from tests.kube.builders import (
    a_config_map,
)
from webhook.kube.api import (
    CONFIG_MAPS,
    PODS,
    ClusterApi,
    Revision,
)

SOON = 5.0
"""Seconds after which a watch in a test ends, should what it waits for never come."""

GATE = {"name": "example.com/wait"}

STATUS = {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1"}}


class ClusterContract:
    """The contract; see the module."""

    @pytest.fixture
    @abstractmethod
    def api(self) -> ClusterApi:
        """The cluster that has to keep the contract."""

    @pytest.fixture
    def namespace(self) -> str:
        """A namespace that exists and is empty."""
        return "team-a"

    @pytest.fixture
    def notes(self, api: ClusterApi, namespace: str) -> Revision:
        """A ConfigMap that exists."""
        return api.create(CONFIG_MAPS, a_config_map(namespace=namespace, text="one"))

    @pytest.fixture
    def pod(self, api: ClusterApi, namespace: str) -> Revision:
        """A pod that exists and has no node."""
        return api.create(PODS, a_pod(namespace=namespace, requests={"cpu": "1"}))


def run_together(*actors: Callable[[], None]) -> None:
    """Run functions at the same time and wait for them."""
    threads = [threading.Thread(target=actor) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
