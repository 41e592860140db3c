"""What a scheduler posts, written as Go writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flask.testing import FlaskClient

from tests.builders import a_pod

NODES = ("node-0", "node-1", "node-2")
CANDIDATES: Mapping[str, Any] = {
    "node-0": {"Pods": [{"UID": "victim-1"}, {"UID": "victim-2"}], "NumPDBViolations": 1},
    "node-2": {"Pods": [{"UID": "victim-3"}], "NumPDBViolations": 0},
}

Object = dict[str, Any]


def the_pod(uid: str = "pod-uid-1", name: str = "web-1", namespace: str = "team-a") -> Object:
    """A pod as a scheduler knows it."""
    return a_pod(name=name, namespace=namespace, uid=uid, requests={"cpu": "1"})


def filter_call(pod: Mapping[str, Any] | None = None, names: Sequence[str] = NODES) -> Object:
    """ExtenderArgs of a scheduler that sends names."""
    return {"Pod": pod or the_pod(), "Nodes": None, "NodeNames": list(names)}


def filter_call_with_nodes(pod: Mapping[str, Any] | None = None) -> Object:
    """ExtenderArgs of a scheduler that sends nodes."""
    items = [{"metadata": {"name": name}, "status": {"images": [1.50]}} for name in NODES]
    nodes = {"metadata": {"resourceVersion": "7"}, "items": items}
    return {"Pod": pod or the_pod(), "Nodes": nodes, "NodeNames": None}


def preempt_call(pod: Mapping[str, Any] | None = None) -> Object:
    """ExtenderPreemptionArgs of a scheduler that sends uids."""
    return {
        "Pod": pod or the_pod(),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": dict(CANDIDATES),
    }


def preempt_call_with_pods(pod: Mapping[str, Any] | None = None) -> Object:
    """ExtenderPreemptionArgs of a scheduler that sends whole pods."""
    victims = {
        node: {
            "Pods": [the_pod(uid=one["UID"], name=one["UID"]) for one in each["Pods"]],
            "NumPDBViolations": each["NumPDBViolations"],
        }
        for node, each in CANDIDATES.items()
    }
    return {
        "Pod": pod or the_pod(),
        "NodeNameToVictims": victims,
        "NodeNameToMetaVictims": None,
    }


def ask(client: FlaskClient, verb: str, call: Mapping[str, Any]) -> Object:
    """Post a call that has to be answered, and read the answer."""
    data = json.dumps(call)
    response = client.post(f"/scheduler/{verb}", data=data, content_type="application/json")
    assert response.status_code == 200, response.data
    answer: Object = json.loads(response.data)
    return answer


def passed(answer: Mapping[str, Any]) -> list[str]:
    """The nodes that are left; checks that the others are accounted for, by one reason."""
    assert answer["Error"] == ""
    assert answer["FailedNodes"] == {}
    names: list[str] = answer["NodeNames"]
    assert sorted([*names, *answer["FailedAndUnresolvableNodes"]]) == sorted(NODES)
    return names


def reason(answer: Mapping[str, Any]) -> str:
    """Why no node is left; checks that none is, and that it is the same for each."""
    assert passed(answer) == []
    (text,) = set(answer["FailedAndUnresolvableNodes"].values())
    return str(text)
