"""ClusterDeferredQuota objects: what nobody could evaluate is refused while it is written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.admission.handlers.harness import a_review
from tests.quota.cluster_quotas import a_cluster_quota
from webhook.admission.deadline import Deadline
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.handlers.dispatch import decide
from webhook.admission.review import AdmissionResponse, Allowed, Denied, Phase, decode_review
from webhook.config import Configuration, QuotaUpdate
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import UnreachableError
from webhook.policy import compile_policy

Object = dict[str, Any]

BLUE: Final = {"team": "blue"}
OPTED_IN: Final = {"deferredquota.io/mode": "deferred"}


@dataclass
class NamespaceConfiguration:
    """Namespaces and a configuration; nobody is asked about one namespace."""

    namespaces: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {"team-a": {**BLUE, **OPTED_IN}}
    )
    configuration: Configuration = Configuration()  # noqa: RUF009 - frozen

    def create(self, obj: Object, *, dry_run: bool = False) -> AdmissionResponse:
        return self.decide(a_review("CREATE", obj=obj, dry_run=dry_run, **PLACE))

    def update(self, old: Object, new: Object) -> AdmissionResponse:
        return self.decide(a_review("UPDATE", obj=new, old=old, **PLACE))

    def every(self, _namespace: str) -> Mapping[str, Mapping[str, str]]:
        return self.namespaces

    def decide(self, review: Object) -> AdmissionResponse:
        request = decode_review(encode_json(review), Phase.VALIDATING)
        not_asked: Any = None
        context = HandlerContext(
            view=not_asked,
            ledger=not_asked,
            policy=compile_policy(self.configuration),
            configuration=self.configuration,
            namespace_labels=not_asked,
            on_creation=None,
            in_flight=not_asked,
            node_fit=not_asked,
            namespaces=self.every,
            elastic_quotas=lambda _namespace: (),
        )
        return decide(context, request, Deadline(time.monotonic() + 5))


PLACE: Final[Any] = {
    "resource": "clusterdeferredquotas",
    "group": "deferredquota.io",
    "namespace": "",
}


def warnings(answer: AdmissionResponse) -> tuple[str, ...]:
    assert isinstance(answer, Allowed)
    assert answer.decision == "valid"
    return answer.warnings


def causes(answer: AdmissionResponse) -> list[tuple[str, str, str]]:
    assert isinstance(answer, Denied)
    assert (answer.code, answer.reason) == (422, "Invalid")
    return [(one.reason, one.field, one.message) for one in answer.causes]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_sound_one_is_admitted(dry_run: bool) -> None:
    assert warnings(NamespaceConfiguration().create(a_cluster_quota(), dry_run=dry_run)) == ()


def test_what_is_not_deferred_is_sent_to_a_resource_quota() -> None:
    answer = NamespaceConfiguration().create(a_cluster_quota(hard={"pods": "1", "cpu": "1"}))
    detail = "is not deferred: limit it by a ResourceQuota in each namespace"
    assert causes(answer) == [("FieldValueInvalid", "spec.hard[pods]", detail)]
    assert isinstance(answer, Denied)
    assert answer.message == f"spec.hard[pods]: {detail}"


ELSEWHERE = "is not deferred: limit it by a ResourceQuota in each namespace"
SLIPS = {
    "request.cpu": 'is not deferred, did you mean "requests.cpu"?',
    "limit.memory": 'is not deferred, did you mean "limits.memory"?',
    "CPU": 'is not deferred, did you mean "cpu"?',
    "Requests.Memory": 'is not deferred, did you mean "requests.memory"?',
    "requests.storage": ELSEWHERE,
    "requests.ephemeral-storage": ELSEWHERE,
    "count/jobs.batch": ELSEWHERE,
    "gpu": ELSEWHERE,
    "pods": ELSEWHERE,
}


@pytest.mark.parametrize(("key", "detail"), SLIPS.items(), ids=SLIPS)
def test_a_slip_in_the_name_of_a_resource_is_reported(key: str, detail: str) -> None:
    office = NamespaceConfiguration(
        configuration=Configuration(deferred_resources=("requests.nvidia.com/gpu",))
    )
    wrong = a_cluster_quota(hard={key: "1"})
    expected = [("FieldValueInvalid", f"spec.hard[{key}]", detail)]
    assert causes(office.create(wrong)) == expected
    assert causes(office.update(a_cluster_quota(), wrong)) == expected


def test_what_is_wrong_with_the_limit_of_a_deferred_resource_is_said_as_ever() -> None:
    (cause,) = causes(NamespaceConfiguration().create(a_cluster_quota(hard={"requests.cpu": "-1"})))
    assert cause[1] == "spec.hard[requests.cpu]"
    assert "did you mean" not in cause[2]


@pytest.mark.parametrize("key", ["requests.nvidia.com/gpu", "nos.nebuly.com/gpu-memory"])
def test_extended_resources_are_deferred_whatever_the_configuration_says(key: str) -> None:
    assert warnings(NamespaceConfiguration().create(a_cluster_quota(hard={key: "8"}))) == ()


def test_a_name_that_is_like_a_deferred_one_is_worth_a_word() -> None:
    gpu = Configuration(deferred_resources=("requests.nvidia.com/gpu",))
    wrong = a_cluster_quota(hard={"requests.nvidia.com/gpus": "1"})
    assert warnings(NamespaceConfiguration(configuration=gpu).create(wrong)) == (
        'spec.hard[requests.nvidia.com/gpus]: did you mean "requests.nvidia.com/gpu"?',
    )


def test_of_more_names_than_the_definition_allows_the_first_are_compared() -> None:
    """Comparing takes time, and a client of the webhook's port may send any number."""
    gpu = NamespaceConfiguration(
        configuration=Configuration(deferred_resources=("requests.nvidia.com/gpu",))
    )
    similar = {f"requests.nvidia.com/gpu{number:03}": "1" for number in range(100)}
    found = warnings(gpu.create(a_cluster_quota(hard=similar)))
    assert sum("did you mean" in each for each in found) == 64
    slips = {f"requests.cpu{number:03}": "1" for number in range(100)}
    details = [detail for _, _, detail in causes(gpu.create(a_cluster_quota(hard=slips)))]
    assert sum("did you mean" in each for each in details) == 64


def test_a_selector_that_matches_nothing_is_worth_a_word() -> None:
    office = NamespaceConfiguration({"team-a": OPTED_IN})
    assert warnings(office.create(a_cluster_quota())) == (
        "spec.namespaceSelector: no namespace matches now",
    )


def test_namespaces_that_have_not_opted_in_are_named() -> None:
    inside = {f"in-{number}": {**BLUE, **OPTED_IN} for number in range(3)}
    outside = {f"out-{number}": BLUE for number in range(7)}
    others = {"shadow": {**BLUE, "deferredquota.io/mode": "shadow"}, "kube-system": BLUE}
    office = NamespaceConfiguration({**inside, **outside, **others})
    said = "matches and has not opted in: it is not charged"
    assert warnings(office.create(a_cluster_quota())) == (
        *(f"namespace out-{one} {said}" for one in range(5)),
        "3 more namespaces match and have not opted in",
    )


def test_very_many_requirements_are_not_compared_with_every_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.admission.handlers.cluster_deferred_quotas._MOST_COMPARED", 3)
    office = NamespaceConfiguration({f"out-{number}": BLUE for number in range(3)})
    assert len(warnings(office.create(a_cluster_quota()))) == 3
    office = NamespaceConfiguration({f"out-{number}": BLUE for number in range(4)})
    assert warnings(office.create(a_cluster_quota())) == ()


def test_one_may_be_written_while_its_namespaces_are_not_known() -> None:
    class Cut(NamespaceConfiguration):
        def every(self, _namespace: str) -> Mapping[str, Mapping[str, str]]:
            raise UnreachableError("no route")

    assert warnings(Cut().create(a_cluster_quota())) == ()


def test_an_update_that_leaves_the_spec_alone_passes_whatever_it_says() -> None:
    odd = a_cluster_quota(hard={"pods": "1"}, selector="odd")
    freed = {**odd, "metadata": {"name": "team-total", "finalizers": []}}
    assert warnings(NamespaceConfiguration().update(odd, freed)) == ()


def test_a_change_is_judged_as_a_new_one() -> None:
    answer = NamespaceConfiguration().update(a_cluster_quota(), a_cluster_quota(hard={"pods": "1"}))
    assert [field for _, field, _ in causes(answer)] == ["spec.hard[pods]"]


def test_a_limit_below_what_is_taken_is_legal_and_warned_of() -> None:
    old = {**a_cluster_quota(), "status": {"used": {"requests.cpu": "12", "cpu": "x"}}}
    new = a_cluster_quota(hard={"requests.cpu": "10"})
    assert (
        warnings(NamespaceConfiguration().update(old, new)) == ()
    )  # a status that somebody made unreadable
    old["status"] = {"used": {"requests.cpu": "12", "limits.cpu": "40"}}
    assert warnings(NamespaceConfiguration().update(old, new)) == (
        "requests.cpu: 12 is taken, above the limit 10; no pod is evicted",
    )
    assert (
        warnings(NamespaceConfiguration().update(old, a_cluster_quota(hard={"requests.cpu": "12"})))
        == ()
    )


FROZEN: Final = {
    QuotaUpdate.ALLOW: [],
    QuotaUpdate.SCOPES: ["spec.namespaceSelector"],
    QuotaUpdate.REJECT: ["spec.hard", "spec.namespaceSelector"],
}


@pytest.mark.parametrize(("option", "fields"), FROZEN.items(), ids=FROZEN)
def test_the_configuration_says_what_may_change(option: QuotaUpdate, fields: list[str]) -> None:
    office = NamespaceConfiguration(configuration=Configuration(quota_update=option))
    answer = office.update(a_cluster_quota(), a_cluster_quota(hard={"cpu": "9"}, selector={}))
    found = [] if isinstance(answer, Allowed) else [name for _, name, _ in causes(answer)]
    assert found == fields


def test_what_lacks_its_object_is_refused() -> None:
    answer = NamespaceConfiguration().decide(a_review("CREATE", obj=None, name="x", **PLACE))
    assert isinstance(answer, Denied)
    assert answer.code == 400


def test_what_may_not_change_may_change_with_an_elastic_quota() -> None:
    office = NamespaceConfiguration(configuration=Configuration(quota_update=QuotaUpdate.REJECT))
    controller = "system:serviceaccount:deferred-quota-system:deferred-quota-controller"
    changed = a_cluster_quota(hard={"cpu": "9"})
    review = {"obj": changed, "old": a_cluster_quota(), **PLACE}
    assert isinstance(office.decide(a_review("UPDATE", user=controller, **review)), Allowed)
    assert isinstance(office.decide(a_review("UPDATE", **review)), Denied)
