"""Replicas whose configurations give a whole GPU different memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.admission.handlers.harness import AdmissionHarness
from tests.controllers.elastic.objects import an_elastic_quota
from tests.controllers.elastic.world import World, world
from tests.reactions import ReactiveClient
from webhook.config import ConfigurationFile
from webhook.policy import check_configuration
from webhook.runtime import Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

MEMORY = "nos.nebuly.com/gpu-memory"
GPU = {"nvidia.com/gpu": "1"}


def _settings(gb: int) -> dict[str, object]:
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "Configuration",
        "elastic": {"gpuMemoryGB": gb},
    }


@contextmanager
def _another_replica(here: World, path: Path, gb: int) -> Iterator[World]:
    """Open a replica that answers requests and does not lead."""
    path.write_text(json.dumps(_settings(gb)))
    client, metrics = ReactiveClient(here.harness.cluster), Metrics()
    configuration = ConfigurationFile(path, check=check_configuration)
    options = EngineOptions(configuration, controller=None, follow_ledgers=True)
    engine = Engine(client, metrics, options)
    engine.start()
    try:
        assert engine.wait_until_ready(30) == []
        yield World(AdmissionHarness(here.harness.cluster, client, engine, metrics))
    finally:
        engine.stop()


def test_all_replicas_charge_a_gpu_as_the_pool_of_the_leader_names_it(tmp_path: Path) -> None:
    quota = an_elastic_quota("team-a", {MEMORY: 160})
    settings: dict[str, object] = {"elastic": {"gpuMemoryGB": 80}}
    with (
        world(quota, directory=tmp_path, settings=settings) as here,
        _another_replica(here, tmp_path / "other.yaml", 16) as other,
    ):
        here.wait_for(epool_default={f"{MEMORY}.80gb": "160"})
        assert other.bind("g0", "team-a", **GPU).allowed
        assert here.bind("g1", "team-a", **GPU).allowed
        refused = (
            f"elastic pool default is used up, requested: {MEMORY}=80,"
            f" used: {MEMORY}=160, size: {MEMORY}=160"
        )
        assert other.bind("g2", "team-a", **GPU).message == refused
        assert here.bind("g3", "team-a", **GPU).message == refused
        # alerts compare this metric
        assert here.metric("configuration_hash") != other.metric("configuration_hash")


def test_a_replica_that_has_not_read_the_new_memory_waits_for_the_count(tmp_path: Path) -> None:
    quota = an_elastic_quota("team-a", {MEMORY: 96})
    settings: dict[str, object] = {"elastic": {"gpuMemoryGB": 32}}
    with (
        world(quota, directory=tmp_path, settings=settings) as here,
        _another_replica(here, tmp_path / "other.yaml", 32) as other,
    ):
        here.wait_for(epool_default={MEMORY: "96"})
        assert other.bind("g0", "team-a", **GPU).allowed
        (tmp_path / "configuration.yaml").write_text(json.dumps(_settings(48)))
        here.wait_for(epool_default={f"{MEMORY}.48gb": "96"})
        assert other.bind("g1", "team-a", **GPU).allowed
        assert other.bind("g2", "team-a", **GPU).message == (
            f"elastic pool default is used up, requested: {MEMORY}=48,"
            f" used: {MEMORY}=96, size: {MEMORY}=96"
        )
