"""What people read when a change of a Job is refused: our words, from a real API server.

The API server would print the whole template. Each test sends an update of a stored Job that no
controller touches, and reads the refusal as kubectl would show it. Both feature gates are on.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.e2e.cluster.jobs.states import put
from tests.e2e.cluster.jobs.words import (
    DIRECTIVES,
    FINISHED,
    FIXED,
    GATES_ARE_ON,
    GROW,
    GROWN,
    MAIN,
    MOVE,
    MOVED,
    NEVER,
    NO_POD_AFFINITY,
    NOT_SUSPENDED,
    ONE_ACTIVE,
    RAN,
    RESIZES,
    RUNNING,
    UNCONFIRMED,
    said,
    stored,
)
from tests.e2e.cluster.objects import Object
from tests.e2e.cluster.tenant import Tenant
from tests.quota.jobs.job_updates import SPEC, STARTED, Change, change_list, drop, updated
from tests.quota.jobs.job_updates import put as setting

pytestmark = [pytest.mark.timeout(300), GATES_ARE_ON]

# -- both gates are on: what the state of the Job forbids ---------------------------------------


CLOSED: Mapping[str, tuple[bool, Object, str]] = {
    "not suspended": (False, RUNNING, NOT_SUSPENDED),
    "never started, with an active pod": (True, {"active": 1}, ONE_ACTIVE),
    "started, with an active pod": (True, {**RAN, "active": 1}, ONE_ACTIVE),
    "not confirmed": (True, {"startTime": STARTED}, UNCONFIRMED),
    "denied": (
        True,
        {"startTime": STARTED, "conditions": [{"type": "Suspended", "status": "False"}]},
        UNCONFIRMED,
    ),
    "failed": (
        True,
        {
            "startTime": STARTED,
            "failed": 1,
            "conditions": [
                {"type": "FailureTarget", "status": "True"},
                {"type": "Failed", "status": "True"},
            ],
        },
        FINISHED,
    ),
    "complete": (
        True,
        {
            "startTime": STARTED,
            "completionTime": "2026-06-01T13:00:00Z",
            "succeeded": 4,
            "conditions": [
                {"type": "SuccessCriteriaMet", "status": "True"},
                {"type": "Complete", "status": "True"},
            ],
        },
        FINISHED,
    ),
}


@pytest.mark.parametrize(("suspend", "status", "why"), CLOSED.values(), ids=CLOSED.keys())
def test_a_closed_job_says_why_it_is_closed(
    tenant: Tenant, suspend: bool, status: Object, why: str
) -> None:
    reason = why.format(ns=tenant.namespace)
    old = stored(tenant, status, suspend=suspend)
    for change, field in (*RESIZES.values(), *DIRECTIVES.values()):
        assert said(tenant, old, change) == f"{field}: {reason}"


def test_what_several_changes_share_is_said_once(tenant: Tenant) -> None:
    old = stored(tenant, RUNNING, suspend=False)
    reason = NOT_SUSPENDED.format(ns=tenant.namespace)
    assert said(tenant, old, GROW, MOVE) == f"{GROWN}: {reason}; {MOVED}"


def test_many_changes_are_counted(tenant: Tenant) -> None:
    old = stored(tenant, RUNNING, suspend=False)
    labels = dict(old["spec"]["template"]["metadata"]["labels"])
    labels |= {f"label-{number:02}": "x" for number in range(15)}
    message = said(tenant, old, setting("spec.template.metadata.labels", labels))
    assert message.endswith(f"; spec.template: {FIXED}: and 3 more changes")


# -- what never changes --------------------------------------------------------------------------


IMMUTABLE: Mapping[str, tuple[Change, str]] = {
    "pod affinity": (
        setting(
            f"{SPEC}.affinity",
            {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]
                }
            },
        ),
        (
            f"{SPEC}.affinity.podAffinity: {FIXED}: from none to"
            f' {{"requiredDuringSchedulingIgnoredDuringExecution": [{{"top...: {NO_POD_AFFINITY}'
        ),
    ),
    "pod anti-affinity": (
        setting(f"{SPEC}.affinity", {"podAntiAffinity": {}}),
        f"{SPEC}.affinity.podAntiAffinity: {FIXED}: from none to {{}}: {NO_POD_AFFINITY}",
    ),
    "environment": (
        setting(f"{SPEC}.containers.0.env.0.value", "secret"),
        f"{MAIN}.env[0].value: {FIXED}: another value: {NEVER}",
    ),
    "arguments": (
        setting(f"{SPEC}.containers.0.args", ["--token=secret"]),
        f"{MAIN}.args: {FIXED}: another value: {NEVER}",
    ),
    "name of a container": (
        setting(f"{SPEC}.containers.0.name", "other"),
        f'{MAIN}.name: {FIXED}: from "main" to "other": {NEVER}',
    ),
    "a container less": (
        change_list(f"{SPEC}.containers", lambda items: items.pop()),
        f'{SPEC}.containers: {FIXED}: from ["main", "side"] to ["main"]: {NEVER}',
    ),
    "image of an init container": (
        setting(f"{SPEC}.initContainers.0.image", "registry.example/app:2"),
        (
            f'{SPEC}.initContainers[0].image: {FIXED}: from "registry.example/app:1" to'
            f' "registry.example/app:2": {NEVER}'
        ),
    ),
    "an init container less": (
        change_list(f"{SPEC}.initContainers", lambda items: items.pop()),
        f'{SPEC}.initContainers: {FIXED}: from ["setup", "proxy"] to ["setup"]: {NEVER}',
    ),
    "no init containers": (
        drop(f"{SPEC}.initContainers"),
        f'{SPEC}.initContainers: {FIXED}: from ["setup", "proxy"] to none: {NEVER}',
    ),
    "scheduler": (
        setting(f"{SPEC}.schedulerName", "other"),
        f'{SPEC}.schedulerName: {FIXED}: from "default-scheduler" to "other": {NEVER}',
    ),
    "who runs it": (
        setting("spec.managedBy", "example.com/other"),
        (
            f'spec.managedBy: {FIXED}: from "example.com/nobody" to "example.com/other": create a'
            " new Job"
        ),
    ),
}


@pytest.mark.parametrize(("change", "words"), IMMUTABLE.values(), ids=IMMUTABLE.keys())
def test_for_what_never_changes_suspending_is_not_advised(
    tenant: Tenant, change: Change, words: str
) -> None:
    for name, suspend in (("open", True), ("closed", False)):
        old = stored(tenant, {}, suspend=suspend, name=name)
        assert said(tenant, old, change) == words


def test_of_an_open_job_only_what_is_refused_is_named(tenant: Tenant) -> None:
    old = stored(tenant, RAN)
    image = setting(f"{SPEC}.containers.0.image", "x:2")
    words = f'{MAIN}.image: {FIXED}: from "registry.example/app:1" to "x:2": {NEVER}'
    assert said(tenant, old, GROW, MOVE, image) == words


def test_a_label_that_the_selector_needs_is_named(tenant: Tenant) -> None:
    old = stored(tenant, {})
    words = said(tenant, old, setting("spec.template.metadata.labels.app", "other"))
    assert words == "spec.template.metadata.labels: `selector` does not match template `labels`"


def test_an_update_need_not_give_the_uid(tenant: Tenant) -> None:
    old = stored(tenant, {})
    answer = put(tenant.api, updated(old, GROW, drop("metadata.uid")))
    assert answer.code == 200, str(answer)
