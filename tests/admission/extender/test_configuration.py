"""The configuration for schedulers in `manifests/` fits what is served."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from webhook.admission.extender.endpoint import EXTENDER_PATHS
from webhook.install import MANIFESTS
from webhook.state.well_known import DEFAULT_NAMESPACE
from webhook.tls.issue import service_names
from webhook.tls.rotation_store import SERVICE


@pytest.fixture(scope="module")
def extender() -> dict[str, Any]:
    text = (MANIFESTS / "scheduler" / "configuration.yaml").read_text()
    configuration = yaml.safe_load(text)
    assert configuration["kind"] == "KubeSchedulerConfiguration"
    (only,) = configuration["extenders"]
    found: dict[str, Any] = only
    return found


def test_its_urls_are_those_that_are_served(extender: dict[str, Any]) -> None:
    prefix = "/" + extender["urlPrefix"].split("/", 3)[3]
    paths = {f"{prefix}/{extender[verb]}" for verb in ("filterVerb", "preemptVerb")}
    assert paths == set(EXTENDER_PATHS)


def test_the_certificate_is_checked_and_for_the_right_name(extender: dict[str, Any]) -> None:
    assert extender["urlPrefix"].startswith("https://")
    assert extender["enableHTTPS"] is True
    assert extender["tlsConfig"]["caFile"]
    assert extender["tlsConfig"]["serverName"] in service_names(SERVICE, DEFAULT_NAMESPACE)


def test_it_asks_for_all_pods_by_names_and_never_stops_the_scheduler(
    extender: dict[str, Any],
) -> None:
    assert extender["nodeCacheCapable"] is True
    assert not extender["managedResources"]
    assert extender["ignorable"] is True
