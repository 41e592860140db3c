"""Pods to be created, against their quotas: verdicts, order of checks, sums.

Cases: answers of kubernetes v1.36.2's CheckRequest, and what its source says of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.builders import Object, a_container, a_pod, a_quota, an_expression
from tests.quota.parsed import amounts, pod_of, quota_of
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.evaluation import evaluate
from webhook.quota.charging.limited_resources import LimitedResource

START = 'pods "web-1" is forbidden: '
GPU = "requests.nvidia.com/gpu"
IN_GOLD = an_expression("PriorityClass", "In", "gold")


@dataclass(frozen=True)
class Case:
    """A pod, its quotas, and the answer: a message, or the sums after."""

    pod: Object
    quotas: list[Object] = field(default_factory=list)
    limited: list[Object] = field(default_factory=list)
    message: str = ""
    used: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _cpu(amount: str, **fields: object) -> Object:
    return a_pod(requests={"cpu": amount}, **fields)  # type: ignore[arg-type]


def _rc(hard: str, used: str, name: str = "team-a", **fields: object) -> Object:
    return a_quota(
        name,
        hard={"requests.cpu": hard},
        used={"requests.cpu": used},
        **fields,  # type: ignore[arg-type]
    )


def _exceeded(quota: str, requested: str, used: str, limited: str) -> str:
    return (
        f"{START}exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"
    )


CASES = {
    "fits below": Case(_cpu("1"), [_rc("2", "1")], used={"team-a": {"requests.cpu": "2"}}),
    "fits exactly": Case(_cpu("2"), [_rc("2", "0")], used={"team-a": {"requests.cpu": "2"}}),
    "does not fit": Case(
        _cpu("2"),
        [_rc("2", "1")],
        message=_exceeded("team-a", "requests.cpu=2", "requests.cpu=1", "requests.cpu=2"),
    ),
    "no quota": Case(_cpu("9")),
    "no quota, and a negative amount": Case(_cpu("-1")),
    "an illegal operator in limitedResources switches all checks off": Case(
        _cpu("2"),
        [_rc("2", "2")],
        [
            {
                "resource": "pods",
                "matchScopes": [an_expression("PriorityClass", "in", "gold")],
            }
        ],
        used={"team-a": {"requests.cpu": "2"}},
    ),
    "an illegal value in limitedResources does too": Case(
        _cpu("-2"),
        [_rc("2", "2")],
        [{"resource": "pods", "matchScopes": [an_expression("PriorityClass", "In", "a b")]}],
        used={"team-a": {"requests.cpu": "2"}},
    ),
    "limited keys without a quota": Case(
        a_pod(requests={"cpu": "2", "nvidia.com/gpu": "1"}),
        [],
        [{"resource": "pods", "matchContains": ["requests.nvidia.com", "cpu"]}],
        message=f"{START}insufficient quota to consume: cpu,requests.cpu,{GPU}",
    ),
    "limited keys covered in part": Case(
        _cpu("1"),
        [_rc("2", "0")],
        [{"resource": "pods", "matchContains": ["cpu"]}],
        message=f"{START}insufficient quota to consume: cpu",
    ),
    "limited keys covered": Case(
        _cpu("1"),
        [_rc("2", "0"), a_quota("other", hard={"cpu": "2"}, used={"cpu": "0"})],
        [{"resource": "pods", "matchContains": ["cpu"]}],
        used={"team-a": {"requests.cpu": "1"}, "other": {"cpu": "1"}},
    ),
    "a quota that does not match covers no key": Case(
        _cpu("1"),
        [_rc("2", "0", scopes=["Terminating"])],
        [{"resource": "pods", "matchContains": ["requests.cpu"]}],
        message=f"{START}insufficient quota to consume: requests.cpu",
    ),
    "limited keys come before limited scopes": Case(
        _cpu("1", priorityClassName="gold"),
        [],
        [{"resource": "pods", "matchContains": ["pods"], "matchScopes": [IN_GOLD]}],
        message=f"{START}insufficient quota to consume: count/pods,pods",
    ),
    "a limited scope, whatever resource the entry names": Case(
        _cpu("1", priorityClassName="gold"),
        [],
        [{"resource": "persistentvolumeclaims", "matchScopes": [IN_GOLD]}],
        message="insufficient quota to match these scopes: [{PriorityClass In [gold]}]",
    ),
    "several limited scopes": Case(
        _cpu("1", priorityClassName="gold"),
        [],
        [
            {
                "resource": "pods",
                "matchScopes": [
                    an_expression("PriorityClass", "In", "gold", "silver"),
                    an_expression("Terminating"),
                    an_expression("PriorityClass"),
                ],
            }
        ],
        message="insufficient quota to match these scopes: "
        "[{PriorityClass In [gold silver]} {PriorityClass Exists []}]",
    ),
    "a limited scope that the pod is not in": Case(
        _cpu("1"), [], [{"resource": "pods", "matchScopes": [IN_GOLD]}]
    ),
    "a quota for the scope covers, whatever it limits": Case(
        _cpu("1", priorityClassName="gold"),
        [a_quota(hard={"configmaps": "1"}, used={}, expressions=[IN_GOLD])],
        [{"resource": "pods", "matchScopes": [IN_GOLD]}],
        used={"team-a": {}},
    ),
    "a quota for the scope covers with an empty status": Case(
        _cpu("1", priorityClassName="gold"),
        [a_quota(hard={"pods": "1"}, scopes=["Terminating", "PriorityClass"])],
        [{"resource": "pods", "matchScopes": [IN_GOLD]}],
        used={"team-a": {}},
    ),
    "NotIn of another class covers": Case(
        _cpu("1", priorityClassName="gold"),
        [_rc("2", "0", expressions=[an_expression("PriorityClass", "NotIn", "silver")])],
        [{"resource": "pods", "matchScopes": [IN_GOLD]}],
        used={"team-a": {"requests.cpu": "1"}},
    ),
    "DoesNotExist does not cover": Case(
        _cpu("1", priorityClassName="gold"),
        [_rc("2", "0", expressions=[an_expression("PriorityClass", "DoesNotExist")])],
        [{"resource": "pods", "matchScopes": [IN_GOLD]}],
        message="insufficient quota to match these scopes: [{PriorityClass In [gold]}]",
    ),
    "a finished pod is charged for its existence only": Case(
        _cpu("9", status={"phase": "Succeeded"}),
        [a_quota(hard={"pods": "0", "count/pods": "1"}, used={"pods": "0", "count/pods": "0"})],
        used={"team-a": {"pods": "0", "count/pods": "1"}},
    ),
    "an empty status enforces nothing": Case(
        _cpu("9"), [a_quota(hard={"requests.cpu": "1"})], used={"team-a": {}}
    ),
    "the second quota is full": Case(
        _cpu("1"),
        [_rc("9", "0", "q1"), _rc("1", "1", "q2")],
        message=_exceeded("q2", "requests.cpu=1", "requests.cpu=1", "requests.cpu=1"),
    ),
    "of two full quotas the first by name is blamed": Case(
        _cpu("1"),
        [_rc("1", "1", "q2"), _rc("1", "1", "q1")],
        message=_exceeded("q1", "requests.cpu=1", "requests.cpu=1", "requests.cpu=1"),
    ),
    "sums are exact over formats": Case(
        a_pod(requests={"memory": "1Gi"}),
        [a_quota(hard={"requests.memory": "9Gi"}, used={"requests.memory": "1G"})],
        used={"team-a": {"requests.memory": "2073741824"}},
    ),
    "amounts are written as the platform prints them": Case(
        a_pod(requests={"memory": "1024Mi", "cpu": "1.0"}),
        [
            a_quota(
                hard={"requests.memory": "1.5Gi", "requests.cpu": "1500m"},
                used={"requests.memory": "1024Mi", "requests.cpu": "1000m"},
            )
        ],
        message=_exceeded(
            "team-a",
            "requests.cpu=1,requests.memory=1Gi",
            "requests.cpu=1,requests.memory=1Gi",
            "requests.cpu=1500m,requests.memory=1536Mi",
        ),
    ),
    "a remembered text is kept": Case(
        _cpu("1.500"),
        [_rc("+1", "+1")],
        message=_exceeded("team-a", "requests.cpu=1.500", "requests.cpu=+1", "requests.cpu=+1"),
    ),
    "only exceeded keys are listed": Case(
        _cpu("1"),
        [a_quota(hard={"count/pods": "1", "pods": "1"}, used={"count/pods": "1", "pods": "0"})],
        message=_exceeded("team-a", "count/pods=1", "count/pods=1", "count/pods=1"),
    ),
    "zero fits into zero": Case(_cpu("0"), [_rc("0", "0")], used={"team-a": {"requests.cpu": "0"}}),
    "zero fits even above the ceiling": Case(
        _cpu("0"), [_rc("0", "5")], used={"team-a": {"requests.cpu": "5"}}
    ),
    "an amount that is not stated does not fit into zero": Case(
        a_pod(),
        [_rc("0", "0")],
        message=f"{START}failed quota: team-a: must specify requests.cpu for: main",
    ),
    "one thousandth does not fit into zero": Case(
        _cpu("1m"),
        [_rc("0", "0")],
        message=_exceeded("team-a", "requests.cpu=1m", "requests.cpu=0", "requests.cpu=0"),
    ),
    "a key above its ceiling that is not asked for does not matter": Case(
        _cpu("1"),
        [a_quota(hard={"requests.cpu": "2", GPU: "1"}, used={"requests.cpu": "0", GPU: "3"})],
        used={"team-a": {"requests.cpu": "1", GPU: "3"}},
    ),
    "a bare extended resource limits nothing": Case(
        a_pod(requests={"nvidia.com/gpu": "2"}),
        [a_quota(hard={"nvidia.com/gpu": "1"}, used={"nvidia.com/gpu": "0"})],
        used={"team-a": {"nvidia.com/gpu": "0"}},
    ),
    "keys of other objects are left alone": Case(
        _cpu("1"),
        [
            a_quota(
                hard={"requests.cpu": "2", "configmaps": "1"},
                used={"requests.cpu": "0", "configmaps": "7"},
            )
        ],
        used={"team-a": {"requests.cpu": "1", "configmaps": "7"}},
    ),
    "a key that is not counted yet": Case(
        _cpu("1"),
        [
            a_quota(
                hard={"requests.cpu": "2", "pods": "1", "configmaps": "1"},
                used={"requests.cpu": "0"},
            )
        ],
        message=f"{START}status unknown for quota: team-a, resources: pods,requests.cpu",
    ),
    "a key of other objects need not be counted": Case(
        _cpu("1"),
        [a_quota(hard={"requests.cpu": "2", "configmaps": "1"}, used={"requests.cpu": "0"})],
        used={"team-a": {"requests.cpu": "1"}},
    ),
    "what is not stated comes before what is not counted": Case(
        a_pod(),
        [a_quota(hard={"requests.cpu": "2"}, used={})],
        message=f"{START}failed quota: team-a: must specify requests.cpu for: main",
    ),
    "quotas are checked one after another": Case(
        a_pod(),
        [_rc("2", "0", "q2"), a_quota("q1", hard={"pods": "2"}, used={})],
        message=f"{START}status unknown for quota: q1, resources: pods",
    ),
    "must specify names the quota's keys only": Case(
        a_pod(a_container("a"), a_container("b", requests={"memory": "1"})),
        [
            a_quota(
                hard={"requests.memory": "1Gi", "pods": "9"},
                used={"requests.memory": "0", "pods": "0"},
            )
        ],
        message=f"{START}failed quota: team-a: must specify requests.memory for: a",
    ),
    "a quota that does not match asks for nothing": Case(
        a_pod(), [_rc("0", "0", scopes=["Terminating"])], used={"team-a": {"requests.cpu": "0"}}
    ),
    "pod-level resources excuse from all statements": Case(
        a_pod(resources={"requests": {"memory": "1Gi"}}),
        [_rc("0", "0")],
        used={"team-a": {"requests.cpu": "0"}},
    ),
    "a negative amount": Case(
        a_pod(requests={"cpu": "-1", "memory": "-1"}),
        [a_quota(hard={"pods": "9"}, used={"pods": "0"})],
        message=f"{START}quota usage is negative for resource(s): "
        "cpu,memory,requests.cpu,requests.memory",
    ),
    "a negative amount, and no quota that matches": Case(
        _cpu("-1"),
        [_rc("2", "0", scopes=["Terminating"])],
        message=f"{START}quota usage is negative for resource(s): cpu,requests.cpu",
    ),
    "negative comes before uncovered": Case(
        _cpu("-1"),
        [],
        [{"resource": "pods", "matchContains": ["pods"]}],
        message=f"{START}quota usage is negative for resource(s): cpu,requests.cpu",
    ),
    "uncovered comes before exceeded": Case(
        _cpu("9"),
        [_rc("1", "0")],
        [{"resource": "pods", "matchContains": ["pods"]}],
        message=f"{START}insufficient quota to consume: count/pods,pods",
    ),
    "scopes that cannot be evaluated fail every pod": Case(
        a_pod(),
        [
            _rc("2", "0", "q1"),
            a_quota("q0", expressions=[an_expression("PriorityClass", "in", "gold")]),
        ],
        message="error matching scopes of quota q0, err: error on matching scope "
        "{PriorityClass in [gold]}: failed to parse and convert selector: "
        '"in" is not a valid scope selector operator',
    ),
    "only status counts, of the spec only the scopes": Case(
        _cpu("1"),
        [
            {
                **a_quota(hard={"requests.cpu": "0"}),
                "status": {"hard": {"pods": "1"}, "used": {"pods": "0"}},
            }
        ],
        used={"team-a": {"pods": "1"}},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_create_is_answered_as_the_platform_does(case: Case) -> None:
    found = evaluate(case.pod, case.quotas, case.limited)
    assert found.message == case.message
    assert found.allowed is (not case.message)
    assert (found.denial is None) is found.allowed
    assert {name: to_text(used) for name, used in found.used_after.items()} == case.used


NAMES: dict[str, tuple[Object, str]] = {
    "the name": ({"name": "web-1", "generateName": "web-"}, "web-1"),
    "the start of a name to be generated": ({"name": "", "generateName": "web-"}, "web-"),
    "neither": ({"name": ""}, "Unknown"),
}


@pytest.mark.parametrize(("metadata", "name"), NAMES.values(), ids=NAMES.keys())
def test_a_message_starts_with_the_best_name_there_is(metadata: Object, name: str) -> None:
    pod = a_pod(requests={"cpu": "9"}, metadata=metadata)
    assert evaluate(pod, [_rc("1", "0")]).message.startswith(f'pods "{name}" is forbidden: ')


def test_a_pod_stuck_in_its_deletion_is_charged_until_its_time_is_over() -> None:
    deletion = {
        "deletionTimestamp": "2026-01-01T00:09:30Z",
        "deletionGracePeriodSeconds": 30,
    }
    pod = a_pod(requests={"cpu": "9"}, metadata=deletion)
    quotas = [_rc("1", "0")]
    assert not evaluate(pod, quotas).allowed
    assert not evaluate(pod, quotas, now="2026-01-01T00:10:00Z").allowed
    assert evaluate(pod, quotas, now="2026-01-01T00:10:01Z").allowed


def test_objects_that_are_read_already_are_taken_as_they_are() -> None:
    raw, quota = _cpu("2"), _rc("2", "1")
    entry: Object = {"resource": "pods", "matchContains": ["requests.cpu"]}
    expected = evaluate(raw, [quota], [entry])
    found = evaluate(
        pod_of(raw),
        [quota_of(hard={"requests.cpu": "2"}, used={"requests.cpu": "1"})],
        [LimitedResource("pods", match_contains=("requests.cpu",))],
    )
    assert found == expected
    assert not found.allowed


def test_one_entry_alone_needs_no_list() -> None:
    entry: Object = {"resource": "pods", "matchContains": ["cpu"]}
    listed = evaluate(_cpu("1"), [], [entry])
    assert not listed.allowed
    assert evaluate(_cpu("1"), [], entry) == listed
    assert evaluate(_cpu("1"), [], LimitedResource.from_object(entry)) == listed
    assert evaluate(_cpu("1"), [], None).allowed


def test_null_is_nothing() -> None:
    assert evaluate(_cpu("1"), None, None) == evaluate(_cpu("1"), [])
    assert evaluate(_cpu("1"), [], [None]).allowed  # type: ignore[list-item]


def test_what_is_given_is_not_changed() -> None:
    quota = quota_of(hard={"requests.cpu": "2"}, used={"requests.cpu": "1"})
    assert evaluate(_cpu("1"), [quota]).used_after == {"team-a": amounts(requests_cpu="2")}
    assert quota.status_used == amounts(requests_cpu="1")


BAD_INPUT: dict[str, tuple[object, object, object, object, str]] = {
    "a pod that is none": ([], [], (), None, ""),
    "a field of the pod": ({"spec": {"containers": {}}}, [], (), None, "spec.containers"),
    "amounts of the pod": (
        a_pod({"name": "a", "resources": {"requests": "2x"}}),
        [],
        (),
        None,
        "spec.containers[0].resources.requests",
    ),
    "a quota that is none": (a_pod(), ["x"], (), None, "quotas[0]"),
    "amounts of a quota": (
        a_pod(),
        [a_quota(), {"spec": {"hard": ["pods"]}}],
        (),
        None,
        "quotas[1].spec.hard",
    ),
    "quotas that are no list": (a_pod(), a_quota(), (), None, "quotas"),
    "quotas that are a text": (a_pod(), "team-a", (), None, "quotas"),
    "a number for quotas": (a_pod(), 1, (), None, "quotas"),
    "a number for entries": (a_pod(), [], 1, None, "limited"),
    "an entry that is none": (a_pod(), [], [1], None, "limited[0]"),
    "a field of an entry": (a_pod(), [], [{"resource": 1}], None, "limited[0].resource"),
    "a time that is none": (a_pod(), [], (), "yesterday", "now"),
}


@pytest.mark.parametrize(
    ("pod", "quotas", "limited", "now", "path"), BAD_INPUT.values(), ids=BAD_INPUT.keys()
)
def test_bad_input_is_named_by_its_path(
    pod: object, quotas: object, limited: object, now: object, path: str
) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        evaluate(pod, quotas, limited, now)  # type: ignore[arg-type]
    assert caught.value.field == path


def test_an_amount_that_is_none_is_named_by_its_object() -> None:
    with pytest.raises(InvalidFieldError, match=r"^spec\.containers\[0\].*cpu.*: '2x' is not"):
        evaluate(_cpu("2x"), [])
    with pytest.raises(InvalidFieldError, match=r"^quotas\[1\]\.spec\.hard.*pods.*: '2x' is not"):
        evaluate(_cpu("2"), [a_quota(), a_quota(hard={"pods": "2x"})])
