"""Fields that the API server does not know: named, with what is meant; all others are let be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes.client import models

from tests.admission.reviews import recorded, recorded_names
from tests.builders import Object
from tests.quota.checking.subjects import a_pod_spec, a_subject, a_workload, an_object
from webhook.quota.checking.field_names import OBJECT_SHAPES, unknown_fields
from webhook.quota.checking.values import Rule, Verdict
from webhook.quota.jobs.equality import Shape

MODELS: Final = {
    "pods": "V1Pod",
    "replicationcontrollers": "V1ReplicationController",
    "replicasets.apps": "V1ReplicaSet",
    "deployments.apps": "V1Deployment",
    "statefulsets.apps": "V1StatefulSet",
    "daemonsets.apps": "V1DaemonSet",
    "jobs.batch": "V1Job",
    "cronjobs.batch": "V1CronJob",
    "persistentvolumeclaims": "V1PersistentVolumeClaim",
}
_OF_A_LIST: Final = re.compile(r"[Ll]ist\[(\w+)\]")


def differences(shape: Shape, model: str, path: str) -> Iterator[str]:
    """Yield the fields that a shape and a class of the official client do not have in common."""
    found = getattr(models, model, None)
    if found is None or not shape.members:
        return
    types = {found.attribute_map[name]: kind for name, kind in found.openapi_types.items()}
    yield from (f"{path}.{name}" for name in types.keys() ^ shape.members.keys())
    for name in types.keys() & shape.members.keys():
        member = shape.members[name]
        listed = _OF_A_LIST.fullmatch(types[name])
        if listed is None:
            yield from differences(member, types[name], f"{path}.{name}")
        elif member.items is not None:
            yield from differences(member.items, listed[1], f"{path}.{name}[]")


@pytest.mark.parametrize("resource", OBJECT_SHAPES)
def test_all_fields_of_the_official_client_are_known_and_no_others(resource: str) -> None:
    assert sorted(differences(OBJECT_SHAPES[resource], MODELS[resource], "")) == []


def test_nothing_that_an_api_server_sent_is_unknown() -> None:
    seen = 0
    for review in recorded_names():
        request = json.loads(recorded(review))["request"]
        group, resource = request["resource"]["group"], request["resource"]["resource"]
        name = f"{resource}.{group}" if group else resource
        for raw in (request.get("object"), request.get("oldObject")):
            if raw is not None and not request.get("subResource"):
                assert unknown_fields(raw, name) == {}
                seen += name in OBJECT_SHAPES
    assert seen > 10


UNKNOWN: Final[dict[str, tuple[Object, dict[str, str]]]] = {
    "requests": (
        a_workload(cpu="", template={"spec": {"containers": [{"resources": {"request": {}}}]}}),
        {"spec.template.spec.containers[0].resources.request": "requests"},
    ),
    "the spec of a workload": (a_workload(replica=3), {"spec.replica": "replicas"}),
    "metadata": (
        {**an_object("Pod", "a", a_pod_spec()), "metadata": {"name": "a", "label": {}}},
        {"metadata.label": "labels"},
    ),
    "the object": ({**an_object("Pod", "a", a_pod_spec()), "specs": {}}, {"specs": "spec"}),
    "nothing is like it": (
        an_object("Pod", "a", a_pod_spec(xylophone=1)),
        {"spec.xylophone": ""},
    ),
    "the case": (
        an_object("Pod", "a", a_pod_spec(nodename="n")),
        {"spec.nodename": "nodeName"},
    ),
    "a Job of a CronJob": (
        an_object("CronJob", "a", {"jobTemplate": {"spec": {"completion": 2}}}),
        {"spec.jobTemplate.spec.completion": "completions"},
    ),
    "a claim of a StatefulSet": (
        a_workload("StatefulSet", volumeClaimTemplates=[{"spec": {"resource": {}}}]),
        {"spec.volumeClaimTemplates[0].spec.resource": "resources"},
    ),
    "several": (
        an_object("Pod", "a", a_pod_spec(nodename="n", tolerations=[{"keys": "a"}])),
        {"spec.nodename": "nodeName", "spec.tolerations[0].keys": "key"},
    ),
}


@pytest.mark.parametrize(("raw", "unknown"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_field_is_named(raw: Object, unknown: dict[str, str]) -> None:
    kinds = {"Pod": "pods", "CronJob": "cronjobs.batch", "StatefulSet": "statefulsets.apps"}
    resource = kinds.get(str(raw["kind"]), "deployments.apps")
    assert unknown_fields(raw, resource) == unknown


NO_OBJECTS: Final[tuple[Any, ...]] = (None, 1, "x", [], [None], {"containers": [None, 1, "x", []]})


@pytest.mark.parametrize("spec", NO_OBJECTS, ids=json.dumps)
def test_what_is_of_another_type_has_no_fields(spec: Any) -> None:
    raw = {**an_object("Pod", "a"), "spec": spec}
    assert unknown_fields(raw, "pods") == {}


def test_keys_that_people_choose_are_no_fields() -> None:
    spec = a_pod_spec(nodeSelector={"any": "a"}, overhead={"example.com/any": "1"})
    raw = an_object("Pod", "a", spec)
    raw["metadata"] = {"labels": {"any": "a"}, "annotations": {"any": "a"}}
    assert unknown_fields(raw, "pods") == {}
    assert unknown_fields({"spec": {"any": 1}}, "widgets.example.com") == {}


def test_an_object_is_refused_for_it_in_the_words_of_the_api_server() -> None:
    template = {"spec": {"containers": [{"name": "a", "image": "i", "resource": {}}], "hostPid": 1}}
    subject = a_subject(a_workload(template=template))
    (issue,) = subject.refusals
    assert (issue.rule, issue.verdict) == (Rule.UNKNOWN_FIELD, Verdict.REFUSED)
    assert issue.field == "spec.template.spec.containers[0].resource"
    assert issue.text == (
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error:'
        ' unknown field "spec.template.spec.containers[0].resource", unknown field'
        ' "spec.template.spec.hostPid"; did you mean resources, hostPID?'
    )
