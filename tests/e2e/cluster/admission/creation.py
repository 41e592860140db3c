"""New pods put to an API server with our policies, and to the engine.

A pod is created by a dry run, so that nothing is counted and thousands need no room. What the API
server answers by a policy or by an entry of the webhook is compared with what the core finds, which
is given the pod as the API server defaults it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tests.builders import a_container
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.waiting import eventually
from webhook.policy import Policy
from webhook.quota.charging.constraints import missing_resources, obliging_keys
from webhook.quota.charging.coverage import CoverageRules, uncovered_creation
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.charging.denials import MustSpecify
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.queue.queued_pods import QueueCriteria, QueuePolicy, to_queued_pod
from webhook.state.well_known import SCHEDULING_GATE

Object = dict[str, Any]

AT_ONCE: Final = 8
_OURS: Final = re.compile(r"denied (?:the )?request: (?P<words>.*)", re.DOTALL)
_SENTINEL: Final = "zz-sentinel"
_SMALL: Final = {"cpu": "1", "memory": "1Gi"}


@dataclass(frozen=True, slots=True)
class Case:
    """A pod, and the quotas of the namespace into which it is put."""

    namespace: str
    pod: Object
    quotas: tuple[ResourceQuota, ...]


@dataclass(slots=True)
class Tally:
    """What came of cases; `invalid` are pods that never got as far as policies."""

    admitted: int = 0
    refused: int = 0
    invalid: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """How many pods were decided about."""
        return self.admitted + self.refused


def read_quotas(specs: Mapping[str, Object]) -> tuple[ResourceQuota, ...]:
    """Return quotas of these names and specs."""
    return tuple(
        ResourceQuota.from_object({"metadata": {"name": name}, "spec": spec})
        for name, spec in sorted(specs.items())
    )


def open_namespaces(api: Api, wanted: Mapping[str, Mapping[str, Object]]) -> None:
    """Make namespaces with quotas, and wait until policies know all of them.

    Parameters come to a policy in the order of their writes: with the last one all are there.
    """
    for namespace, specs in wanted.items():
        made = api.create("/api/v1/namespaces", objects.a_namespace(namespace, gating="always"))
        assert made.code in (201, 409), str(made)
        for name, spec in specs.items():
            quota = {"metadata": {"name": name}, "spec": spec}
            done = api.create(objects.quotas(namespace), quota)
            assert done.ok, str(done)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        accounts = [f"/api/v1/namespaces/{each}/serviceaccounts/default" for each in wanted]
        list(pool.map(lambda path: eventually(lambda: api.get(path).ok, path), accounts))
    last = f"{[*wanted][-1]}-{_SENTINEL}"
    assert api.create("/api/v1/namespaces", objects.a_namespace(last, gating="always")).ok
    quota = {"metadata": {"name": _SENTINEL}, "spec": {"hard": {"limits.cpu": "1k"}}}
    assert api.create(objects.quotas(last), quota).ok
    silent = {"metadata": {"name": "a"}, "spec": {"containers": [a_container("c")]}}
    account = f"/api/v1/namespaces/{last}/serviceaccounts/default"
    eventually(lambda: api.get(account).ok, account)
    words = f"denied request: failed quota: {_SENTINEL}"  # its own check is without the first two
    eventually(
        lambda: words in api.create(objects.pods(last), silent, dry_run=True).message,
        "policies know the quotas",
    )
    limited = {"metadata": {"name": "a"}, "spec": {"containers": [a_container("c", limits=_SMALL)]}}
    eventually(  # what mutates reads parameters of its own
        lambda: is_gated(api.create(objects.pods(last), limited, dry_run=True).body),
        "so does the one that gates",
    )


def compare(api: Api, cases: Iterable[Case], policy: Policy, *, gates_all: bool) -> Tally:
    """Put pods to the API server, several at once, and compare each answer with the engine's."""
    tally = Tally()

    def put(case: Case) -> tuple[Case, Answer]:
        return case, api.create(objects.pods(case.namespace), case.pod, dry_run=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for case, answer in pool.map(put, cases):
            _judge(tally, case, answer, policy, gates_all=gates_all)
    return tally


def engine_refusals(case: Case, policy: Policy) -> set[str]:
    """Return the words with which the engine may refuse a new pod; it names the first quota."""
    pod = Pod.from_object(default_pod(case.pod))
    found = set()
    for quota in deferred_quotas(case.quotas, policy.deferred_keys).applying_to(pod):
        missing = missing_resources(pod, obliging_keys(quota.name, quota.hard))
        if missing:
            found.add(MustSpecify(quota.name, missing).message)
    if found:
        return found
    rules = CoverageRules(policy.limited_resources, policy.priority_coverage)
    uncovered = uncovered_creation(pod, case.quotas, rules, policy.deferred_keys)
    return set() if uncovered is None else {uncovered.message}


def needs_gate(case: Case, policy: Policy) -> bool:
    """Return whether the engine gates the pod."""
    pod = Pod.from_object(default_pod(case.pod))
    rules = QueuePolicy(coverage=CoverageRules(policy.limited_resources, policy.priority_coverage))
    terms = QueueCriteria(
        deferred_quotas(case.quotas, policy.deferred_keys), case.quotas, rules=rules
    )
    return to_queued_pod(pod, SCHEDULING_GATE, since=0, terms=terms).needs_gate


def is_gated(pod: Object) -> bool:
    """Return whether a pod has our gate, and has it once."""
    gates = [each["name"] for each in pod["spec"].get("schedulingGates", [])]
    assert gates.count(SCHEDULING_GATE) <= 1
    return SCHEDULING_GATE in gates


def may_take(pod: Object) -> bool:
    """Return whether a pod may take resources, or evict others, as policies see it."""
    spec = pod["spec"]
    if spec.get("priority", 0) > 0:
        return True
    containers: Sequence[Object] = [*spec["containers"], *spec.get("initContainers", [])]
    return bool(spec.get("overhead") or spec.get("resources")) or any(
        each.get("resources", {}).get(side)
        for each in containers
        for side in ("requests", "limits")
    )


def _judge(tally: Tally, case: Case, answer: Answer, policy: Policy, *, gates_all: bool) -> None:
    if answer.code == 422 or "pods must not" in answer.message:
        tally.invalid += 1
        return
    expected = engine_refusals(case, policy)
    ours = _OURS.search(answer.message)
    about = f"{case.namespace}: {case.pod}\n{case.quotas}\nanswered: {answer}"
    if (ours["words"] in expected) if ours else not expected:
        tally.refused += bool(expected)
        tally.admitted += not expected
    else:
        tally.differences.append(f"{about}\nby the engine: {sorted(expected)}")
    if not answer.ok:
        return
    gated = is_gated(answer.body)
    if gated != (gates_all or may_take(answer.body)):
        tally.differences.append(f"{about}\ngated: {gated}")
    if needs_gate(case, policy) and not gated:
        tally.differences.append(f"{about}\nnot gated, although the engine gates it")
