from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.operations.healthy import Pulse, examined, healthy, ids, refusing, the
from tests.operations.scenes import NAMESPACE, a_cluster, a_masked_quota, a_namespace, load
from tests.quota.cluster_quotas import a_cluster_quota
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ApiError,
    ForbiddenError,
    InternalError,
    NotFoundError,
    Object,
    UnauthorizedError,
    UnreachableError,
)
from webhook.operations.doctor.check_context import CONTROLLER_LOG, CheckContext, Settings
from webhook.operations.doctor.runner import CHECKS, Check, Examination, examine
from webhook.operations.findings import Finding, Subject, error
from webhook.operations.names import CLUSTER_ROLES, POLICY_VERSIONS, policy_kinds


def test_what_may_not_be_read_is_named_and_the_rest_goes_on() -> None:
    api = refusing(healthy(), ForbiddenError("no"), CLUSTER_ROLES, QUOTA_LEDGERS)
    found = examined(api)
    assert set(found.skipped) == {"ledgers", "rights"}
    told = [one.message for one in found.findings if one.id == "check.forbidden"]
    ledgers, roles = told
    assert ledgers.startswith("the ledgers: not looked at: you may not get quotaledgers of")
    assert ledgers.endswith("deferredquota.io in namespace team-a")
    assert roles.endswith("you may not list clusterroles of rbac.authorization.k8s.io")


def test_statuses_are_looked_at_although_policies_may_not_be_listed() -> None:
    api = refusing(healthy(), ForbiddenError("no"), *policy_kinds(POLICY_VERSIONS[0]))
    found = examined(api)
    assert {"emergency", "answers", "statuses"} <= set(found.checked)


def test_a_check_that_fails_is_named_and_the_rest_goes_on() -> None:
    api = refusing(healthy(), InternalError.of("etcd is gone"), PODS)
    found = examined(api)
    assert set(found.skipped) == {"ledgers", "guarded", "gates", "other-gates", "nodes"}
    assert {one.message.partition(": ")[2] for one in found.findings if one.id == "check.failed"}


@pytest.mark.parametrize("error", [UnreachableError("refused"), UnauthorizedError("who?")])
def test_without_an_answer_nothing_is_examined(error: ApiError) -> None:
    with pytest.raises(type(error)):
        examined(refusing(healthy(), error))


def test_what_is_read_once_is_parsed_once_however_many_namespaces_there_are() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota("p1"))
    load(cluster, a_cluster_quota())
    scene = CheckContext(FakeClient(cluster), Settings())
    (quota,), ((shared, _),) = scene.quotas(NAMESPACE), scene.cluster_quotas()
    assert scene.quotas(NAMESPACE)[0] is quota
    assert scene.cluster_quotas()[0][0] is shared
    load(cluster, a_masked_quota("p2"))
    assert [one.name for one in scene.quotas(NAMESPACE)] == ["p1"]
    scene.objects(RESOURCE_QUOTAS, again=True)
    assert [one.name for one in scene.quotas(NAMESPACE)] == ["p1", "p2"]
    assert scene.quotas("other") == []


def test_each_finding_is_compared_and_explained_once_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: Counter[str] = Counter()
    same = Finding.__eq__

    def count(self: Finding, other: object) -> bool:
        compared["findings"] += 1
        return same(self, other)

    class Scene(CheckContext):
        def explained(self, finding: Finding) -> Finding:
            compared["explained"] += 1
            return super().explained(finding)

    def many(_: CheckContext) -> Iterator[Finding]:
        for index in [*range(200), *range(200)]:
            yield error("many", None, str(index), "")

    monkeypatch.setattr(Finding, "__eq__", count)
    scene = Scene(FakeClient(healthy()), Settings())
    found = examine(scene, (Check("many", "many", many), Check("again", "again", many)))
    assert [one.message for one in found.findings] == [str(index) for index in range(200)]
    assert compared["explained"] == 800
    assert compared["findings"] <= 800


def test_events_are_looked_through_once_however_many_findings_there_are() -> None:
    read: Counter[str] = Counter()

    class Event(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            read[key] += 1
            return super().get(key, default)

    def an_event(index: int) -> Object:
        return Event(
            involvedObject={"kind": "Pod", "name": f"pod-{index}"},
            reportingComponent="deferred-quota",
            type="Warning",
            lastTimestamp="2026-06-01T00:00:00Z",
        )

    class Scene(CheckContext):
        def objects(self, *_args: object, **_options: object) -> tuple[Object, ...]:
            read["lists"] += 1
            return tuple(map(an_event, range(50)))

    def many(_: CheckContext) -> Iterator[Finding]:
        for index in range(100):
            for name in ("a", "b"):
                yield error(name, Subject("Pod", f"pod-{index}", "team-a"), "", CONTROLLER_LOG)

    scene = Scene(FakeClient(healthy()), Settings())
    found = examine(scene, (Check("many", "many", many),))
    assert [one.remedy != CONTROLLER_LOG for one in found.findings] == [True] * 100 + [False] * 100
    assert read.pop("lists") == 1
    assert max(read.values()) <= 50


def test_a_fault_of_a_check_stops_no_other() -> None:
    def crash(_: CheckContext) -> Iterator[Finding]:
        yield the(examined(healthy()), "control-plane.limited-resources")
        raise KeyError("spec")

    def fine(_: CheckContext) -> Iterator[Finding]:
        return iter(())

    pulse = Pulse()
    scene = CheckContext(FakeClient(healthy()), Settings(clock=pulse.clock, sleep=pulse.sleep))
    found = examine(scene, (Check("a", "this", crash), Check("b", "that", fine)))
    assert ids(found) == ["check.failed", "control-plane.limited-resources"]
    assert found.findings[0].message == "this: unexpected KeyError: 'spec'"
    assert found.checked == ["b"]


def test_an_api_server_without_policies_is_asked_once_for_each_version() -> None:
    """An API server that does not serve a kind answers 404."""
    kinds = [kind for version in POLICY_VERSIONS for kind in policy_kinds(version)]
    found = examined(refusing(healthy(), NotFoundError("404 page not found"), *kinds))
    assert ids(found)[0] == "mask.missing"
    assert not found.skipped


def test_the_newest_policies_that_are_served_are_looked_at() -> None:
    found = examined(refusing(healthy(), NotFoundError("404"), *policy_kinds("v1")))
    assert "mask.missing" not in ids(found)  # v1beta1 is served too


def offline(cluster: FakeCluster) -> Examination:
    return examined(cluster, lambda: None, is_offline=True)


def test_a_snapshot_says_what_it_has_nothing_about() -> None:
    found = offline(a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"})))
    assert found.skipped["crd"] == (
        "the snapshot has no customresourcedefinitions.apiextensions.k8s.io"
    )
    assert found.skipped["ledgers"] == "the snapshot has no quotaledgers.deferredquota.io"
    assert {"namespaces", "statuses", "quotas"} <= set(found.checked)
    assert [one for one in found.findings if one.severity == "error"] == []


def test_a_whole_snapshot_is_examined_without_waiting() -> None:
    found = offline(healthy())
    assert found.checked == [check.name for check in CHECKS]
    assert ids(found) == ["control-plane.limited-resources"]
