"""Whether the webhook answers is tried by a bind that can come to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.operations.healthy import (
    CreationGuard,
    Guard,
    Pulse,
    edit,
    examined,
    healthy,
    ids,
    remove,
    renewing,
    the,
)
from tests.operations.scenes import NAMESPACE, a_namespace, load
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    ApiError,
    ForbiddenError,
    InternalError,
    NotFoundError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnreachableError,
)
from webhook.operations.doctor.check_context import Settings
from webhook.operations.doctor.runner import Examination
from webhook.operations.enable import installation_findings
from webhook.state.well_known import (
    BIND_ENTRY,
    KNOWN_CLIENTS_ONLY,
    REGISTRATION,
    SHADOW_MODE,
)

DENIED = f'admission webhook "{BIND_ENTRY}" denied the request: '
REFUSED = (
    f'Internal error occurred: failed calling webhook "{BIND_ENTRY}": failed to call webhook: Post'
    ' "https://127.0.0.1:1/validate?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'
)
UNKNOWN_CLIENT = (
    f'Internal error occurred: failed calling webhook "{BIND_ENTRY}": failed to call webhook: '
)
TLS_ALERT = (
    f'{UNKNOWN_CLIENT}Post "https://192.0.2.7:9443/validate?timeout=5s": remote error: tls: '
)
OTHERS = 'admission webhook "binds.example.com" denied the request: not today'
NO_RIGHT = (
    'pods "x" is forbidden: User "eve" cannot create resource "pods/binding" in API group "" in the'
    ' namespace "team-a"'
)
CANNOT_DECIDE = "cannot decide about a bind in team-a"
CANNOT_SEE = f"whether {BIND_ENTRY} answers cannot be seen, a bind comes to nothing"
SUBJECT = "ValidatingWebhookConfiguration deferred-quota"


def answering(error: ApiError) -> Guard:
    def answer(_: WriteRequest) -> None:
        raise error

    return Guard(answer)


def found_with(guard: Guard, cluster: FakeCluster | None = None, **settings: Any) -> Examination:
    return examined(FakeClient(cluster or healthy(), admission=guard), **settings)


def webhooks(found: Examination) -> list[str]:
    return [name for name in ids(found) if name.startswith("webhooks.")]


def test_a_webhook_that_looks_for_the_pod_answers() -> None:
    guard = Guard()
    found = found_with(guard)
    assert webhooks(found) == []
    assert "answers" in found.checked
    assert len(guard.asked) == 1


def test_what_is_tried_is_a_dry_run_of_a_pod_that_does_not_exist() -> None:
    guard = Guard()
    found_with(guard)
    found_with(guard)
    first, second = guard.asked
    assert first.dry_run
    assert first.namespace == NAMESPACE
    assert first.name != second.name
    sent, other = (json.loads(json.dumps(each.new)) for each in (first, second))
    assert sent["metadata"]["uid"] != other["metadata"]["uid"], "so nothing has to be pinned in it"


FOUND: dict[str, tuple[ApiError, str, str, str]] = {
    "it is not reached": (
        InternalError(REFUSED),
        "webhooks.silent",
        "error",
        f"{BIND_ENTRY} does not answer: {REFUSED}",
    ),
    "it is not reached where the uid is pinned": (
        InternalError(REFUSED.replace("bind.", "stamp.")),
        "webhooks.silent",
        "error",
        f"stamp.deferredquota.io does not answer: {REFUSED.replace('bind.', 'stamp.')}",
    ),
    "another webhook is not reached": (
        InternalError(REFUSED.replace(BIND_ENTRY, "binds.example.com")),
        "webhooks.unseen",
        "warn",
        f"{CANNOT_SEE}: {REFUSED.replace(BIND_ENTRY, 'binds.example.com')}",
    ),
    "it takes longer than we wait": (
        RequestTimeoutError("POST https://api: no answer within 10 s"),
        "webhooks.silent",
        "error",
        f"{BIND_ENTRY} does not answer: POST https://api: no answer within 10 s",
    ),
    "it cannot ask the API server": (
        TooManyRequestsError(f"{DENIED}the API server does not answer: no"),
        "webhooks.undecided",
        "warn",
        f"{BIND_ENTRY} answers, and {CANNOT_DECIDE}: the API server does not answer: no",
    ),
    "it has found another pod": (
        NotFoundError(f'{DENIED}pods "x" not found'),
        "webhooks.undecided",
        "warn",
        f'{BIND_ENTRY} answers, and {CANNOT_DECIDE}: pods "x" not found',
    ),
    "somebody else refuses": (
        ForbiddenError(OTHERS),
        "webhooks.unseen",
        "warn",
        f"{CANNOT_SEE}: {OTHERS}",
    ),
}


@pytest.mark.parametrize(("error", "name", "severity", "message"), FOUND.values(), ids=FOUND)
def test_other_answers_are_reported(
    error: ApiError, name: str, severity: str, message: str
) -> None:
    found = found_with(answering(error))
    assert webhooks(found) == [name]
    finding = the(found, name)
    assert (finding.severity, finding.message, str(finding.subject)) == (
        severity,
        message,
        SUBJECT,
    )
    assert finding.remedy
    assert "answers" in found.checked


def test_a_bind_that_passes_unseen_is_reported() -> None:
    """So it is where the registration does not select the namespace, or fails open."""
    found = found_with(Guard(lambda _: None))
    finding = the(found, "webhooks.unasked")
    assert finding.severity == "error"
    assert finding.message == (
        f"{BIND_ENTRY} is not asked about a bind in team-a, or lets it pass unseen: the API server"
        " looked for the pod itself"
    )


def test_a_user_that_may_not_bind_learns_so_and_nothing_fails() -> None:
    found = found_with(answering(ForbiddenError(NO_RIGHT)))
    assert webhooks(found) == []
    finding = the(found, "check.forbidden")
    assert finding.severity == "info", "nobody needs that right to look a cluster over"
    assert finding.message == (
        "whether the webhook answers: not looked at: you may not create pods/binding in namespace"
        " team-a"
    )
    assert "Do not grant" in finding.remedy
    assert found.skipped == {"answers": NO_RIGHT}


def test_an_api_server_that_does_not_answer_is_no_word_about_the_webhook() -> None:
    found = found_with(answering(UnreachableError("connection reset")))
    assert webhooks(found) == []
    assert found.skipped == {"answers": "connection reset"}


def opt_out(cluster: FakeCluster) -> None:
    edit(cluster, NAMESPACES, NAMESPACE, lambda raw: raw["metadata"].pop("labels"))


def forget_the_bind(cluster: FakeCluster) -> None:
    def change(raw: Any) -> None:
        raw["webhooks"] = [each for each in raw["webhooks"] if each["name"] != BIND_ENTRY]

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, change)


NOT_TRIED: dict[str, tuple[Callable[[FakeCluster], None], dict[str, Any]]] = {
    "nobody has opted in": (opt_out, {}),
    "it is not registered for binds": (forget_the_bind, {}),
    "nothing is registered": (
        lambda cluster: remove(cluster, VALIDATING_WEBHOOKS, REGISTRATION),
        {},
    ),
    "the cluster is a snapshot": (lambda _: None, {"is_offline": True}),
    "another namespace is looked at": (
        lambda cluster: load(cluster, a_namespace("team-b", mode="shadow")),
        {"namespaces": ("team-b",)},
    ),
}


@pytest.mark.parametrize(("change", "settings"), NOT_TRIED.values(), ids=NOT_TRIED)
def test_nothing_is_tried_where_no_webhook_has_to_answer(
    change: Callable[[FakeCluster], None], settings: dict[str, Any]
) -> None:
    cluster, guard = healthy(), Guard()
    change(cluster)
    found_with(guard, cluster, **settings)
    assert guard.asked == []


def without_opted_in() -> FakeCluster:
    cluster = healthy()
    FakeClient(cluster).patch(
        NAMESPACES, NAMESPACE, {"metadata": {"labels": {"deferredquota.io/mode": None}}}
    )
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        edit(cluster, kind, REGISTRATION, at_a_url)
    return cluster


def at_a_url(raw: Any) -> None:
    for entry in raw["webhooks"]:
        entry["clientConfig"] = {**entry["clientConfig"], "url": "https://192.0.2.7:9443/validate"}
        entry["clientConfig"].pop("service")


def test_before_any_namespace_has_opted_in_a_dead_webhook_at_a_url_is_found() -> None:
    found = found_with(Guard(), without_opted_in())
    finding = the(found, "webhooks.silent")
    assert (finding.severity, str(finding.subject)) == ("error", SUBJECT)
    assert finding.message.startswith("the webhook does not answer at https://192.0.2.7:9443: ")


def test_before_a_namespace_is_watched_a_dead_webhook_is_found() -> None:
    api = FakeClient(without_opted_in())
    pulse = Pulse(renewing(api.cluster))
    settings = Settings(clock=pulse.clock, sleep=pulse.sleep)
    found = installation_findings(api, settings, ["team-b"], mode=SHADOW_MODE)
    assert "webhooks.silent" in {one.id for one in found}


def test_a_webhook_that_refuses_a_cluster_quota_answers_and_nothing_is_created() -> None:
    guard, cluster = CreationGuard(), without_opted_in()
    assert "webhooks.silent" not in ids(found_with(guard, cluster))
    assert [(each.kind, each.dry_run) for each in guard.asked] == [(CLUSTER_DEFERRED_QUOTAS, True)]
    assert FakeClient(cluster).list(CLUSTER_DEFERRED_QUOTAS).items == ()


@pytest.mark.parametrize(
    "words",
    [
        f"{UNKNOWN_CLIENT}the client shows no certificate: {KNOWN_CLIENTS_ONLY}: kubeConfigFile",
        f"{TLS_ALERT}unknown certificate authority",
        f"{TLS_ALERT}expired certificate",
    ],
    ids=["none", "of another CA", "ended"],
)
def test_an_api_server_that_the_webhook_does_not_know_is_named(words: str) -> None:
    found = found_with(answering(InternalError(words)))
    assert webhooks(found) == ["webhooks.client-refused"]
    finding = the(found, "webhooks.client-refused")
    assert finding.message == f"{BIND_ENTRY} refuses the API server: {words}"
    assert "docs/client-auth.md" in finding.remedy


def test_another_failure_of_tls_is_silence() -> None:
    words = f"{TLS_ALERT}handshake failure"
    assert webhooks(found_with(answering(InternalError(words)))) == ["webhooks.silent"]
