"""The same pods and quotas put to the API server's own quota check and to ours.

A pair is two namespaces with equal quotas: in one the API server charges pods as it always does; in
the other, which has opted in, we charge them. All its pods get a node, so that both are asked the
same question. Pods that are let in stay and are counted.

The API server goes through quotas in random order: where it names another failing quota than we do,
it is asked again, as a dry run, until it names ours.

An amount is compared as text where both sides have the same texts to start with. A bound pod was
stored before, in the canonical notation; and the notation of a sum is that of the amount that was
added first, which is chance on both sides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.e2e.cluster import objects
from tests.e2e.cluster.admission import differential_words
from tests.e2e.cluster.admission.differential_objects import (
    EVEN,
    ODD,
    Object,
    grown,
    random_pod,
    random_quotas,
)
from tests.e2e.cluster.admission.differential_words import Verdict
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import apply_namespace
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.amounts.quantity import Quantity

Amounts = dict[str, Quantity]

_ASKED_AGAIN: Final = 300
_SENTINEL: Final = "zz-sentinel"
_ZERO: Final = Quantity.parse("0")


@dataclass(slots=True)
class Outcome:
    """What came of the cases of a pair; `invalid` are pods that never got as far as quota."""

    admitted: int = 0
    refused: int = 0
    invalid: int = 0
    difference: str = ""

    @property
    def cases(self) -> int:
        """How many pods quota decided about."""
        return self.admitted + self.refused

    def note(self, verdict: Verdict) -> None:
        """Count a verdict."""
        if not verdict.is_about_quota:
            self.invalid += 1
        elif verdict.code < 300:
            self.admitted += 1
        else:
            self.refused += 1


@dataclass(frozen=True, slots=True)
class Pair:
    """Two namespaces with equal quotas.

    Attributes:
        plain, deferred: Their names.
        node: Where the pods go.
        quotas: The quotas of each: name → spec.
        amounts: What the pods are made of.
    """

    api: Api
    plain: str
    deferred: str
    node: str
    quotas: Mapping[str, Object]
    amounts: Mapping[str, Sequence[str]]

    def put(self, pod: Object, *, through: str) -> tuple[Verdict, Verdict]:
        """Create a pod with a node, ours perhaps by a bind; give the native verdict and ours."""
        assigned = {**pod, "spec": {**pod["spec"], "nodeName": self.node}}
        native = differential_words.native(self.api.create(objects.pods(self.plain), assigned))
        if through == "create":
            answer = self.api.create(objects.pods(self.deferred), assigned)
        else:
            answer = self._bound(pod)
        ours = differential_words.ours(answer)
        if native.quota and ours.quota and native.quota != ours.quota:
            native = self._asked_again(assigned, ours.quota)
        return native, ours

    def resize(self, name: str, resources: Object) -> tuple[Verdict, Verdict]:
        """Ask both to change the size of a pod's first container; give both verdicts."""
        patch = {"spec": {"containers": [{"name": "c0", "resources": resources}]}}
        answers = [
            self.api.patch_strategic(objects.pods(namespace, name, "resize"), patch)
            for namespace in (self.plain, self.deferred)
        ]
        native, ours = differential_words.native(answers[0]), differential_words.ours(answers[1])
        for _ in range(_ASKED_AGAIN):
            if native.quota == ours.quota or not (native.quota and ours.quota):
                break
            path = objects.pods(self.plain, name, "resize")
            native = differential_words.native(self.api.patch_strategic(path, patch, dry_run=True))
        return native, ours

    def by_chance(self, through: str) -> Sequence[str]:
        """Name the parts of a refusal whose notation is chance."""
        if self.amounts is EVEN:
            return ()
        return ("used",) if through == "create" else ("used", "requested")

    def sums(self) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
        """Read what is charged in both namespaces: quota → resource → amount."""
        native = {
            quota["metadata"]["name"]: _amounts(quota["status"].get("used", {}))
            for quota in self.api.get(objects.quotas(self.plain)).body["items"]
            if quota["metadata"]["name"] in self.quotas
        }
        status = self.api.get(objects.ledger(self.deferred)).body["status"]
        return native, {account["name"]: _taken(account) for account in status["quotas"]}

    def _bound(self, pod: Object) -> Answer:
        """Create the pod and bind it; one that may not be bound goes."""
        made = self.api.create(objects.pods(self.deferred), pod)
        if not made.ok:
            return made
        name = pod["metadata"]["name"]
        bound = objects.bind(self.api, self.deferred, name, self.node, uid=made.uid)
        if not bound.ok:
            self.api.delete(objects.pods(self.deferred, name), grace_seconds=0)
        return bound

    def _asked_again(self, pod: Object, quota: str) -> Verdict:
        verdict = Verdict(0)
        for _ in range(_ASKED_AGAIN):
            answer = self.api.create(objects.pods(self.plain), pod, dry_run=True)
            verdict = differential_words.native(answer)
            if verdict.quota == quota:
                break
        return verdict


def open_pair(api: Api, name: str, node: str, chance: random.Random) -> Pair:
    """Make two namespaces with the same random quotas, and wait until both are enforced."""
    wanted = random_quotas(chance)
    amounts = chance.choice((EVEN, ODD))
    pair = Pair(api, f"{name}-native", f"{name}-deferred", node, wanted, amounts)
    for namespace, mode in ((pair.plain, ""), (pair.deferred, "deferred")):
        apply_namespace(api, namespace, mode=mode)
        for quota, spec in wanted.items():
            made = {"metadata": {"name": quota}, "spec": spec}
            _done(api.create(objects.quotas(namespace), made))
    _wait_for_native_check(pair)
    eventually(lambda: _accounts(pair) == set(wanted), f"{pair.deferred} is counted")
    return pair


def compare(pair: Pair, chance: random.Random, cases: int) -> Outcome:
    """Put random pods to both, up to the first difference: what follows rests on other sums."""
    outcome = Outcome()
    there: dict[str, Object] = {}
    for number in range(cases):
        through = chance.choice(("create", "bind", "resize") if there else ("create", "bind"))
        if through == "resize":
            name = chance.choice(sorted(there))
            pod = grown(chance, there[name], pair.amounts)
            native, ours = pair.resize(name, pod)
            there[name] = pod if native.code == 200 else there[name]
        else:
            pod = random_pod(chance, f"case-{number}", pair.amounts)
            native, ours = pair.put(pod, through=through)
            if native.code == 201:
                there[f"case-{number}"] = pod["spec"]["containers"][0].get("resources", {})
        outcome.note(native)
        differences = list(_differences(pair, through, native, ours))
        if differences:
            about = f"{pair.plain}: {dict(pair.quotas)}\n{through} of {pod}"
            outcome.difference = "\n".join((about, *differences))
            break
    return outcome


def _differences(pair: Pair, through: str, native: Verdict, ours: Verdict) -> Iterator[str]:
    by_chance = pair.by_chance(through)
    is_equal = native.by_value(by_chance) == ours.by_value(by_chance)
    if native.code != ours.code or (native.is_about_quota and not is_equal):
        yield f"natively: {native}\nby us:    {ours}"
    charged, taken = pair.sums()
    if charged != taken:
        yield f"charged natively: {charged}\ncharged by us:    {taken}"


def _wait_for_native_check(pair: Pair) -> None:
    """Wait until the API server's own check knows the limits.

    It is told of quotas in the order of their writes: when it enforces one that was made after the
    others had their status, it knows them all.
    """
    api, plain = pair.api, pair.plain
    for name, spec in pair.quotas.items():
        path = objects.quotas(plain, name)
        becomes(
            lambda path=path: sorted(api.get(path).body["status"].get("used", {})),  # type: ignore[misc]
            sorted(spec["hard"]),
            f"{name} of {plain} has a status",
        )
    sentinel = {"metadata": {"name": _SENTINEL}, "spec": {"hard": {"secrets": "0"}}}
    _done(api.create(objects.quotas(plain), sentinel))
    secret = {"metadata": {"name": "any"}}
    secrets = f"/api/v1/namespaces/{plain}/secrets"
    becomes(lambda: api.create(secrets, secret, dry_run=True).code, 403, f"{plain} is enforced")


def _accounts(pair: Pair) -> set[str]:
    found = pair.api.get(objects.ledger(pair.deferred))
    status = found.body.get("status", {}) if found.ok else {}
    return {account["name"] for account in status.get("quotas", [])}


def _amounts(texts: Mapping[str, str]) -> Amounts:
    return {name: Quantity.parse(text) for name, text in texts.items()}


def _taken(account: Object) -> Amounts:
    used, reserved = _amounts(account.get("used", {})), _amounts(account.get("reserved", {}))
    return {name: used.get(name, _ZERO) + reserved.get(name, _ZERO) for name in account["hard"]}


def _done(answer: Answer) -> None:
    assert answer.ok, str(answer)
