"""What a scheduler sends is read as far as needed, and what it reads is written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.extender.calls import (
    CANDIDATES,
    NODES,
    filter_call,
    filter_call_with_nodes,
    preempt_call,
    preempt_call_with_pods,
    the_pod,
)
from webhook.admission.extender.protocol import (
    MOST_NODES,
    NO_CANDIDATE,
    MalformedCallError,
    PodIdentity,
    all_candidates,
    all_nodes,
    no_node,
    read_filter,
    read_preempt,
)


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def test_of_the_pod_its_identity_is_read() -> None:
    wanted = PodIdentity("team-a", "web-1", "pod-uid-1")
    assert read_filter(encoded(filter_call())).pod == wanted
    assert read_filter(encoded(filter_call_with_nodes())).pod == wanted
    assert read_preempt(encoded(preempt_call())).pod == wanted


@pytest.mark.parametrize("deep", [b"{}", b'{"a":' * 100_000 + b"{}" + b"}" * 100_000])
def test_a_pod_is_read_whatever_its_creator_makes_up_in_managed_fields(deep: bytes) -> None:
    managed = b',"managedFields":[{"f:\xff":%s}]},"spec":' % deep
    for call, read in ((filter_call(), read_filter), (preempt_call(), read_preempt)):
        data = msgspec.json.encode(call).replace(b'},"spec":', managed, 1)
        assert read(data).pod == PodIdentity("team-a", "web-1", "pod-uid-1")


def test_names_that_pass_come_back_as_names() -> None:
    assert json.loads(all_nodes(read_filter(encoded(filter_call())))) == {
        "Nodes": None,
        "NodeNames": list(NODES),
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_nodes_that_pass_come_back_as_they_came() -> None:
    call = filter_call_with_nodes()
    answer = json.loads(all_nodes(read_filter(encoded(call))))
    assert answer["Nodes"] == call["Nodes"]
    assert answer["NodeNames"] is None


@pytest.mark.parametrize("call", [filter_call(), filter_call_with_nodes()], ids=["names", "nodes"])
def test_nodes_that_fail_are_beyond_the_help_of_preemption(call: dict[str, Any]) -> None:
    answer = json.loads(no_node(read_filter(encoded(call)), "why"))
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(NODES, "why")
    assert (answer["FailedNodes"], answer["Error"]) == ({}, "")
    assert not answer["NodeNames"]
    assert answer["Nodes"] is None or answer["Nodes"]["items"] == []


@given(names=st.lists(st.text(min_size=1), unique=True), why=st.text(min_size=1))
def test_every_node_is_given_back_once_whatever_its_name(names: list[str], why: str) -> None:
    call = read_filter(encoded(filter_call(names=names)))
    assert json.loads(all_nodes(call))["NodeNames"] == names
    assert json.loads(no_node(call, why))["FailedAndUnresolvableNodes"] == dict.fromkeys(names, why)


@pytest.mark.parametrize("make", [preempt_call, preempt_call_with_pods], ids=["uids", "pods"])
def test_candidates_come_back_with_uids_in_whatever_form_they_came(make: Any) -> None:
    call = read_preempt(encoded(make()))
    assert json.loads(all_candidates(call)) == {"NodeNameToMetaVictims": CANDIDATES}
    assert json.loads(NO_CANDIDATE) == {"NodeNameToMetaVictims": {}}


@pytest.mark.parametrize("field", ["NodeNameToMetaVictims", "NodeNameToVictims"])
def test_a_null_is_not_given_back_because_schedulers_crash_over_it(field: str) -> None:
    call = {"Pod": the_pod(), field: {"node-0": None}}
    assert json.loads(all_candidates(read_preempt(encoded(call)))) == {"NodeNameToMetaVictims": {}}


def with_pod(**metadata: object) -> dict[str, Any]:
    pod = the_pod()
    return filter_call({**pod, "metadata": {**pod["metadata"], **metadata}})


BAD_FILTERS: dict[str, tuple[object, str, str]] = {
    "a list": ([], "type", "the body is no ExtenderArgs: expected object, got array"),
    "nothing": ({}, "request", "Pod.metadata: must be present"),
    "no pod": ({**filter_call(), "Pod": None}, "request", "Pod.metadata: must be present"),
    "a pod that is a text": ({"Pod": "web-1"}, "type", "Pod: expected object, got str"),
    "no uid": (with_pod(uid=""), "request", "Pod.metadata.uid: must not be empty"),
    "a long namespace": (
        with_pod(namespace="x" * 254),
        "request",
        "Pod.metadata.namespace: must be no more than 253 characters",
    ),
    "a long name": (
        with_pod(name="x" * 254),
        "request",
        "Pod.metadata.name: must be no more than 253 characters",
    ),
    "a long uid": (
        with_pod(uid="x" * 254),
        "request",
        "Pod.metadata.uid: must be no more than 253 characters",
    ),
    "a null as name": (with_pod(name=None), "request", "Pod.metadata.name: must not be empty"),
    "no namespace": (
        with_pod(namespace=""),
        "request",
        "Pod.metadata.namespace: must not be empty",
    ),
    "a number as uid": (with_pod(uid=7), "type", "Pod.metadata.uid: expected str, got int"),
    "no nodes": ({"Pod": the_pod()}, "request", "NodeNames: must be present, or Nodes"),
    "names of the wrong case": (
        {"Pod": the_pod(), "nodeNames": ["node-0"]},
        "request",
        "NodeNames: must be present, or Nodes",
    ),
    "a node that is a number": (
        filter_call(names=["node-0", 1]),  # type: ignore[list-item]
        "type",
        "NodeNames[1]: expected str, got int",
    ),
    "nodes as a list": (
        {"Pod": the_pod(), "Nodes": []},
        "type",
        "Nodes: expected object, got array",
    ),
    "a node without name": (
        {"Pod": the_pod(), "Nodes": {"items": [{"metadata": {}}]}},
        "request",
        "Nodes.items[0].metadata.name: must not be empty",
    ),
    "a node whose name is a list": (
        {"Pod": the_pod(), "Nodes": {"items": [{"metadata": {"name": []}}]}},
        "type",
        "Nodes.items[0].metadata.name: expected str, got array",
    ),
}


@pytest.mark.parametrize(("call", "why", "detail"), BAD_FILTERS.values(), ids=BAD_FILTERS.keys())
def test_what_is_wrong_with_a_call_is_said_with_its_field(
    call: object, why: str, detail: str
) -> None:
    with pytest.raises(MalformedCallError) as caught:
        read_filter(encoded(call))
    assert (caught.value.reason, caught.value.detail) == (why, detail)


BAD_PREEMPTIONS: dict[str, tuple[object, str]] = {
    "no candidates": (
        {"Pod": the_pod()},
        "NodeNameToMetaVictims: must be present, or NodeNameToVictims",
    ),
    "a list of candidates": (
        {"Pod": the_pod(), "NodeNameToMetaVictims": []},
        "NodeNameToMetaVictims: expected object, got array",
    ),
    "no pod": ({"NodeNameToMetaVictims": {}}, "Pod.metadata: must be present"),
    "a victim without uid": (
        {"Pod": the_pod(), "NodeNameToVictims": {"node-0": {"Pods": [{"metadata": {}}]}}},
        "NodeNameToVictims.node-0.Pods[0].metadata.uid: must not be empty",
    ),
}


@pytest.mark.parametrize(("call", "detail"), BAD_PREEMPTIONS.values(), ids=BAD_PREEMPTIONS.keys())
def test_a_preemption_that_cannot_be_read_says_why(call: object, detail: str) -> None:
    with pytest.raises(MalformedCallError) as caught:
        read_preempt(encoded(call))
    assert caught.value.detail == detail


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "json"),
        (b"{", "json"),
        (b"\xff\xfe", "json"),
        (b'{"Pod":{"metadata":{"name":"\xff"}}', "json"),
        (b'{"Nodes":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nesting"),
    ],
)
def test_bytes_that_are_not_json_are_refused(data: bytes, why: str) -> None:
    for read in (read_filter, read_preempt):
        with pytest.raises(MalformedCallError) as caught:
            read(data)
        assert caught.value.reason == why


def test_reasons_are_cut_where_there_are_many_nodes() -> None:
    call = filter_call(names=[f"{number:05x}" for number in range(MOST_NODES)])
    answer = no_node(read_filter(encoded(call)), "because " * 128)
    assert len(answer) < 6_000_000
    reasons = set(json.loads(answer)["FailedAndUnresolvableNodes"].values())
    assert reasons == {("because " * 128)[:61] + "..."}
    usual = filter_call(names=[f"node-{number}" for number in range(4000)])
    (whole,) = set(
        json.loads(no_node(read_filter(encoded(usual)), "because " * 128))[
            "FailedAndUnresolvableNodes"
        ].values()
    )
    assert whole == "because " * 128


@pytest.mark.parametrize("field", ["NodeNames", "Nodes.items"])
def test_more_nodes_than_any_cluster_has_are_no_call(field: str) -> None:
    names = [f"{number:05x}" for number in range(MOST_NODES + 1)]
    call = filter_call(names=names)
    if field != "NodeNames":
        items = [{"metadata": {"name": name}} for name in names]
        call |= {"NodeNames": None, "Nodes": {"metadata": {}, "items": items}}
    with pytest.raises(MalformedCallError, match=rf"^{field}: must be no more than 65536$"):
        read_filter(encoded(call))


@pytest.mark.parametrize("field", ["NodeNameToMetaVictims", "NodeNameToVictims"])
def test_a_preemption_on_more_nodes_than_any_cluster_has_is_no_call(field: str) -> None:
    nodes: dict[str, object] = {f"{number:05x}": {"Pods": []} for number in range(MOST_NODES + 1)}
    call = {"Pod": the_pod(), field: nodes}
    with pytest.raises(MalformedCallError, match=rf"^{field}: must be no more than 65536$"):
        read_preempt(encoded(call))
