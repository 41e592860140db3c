"""While nobody knows the API server's feature gates, only what all settings refuse is refused."""

from __future__ import annotations

import itertools

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import a_review
from tests.builders import a_container, a_job
from tests.quota.jobs.job_strategies import STATUSES
from tests.reactions import ReactiveClient
from webhook.admission.review import Phase
from webhook.config import Configuration, JobFeatureGates
from webhook.kube.api import ForbiddenError
from webhook.policy import Policy, compile_policy
from webhook.quota.jobs import ALL_GATES, JobGate, job_update_errors

Object = dict[str, object]
RESOURCES, SCHEDULING = JobGate.MUTABLE_RESOURCES, JobGate.MUTABLE_SCHEDULING
SETTINGS = [frozenset(some) for n in range(3) for some in itertools.combinations(JobGate, n)]
CHANGES: dict[str, Object] = {
    "cpu": {},
    "node": {"nodeSelector": {"zone": "a"}},
    "name": {"schedulerName": "x"},
}


def job(cpu: str = "1", *, suspend: bool = True, status: Object, **template_spec: object) -> Object:
    container = a_container(requests={"cpu": cpu})
    return a_job(container, suspend=suspend, status=status, template_spec=template_spec)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("suspend", [True, False])
def test_what_one_setting_lets_pass_is_not_refused(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch, change: str, suspend: bool
) -> None:
    def refuse(_: object) -> Object:
        raise ForbiddenError("nobody may ask")

    monkeypatch.setattr(ReactiveClient, "server_version", refuse, raising=False)
    harness = open_harness()
    for status in STATUSES:
        old = job(suspend=suspend, status=status)
        cpu = "2" if change == "cpu" else "1"
        new = job(cpu, suspend=suspend, status=status, **CHANGES[change])
        is_legal = any(not job_update_errors(old, new, gates) for gates in SETTINGS)
        review = a_review("UPDATE", "jobs", new, old=old, group="batch")
        assert harness.post(review, Phase.MUTATING).allowed == is_legal, status


def test_rules_hold_every_set_of_gates_that_may_be_on() -> None:
    def possible(unknown: frozenset[str], **gates: bool) -> set[frozenset[str]]:
        configuration = Configuration(job_gates=JobFeatureGates(**gates))
        found = compile_policy(configuration, detected_gates=ALL_GATES, unknown_gates=unknown)
        return set(found.possible_job_gates)

    assert possible(frozenset()) == {ALL_GATES}
    assert possible(ALL_GATES) == set(SETTINGS)
    assert possible(ALL_GATES, mutable_pod_resources=False) == {
        frozenset(),
        frozenset({SCHEDULING}),
    }
    assert possible(ALL_GATES, mutable_pod_resources=True) == {ALL_GATES, frozenset({RESOURCES})}
    assert Policy().possible_job_gates == (ALL_GATES,)
