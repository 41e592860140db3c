"""What decides about new pods moves between policies and the webhook without a gap."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.install.twin import Twin, registrations, run
from webhook.install import InstallError
from webhook.install.apply import current
from webhook.kube.api import (
    ALL,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POD_GATINGS,
    VALIDATING_WEBHOOKS,
    Kind,
    ListOptions,
    UnavailableError,
)
from webhook.operations.creation import GATE_POLICY, MUST_SPECIFY_POLICIES
from webhook.operations.names import policy_kinds
from webhook.operations.retry import RetryPolicy

CONFIGURATION = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
ENTRIES = {"gate", "shape", "ungated"}


class Watching(Twin):
    """Notes at every write what decides about new pods."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[tuple[bool, bool]] = []
        """Whether the policies do, and whether the entries do, in the order of writes."""

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        done = super().apply(*args, **kwargs)
        self.look()
        return done

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        done = super().delete(*args, **kwargs)
        self.look()
        return done

    def look(self) -> None:
        kinds = policy_kinds("v1")
        bound = [
            any(
                cast("Any", one)["metadata"]["name"] == GATE_POLICY for one in self.list(kind).items
            )
            for kind in kinds
        ]
        state = (all(bound), entries(self) >= ENTRIES)
        if not self.states or self.states[-1] != state:
            self.states.append(state)


def entries(twin: Twin) -> set[str]:
    if len(twin.list(VALIDATING_WEBHOOKS).items) == 0:
        return set()
    return {
        entry["name"].partition(".")[0]
        for each in registrations(twin)
        for entry in each["webhooks"]
        if entry["name"].partition(".")[0] in ENTRIES
        and not (entry["name"].startswith("gate") and "'values': ['auto']" in str(entry))
    }


def policies(twin: Twin) -> set[str]:
    found = {one.rpartition(" ")[2] for one in twin.written if "AdmissionPolicy " in one}
    return found & {GATE_POLICY, *MUST_SPECIFY_POLICIES}


def test_policies_decide_where_the_api_server_has_them() -> None:
    twin = Twin()
    _, lines = run(twin)
    assert "new pods: by policies in the API server itself (MutatingAdmissionPolicy)" in lines
    assert policies(twin) == {GATE_POLICY, *MUST_SPECIFY_POLICIES}
    assert entries(twin) == set()
    changes, lines = run(twin)
    assert changes == 0
    for name in (GATE_POLICY, *MUST_SPECIFY_POLICIES):
        assert [line for line in lines if line.endswith(f"Policy {name}: unchanged")] != []


def test_elsewhere_the_webhook_decides() -> None:
    twin = Twin()
    twin.resources = twin.resources[1:]
    _, lines = run(twin)
    assert "new pods: by the webhook" in lines
    assert policies(twin) == set()
    assert entries(twin) == ENTRIES


def test_policies_that_are_not_served_are_refused_before_anything_is_written() -> None:
    twin = Twin()
    twin.resources = twin.resources[1:]
    with pytest.raises(InstallError, match="--creation policy: this API server has no Mutating"):
        run(twin, creation="policy")
    assert twin.written == []


@pytest.mark.parametrize(("before", "after"), [("webhook", "policy"), ("policy", "webhook")])
def test_one_of_both_decides_all_the_time(before: str, after: str) -> None:
    twin = Watching()
    run(twin, creation=before)
    twin.states.clear()
    twin.look()
    run(twin, creation=after)
    by_policy, by_webhook = (True, False), (False, True)
    ends = {"policy": by_policy, "webhook": by_webhook}
    assert twin.states == [ends[before], (True, True), ends[after]]
    assert run(twin, creation=after)[0] == 0


def test_entries_decide_while_policies_change() -> None:
    twin = Watching()
    run(twin)
    twin.states.clear()
    run(twin, configuration=f"{CONFIGURATION}gating: never\n")
    assert twin.states[:2] == [(True, False), (True, True)]
    assert twin.states[-1] == (True, False)


def test_a_policy_that_was_edited_is_mended() -> None:
    twin = Twin()
    run(twin)
    kind, _ = policy_kinds("v1")
    edited: Any = twin.api.get(kind, GATE_POLICY)
    edited["spec"]["variables"][0]["expression"] = "'never'"
    twin.api.update(kind, edited)
    _, lines = run(twin)
    assert f"MutatingAdmissionPolicy {GATE_POLICY}: changed" in lines
    mended: Any = twin.api.get(kind, GATE_POLICY)
    assert mended["spec"]["variables"][0]["expression"] == "'auto'"


def test_a_rule_that_is_given_up_takes_its_policies_with_it() -> None:
    twin = Twin()
    run(twin)
    _, lines = run(twin, configuration=f"{CONFIGURATION}mustSpecify: bind\n")
    gone = {line for line in lines if "must-specify" in line}
    assert gone == {
        f"{kind} {name}: deleted"
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        for name in MUST_SPECIFY_POLICIES
    }


class SharedWithOthers(Twin):
    """Others have applied all entries, too: what is left out of an apply stays."""

    def apply(self, kind: Any, obj: Any, **options: Any) -> Any:
        if kind in {MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS}:
            found = current(cast("Any", self), obj)
            names = {entry["name"] for entry in obj["webhooks"]}
            others = [] if found is None else cast("Any", found)["webhooks"]
            kept = [entry for entry in others if entry["name"] not in names]
            obj = {**obj, "webhooks": [*obj["webhooks"], *kept]}
        return super().apply(kind, obj, **options)


def test_entries_go_that_others_have_applied_too() -> None:
    twin = SharedWithOthers()
    run(twin, creation="webhook")
    assert entries(twin) == ENTRIES
    _, lines = run(twin, creation="policy")
    gone = "shape.deferredquota.io, ungated.deferredquota.io"
    assert f"ValidatingWebhookConfiguration deferred-quota: is left without {gone}" in lines
    assert entries(twin) == set()
    assert run(twin, creation="policy")[0] == 0


@pytest.mark.parametrize("form", ["policy", "webhook"])
def test_an_installation_that_names_no_form_keeps_the_one_that_is_there(form: Any) -> None:
    twin = Twin()
    run(twin, creation=form)
    assert run(twin, creation=None)[0] == 0


def test_a_first_one_takes_what_there_is() -> None:
    twin = Twin()
    run(twin, creation=None)
    names = {
        cast("Any", each)["metadata"]["name"] for each in twin.list(policy_kinds("v1")[0]).items
    }
    assert GATE_POLICY in names
    assert not ENTRIES & entries(twin)


def a_namespace_gated_by_need(twin: Twin) -> None:
    labels = {"deferredquota.io/mode": "deferred", "deferredquota.io/gating": "auto"}
    twin.api.create(NAMESPACES, {"metadata": {"name": "team-a", "labels": labels}})


def test_what_policies_go_by_is_there_before_the_entry_goes() -> None:
    class Controlled(Twin):
        looks = 0

        def list(self, kind: Kind, options: ListOptions = ALL) -> Any:
            if kind == POD_GATINGS:
                self.looks += 1
                if self.looks == 3:
                    assert entries(self) == ENTRIES
                    metadata = {"name": "gating", "namespace": "team-a"}
                    self.api.create(POD_GATINGS, {"metadata": metadata, "spec": {}})
            return self.api.list(kind, options)

    twin = Controlled()
    run(twin, creation="webhook")
    a_namespace_gated_by_need(twin)
    _, lines = run(twin, creation="policy")
    assert twin.looks == 3
    assert entries(twin) == set()
    assert not [line for line in lines if "PodGating" in line]


def test_an_api_server_that_is_away_for_a_moment_meanwhile_is_asked_again() -> None:
    class Flaky(Twin):
        away = 1

        def list(self, kind: Kind, options: ListOptions = ALL) -> Any:
            if kind == POD_GATINGS and self.away:
                self.away -= 1
                raise UnavailableError("connection refused")
            return self.api.list(kind, options)

    twin = Flaky()
    run(twin, creation="webhook")
    a_namespace_gated_by_need(twin)
    twin.api.create(POD_GATINGS, {"metadata": {"name": "gating", "namespace": "team-a"}})
    run(twin, creation="policy")
    assert not twin.away
    assert entries(twin) == set()


def test_where_no_controller_makes_it_that_is_reported() -> None:
    twin = Twin()
    run(twin, creation="webhook")
    a_namespace_gated_by_need(twin)
    _, lines = run(twin, creation="policy", patience=RetryPolicy(seconds=0.05, pause_seconds=0.01))
    assert [line for line in lines if "no PodGating in team-a" in line]
    assert entries(twin) == set()


def test_a_dry_run_moves_nothing() -> None:
    twin = Twin()
    run(twin, creation="webhook")
    twin.written.clear()
    changes, lines = run(twin, dry_run=True)
    assert changes == 10  # eight objects, and two registrations without their entries
    assert f"MutatingAdmissionPolicy {GATE_POLICY}: would be created" in lines
    assert twin.written == []
