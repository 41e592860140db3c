"""The rights and the Service of the controller's page are installed where it is switched on."""

from __future__ import annotations

import json
from typing import Any, Final, cast

import pytest

from tests.install.manifests import of_kind
from tests.install.twin import Twin, run
from webhook.config import PageSettings
from webhook.install import render
from webhook.install.uninstall import Removal, uninstall
from webhook.kube.api import ClusterApi, kind_of
from webhook.operations.retry import RetryPolicy
from webhook.page.access import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS

QUICK: Final = RetryPolicy(seconds=2, pause_seconds=0.01, settle_seconds=0.01)
ON: Final = PageSettings(enabled=True, port=9001)
NAMES: Final = (
    "ClusterRole deferred-quota-page",
    "ClusterRoleBinding deferred-quota-page",
    "Service deferred-quota-page",
)


def configuration(**page: object) -> str:
    fields = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}
    return json.dumps({**fields, "page": page})


def names(objects: Any) -> list[str]:
    return [f"{each['kind']} {each['metadata']['name']}" for each in objects]


def installed(twin: Twin) -> set[str]:
    found: set[str] = set()
    for name in NAMES:
        kind = kind_of(
            "v1" if name.startswith("Service") else "rbac.authorization.k8s.io/v1",
            name.partition(" ")[0],
            namespaced=name.startswith("Service"),
        )
        found |= {f"{kind.kind} {one}" for one in every_name(twin, kind)} & {*NAMES}
    return found


def every_name(twin: Twin, kind: Any) -> list[str]:
    return [cast("Any", one)["metadata"]["name"] for one in twin.api.list(kind).items]


def test_without_the_page_there_is_nothing_of_it() -> None:
    assert render().page == ()
    assert not {*names(render().objects)} & {*NAMES}


def test_the_page_has_the_rights_that_it_uses_and_no_other() -> None:
    rendered = cast("Any", render(page=ON).page)
    (role,) = of_kind("ClusterRole", rendered)
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    kinds = (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS)
    assert granted == {(kind.group, kind.plural, "create") for kind in kinds}
    (binding,) = of_kind("ClusterRoleBinding", rendered)
    assert [one["name"] for one in binding["subjects"]] == ["deferred-quota-controller"]


def test_the_service_leads_to_the_port_of_the_configuration_in_the_controllers() -> None:
    rendered = cast("Any", render(page=ON))
    (service,) = of_kind("Service", rendered.page)
    assert [one["targetPort"] for one in service["spec"]["ports"]] == [9001]
    selected = [
        one["metadata"]["name"]
        for one in of_kind("Deployment", rendered.workloads)
        if service["spec"]["selector"].items()
        <= one["spec"]["template"]["metadata"]["labels"].items()
    ]
    assert selected == ["deferred-quota-controller"]


def test_another_namespace_has_the_page_of_its_own_controller() -> None:
    page = cast("Any", render(page=ON, namespace="quota-system").page)
    assert "deferred-quota-system" not in str(page)
    (binding,) = of_kind("ClusterRoleBinding", page)
    assert binding["subjects"][0]["namespace"] == "quota-system"


def test_processes_outside_of_the_cluster_need_no_service() -> None:
    assert "Service" not in {each["kind"] for each in render(page=ON, url="https://x:1").page}


@pytest.mark.parametrize("mask", ["policy", "webhook"])
def test_the_configuration_switches_it_on_and_off(mask: str) -> None:
    twin = Twin()
    run(twin, mask=mask)
    assert installed(twin) == set()
    run(twin, mask=mask, configuration=configuration(enabled=True))
    assert installed(twin) == {*NAMES}
    assert run(twin, mask=mask)[0] == 0
    _, lines = run(twin, mask=mask, configuration=configuration(enabled=False))
    assert [line for line in lines if "quota-page" in line] == [
        "Service deferred-quota-system/deferred-quota-page: deleted",
        "ClusterRoleBinding deferred-quota-page: deleted",
        "ClusterRole deferred-quota-page: deleted",
    ]
    assert installed(twin) == set()


def test_nothing_of_the_page_is_left_behind() -> None:
    twin = Twin()
    run(twin, configuration=configuration(enabled=True))
    uninstall(cast("ClusterApi", twin), Removal(patience=QUICK), lambda _line: None)
    assert installed(twin) == set()
