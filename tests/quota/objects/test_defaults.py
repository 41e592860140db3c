from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import pytest
from hypothesis import given

from tests.builders import (
    Object,
    a_container,
    a_container_status,
    a_pod,
    a_quota,
    a_sidecar,
)
from tests.quota.charging.pod_usage.charges import COUNTS, charge, limits, requests
from tests.quota.oracle import PodAnswer, pod_answers
from tests.quota.pod_strategies import pods
from webhook.jsonfields.encoding import NumberText, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import InvalidQuantityError, Quantity
from webhook.quota.charging.pod_usage import pod_usage, usage_of
from webhook.quota.objects.defaults import created_pod, default_pod, default_quota, has_defaults
from webhook.quota.objects.model import Pod

ANSWERS = pod_answers()

CASES: dict[str, tuple[Object, Mapping[str, str]]] = {
    "requests become the limits, extended resources too": (
        a_pod(
            requests={"nvidia.com/gpu": "1"},
            limits={"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"},
        ),
        requests(cpu="2", memory="1Gi")
        | limits(cpu="2", memory="1Gi")
        | {"requests.nvidia.com/gpu": "1"},
    ),
    "a request that is there stays": (
        a_pod(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi"}),
        requests(cpu="1", memory="1Gi") | limits(cpu="2", memory="1Gi"),
    ),
    "a request of zero stays": (
        a_pod(requests={"cpu": "0"}, limits={"cpu": "2"}),
        requests(cpu="0") | limits(cpu="2"),
    ),
    "init containers too": (
        a_pod(init=[a_container("a", limits={"cpu": "2"}), a_sidecar(limits={"cpu": "1"})]),
        requests(cpu="2") | limits(cpu="2"),
    ),
    "what the limits of the pod leave open, the containers' requests fill": (
        a_pod(
            a_container("a", requests={"cpu": "1"}),
            a_container("b"),
            resources={"limits": {"cpu": "6", "memory": "8Gi"}},
        ),
        requests(cpu="1", memory="8Gi") | limits(cpu="6", memory="8Gi"),
    ),
    "the containers' limits have become requests by then": (
        a_pod(limits={"cpu": "2"}, resources={"limits": {"cpu": "6"}}),
        requests(cpu="2") | limits(cpu="6"),
    ),
    "requests of the pod do not become limits": (
        a_pod(limits={"cpu": "2"}, resources={"requests": {"cpu": "6"}}),
        requests(cpu="6") | limits(cpu="2"),
    ),
    "huge pages of the containers become limits of the pod, and those its requests": (
        a_pod(
            limits={"hugepages-2Mi": "4Mi", "memory": "1Gi"},
            resources={"requests": {"cpu": "1"}},
        ),
        requests(cpu="1", memory="1Gi")
        | limits(memory="1Gi")
        | {"hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"},
    ),
    "amounts are rounded up to a thousandth": (
        a_pod(requests={"cpu": NumberText("0.0001"), "memory": NumberText("100.5")}),
        requests(cpu="1m", memory="100500m"),
    ),
    "sums are rounded where they are stored": (
        a_pod(
            a_container("a", requests={"cpu": "100u"}),
            a_container("b", requests={"cpu": "200u"}),
            resources={"limits": {"cpu": "1"}},
        ),
        requests(cpu="1m") | limits(cpu="1"),
    ),
    "overhead is rounded": (a_pod(overhead={"cpu": "100u"}), requests(cpu="1m")),
    "a resize under way does not leak into the pod's requests": (
        a_pod(
            requests={"cpu": "1"},
            resources={"limits": {"cpu": "4"}},
            status={"containerStatuses": [a_container_status(requests={"cpu": "3"})]},
        ),
        requests(cpu="1") | limits(cpu="4"),
    ),
    "reported amounts are rounded": (
        a_pod(
            status={
                "containerStatuses": [
                    a_container_status(requests={"cpu": "1u"}, allocated={"memory": "1u"})
                ]
            }
        ),
        requests(cpu="1m", memory="1m"),
    ),
    "empty resources of the pod stay empty": (
        a_pod(limits={"hugepages-2Mi": "4Mi", "cpu": "1"}, resources={}),
        requests(cpu="1")
        | limits(cpu="1")
        | {"hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"},
    ),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_a_manifest_is_charged_as_defaulted(pod: Object, expected: Mapping[str, str]) -> None:
    assert charge(default_pod(pod)) == {**COUNTS, **expected}


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_a_manifest_becomes_the_pod_that_kubernetes_makes_of_it(answer: PodAnswer) -> None:
    assert Pod.from_object(default_pod(answer.raw)) == Pod.from_object(answer.pod)


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_an_api_object_stays_as_it_is(answer: PodAnswer) -> None:
    assert default_pod(answer.pod) == answer.pod


@given(pods())
def test_defaulting_twice_changes_nothing(pod: Object) -> None:
    once = default_pod(pod)

    assert default_pod(once) == once


@given(pods())
def test_defaulting_only_adds_to_the_charge(pod: Object) -> None:
    before = usage_of(Pod.from_object({**pod, "status": {}}), now=None)
    after = usage_of(Pod.from_object(default_pod({**pod, "status": {}})), now=None)

    assert before.keys() <= after.keys()


def test_the_manifest_is_not_changed() -> None:
    def manifest() -> Object:
        return a_pod(
            limits={"cpu": "1", "memory": "1u"},
            init=[a_container("a", limits={"cpu": "1"})],
            resources={"limits": {"cpu": "1"}},
            overhead={"cpu": "1u"},
            status={"containerStatuses": [a_container_status(requests={"cpu": "1u"})]},
        )

    pod = manifest()
    default_pod(pod)

    assert pod == manifest()


def test_fields_that_quota_does_not_read_are_handed_on() -> None:
    container = a_container(limits={"cpu": "1"}, ports=[{"containerPort": 80}])
    claims = [{"name": "gpu"}]
    pod = a_pod(container, hostNetwork=True, resources={"claims": claims}, status={"x": 1})

    defaulted = default_pod({**pod, "other": [1]})

    assert defaulted["other"] == [1]
    assert defaulted["status"] == {"phase": "Pending", "x": 1}
    assert defaulted["spec"] == {
        "containers": [
            {**container, "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}
        ],
        "hostNetwork": True,
        "resources": {"claims": claims},
    }


def test_an_amount_that_needs_no_rounding_stays_as_it_was_written() -> None:
    quota = a_quota(hard={"cpu": "1.500", "memory": 5, "pods": "0.0001", "x.io/y": None})

    assert default_quota(quota) == a_quota(
        hard={"cpu": "1.500", "memory": 5, "pods": "1m", "x.io/y": None}
    )


@pytest.mark.parametrize("other", ["0", "8Ki"])
def test_a_sum_beyond_the_suffixes_is_not_lost(other: str) -> None:
    pod = a_pod(
        a_container("a", requests={"memory": other}),
        a_container("b", requests={"memory": "1000E"}),
        resources={"limits": {"memory": "1"}},
    )
    total = Quantity.parse(other) + Quantity.parse("1e21")

    assert pod_usage(default_pod(pod))["memory"] == total


def test_amounts_of_the_pod_stay_as_they_were_written() -> None:
    pod = a_pod(
        a_container("a", requests={"cpu": "125Ki"}),
        a_container("b", requests={"cpu": "1k"}),
        resources={"limits": {"cpu": "1000000"}},
    )
    once = default_pod(pod)

    assert once["spec"] == {
        **(pod["spec"] if isinstance(pod["spec"], dict) else {}),
        "resources": {"limits": {"cpu": "1000000"}, "requests": {"cpu": "129000"}},
    }
    assert default_pod(once) == once


FORMATS = {
    "an exponent": ("2e1", "250m", "20250e-3"),
    "bytes of a half": ("0.5Ki", "512", "1Ki"),
    "decimal": ("20", "250m", "20250m"),
}


@pytest.mark.parametrize(("asked", "overhead", "usage"), FORMATS.values(), ids=FORMATS.keys())
def test_sums_go_on_in_the_format_of_what_they_are_of(
    asked: str, overhead: str, usage: str
) -> None:
    pod = a_pod(a_container(requests={"cpu": asked}), resources={"limits": {"cpu": "1000"}})
    spec = pod["spec"]
    assert isinstance(spec, dict)
    pod = {**pod, "spec": {**spec, "overhead": {"cpu": overhead}}}
    defaulted = default_pod(pod)

    assert str(pod_usage(defaulted)["requests.cpu"]) == usage
    assert str(pod_usage(deepcopy(defaulted))["requests.cpu"]) == usage
    text = Quantity.parse(asked).canonical
    assert f'"requests":{{"cpu":"{text}"}}' in encode_json(defaulted).decode()


POD_LEVEL: dict[str, tuple[Object, Object]] = {
    "a request for huge pages keeps their limit open": (
        {"requests": {"hugepages-2Mi": "2Mi"}},
        {"requests": {"hugepages-2Mi": "2Mi"}},
    ),
    "huge pages without a request": (
        {"requests": {"memory": "1Gi"}},
        {
            "requests": {"memory": "1Gi", "hugepages-2Mi": "4Mi", "cpu": "1"},
            "limits": {"hugepages-2Mi": "4Mi"},
        },
    ),
    "a limit that cannot be given for the pod is no request": (
        {"limits": {"ephemeral-storage": "1Gi"}, "requests": {"hugepages-2Mi": "2Mi"}},
        {
            "limits": {"ephemeral-storage": "1Gi"},
            "requests": {"hugepages-2Mi": "2Mi", "cpu": "1"},
        },
    ),
    "null maps stay": ({"requests": None, "limits": None}, {"requests": None, "limits": None}),
}


@pytest.mark.parametrize(("resources", "expected"), POD_LEVEL.values(), ids=POD_LEVEL.keys())
def test_resources_of_the_pod_are_filled_in(resources: Object, expected: Object) -> None:
    container = a_container(requests={"cpu": "1"}, limits={"hugepages-2Mi": "4Mi"})

    defaulted = default_pod(a_pod(container, resources=resources))

    spec = defaulted["spec"]
    assert isinstance(spec, dict)
    assert spec["resources"] == expected


def test_the_status_of_a_quota_is_rounded_too() -> None:
    quota = a_quota(hard={"cpu": "1"}, used={"cpu": "1u"})

    assert default_quota(quota) == a_quota(hard={"cpu": "1"}, used={"cpu": "1m"})


def test_a_quota_without_spec_and_status_is_handed_on() -> None:
    assert default_quota({"kind": "ResourceQuota"}) == {"kind": "ResourceQuota"}


def test_faults_name_their_place_in_the_manifest() -> None:
    with pytest.raises(InvalidQuantityError) as caught:
        default_pod(a_pod(limits={"cpu": "2x"}), field="items[3]")
    assert caught.value.field == "items[3].spec.containers[0].resources.limits.cpu"

    with pytest.raises(InvalidFieldError) as wrong:
        default_quota(a_quota(hard={}) | {"status": []}, field="items[4]")
    assert wrong.value.field == "items[4].status"


# -- the state of a new pod ----------------------------------------------------------------

STATES: dict[str, tuple[Object, Object]] = {
    "none": ({"metadata": {"name": "a"}}, {"metadata": {"name": "a"}}),
    "nothing in it": ({"status": {}}, {"status": {"phase": "Pending"}}),
    "an end": ({"status": {"phase": "Failed"}}, {"status": {"phase": "Pending"}}),
    "a class, which survives": (
        {"status": {"qosClass": "Guaranteed", "conditions": []}},
        {"status": {"phase": "Pending", "qosClass": "Guaranteed"}},
    ),
    "a deletion": (
        {"metadata": {"uid": "u", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 0}},
        {"metadata": {"uid": "u"}},
    ),
    "of a wrong type": ({"metadata": 7, "status": []}, {"metadata": 7, "status": []}),
}


@pytest.mark.parametrize(("written", "stored"), STATES.values(), ids=STATES)
def test_a_new_pod_has_no_state_but_its_class(written: Object, stored: Object) -> None:
    before = deepcopy(written)
    assert created_pod(written) == stored
    assert written == before


@given(pods())
def test_a_pod_that_has_its_defaults_is_not_changed_by_them(raw: dict[str, object]) -> None:
    pod = Pod.from_object(raw)
    if has_defaults(pod):
        assert Pod.from_object(default_pod(raw)) == pod


def test_defaults_are_missing_where_requests_are_or_an_amount_is_to_be_rounded() -> None:
    assert has_defaults(Pod.from_object(a_pod(requests={"cpu": "1"}, limits={"cpu": "2"})))
    assert not has_defaults(Pod.from_object(a_pod(limits={"cpu": "2"})))
    assert not has_defaults(Pod.from_object(a_pod(requests={"cpu": "100u"})))
