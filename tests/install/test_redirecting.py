"""The API server goes on to ask somebody who answers, wherever an installation breaks off."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

import pytest

from tests.install.twin import HERE, INSIDE, QUICK, SYSTEM, Twin, leading, registrations, run
from webhook.install import InstallError
from webhook.install.apply import InstallApi
from webhook.install.installation import InstallOptions, install
from webhook.kube.api import (
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    ForbiddenError,
    InternalError,
    Kind,
    NotFoundError,
    Object,
    Revision,
)
from webhook.state.well_known import LAST_REGISTRATION, REGISTRATION
from webhook.tls.bundles import certificate_set
from webhook.tls.issue import issue_ca

PROBE = "aa-deferred-quota-probe"
SERVICE = "deferred-quota-webhook"
END = b"-----END CERTIFICATE-----\n"


class KilledError(BaseException):
    """The process is gone."""


@cache
def ca(name: str) -> bytes:
    assert name
    return issue_ca(now=datetime.now(UTC)).certificate


class Asking(Twin):
    """A cluster with a namespace that has opted in, whose API server asks as it is told to.

    Attributes:
        serving: place → the CA of what is served there; places are URLs and names of Services.
        writes_left: After how many writes of certificates and registrations the process is killed.
        lost: How many entries could not be asked, summed over the states after each write.
    """

    def __init__(self) -> None:
        super().__init__()
        self.serving: dict[str, Callable[[], bytes]] = {}
        self.writes_left = 1_000_000
        self.lost = 0
        labels = {"deferredquota.io/mode": "deferred"}
        self.api.create(NAMESPACES, {"metadata": {"name": "team", "labels": labels}})

    def apply(self, kind: Kind, obj: Object, **options: Any) -> Revision:
        if kind.kind != "Secret" and kind.group != "admissionregistration.k8s.io":
            return super().apply(kind, obj, **options)
        return self._written(lambda: super(Asking, self).apply(kind, obj, **options))

    def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
        return self._written(lambda: super(Asking, self).patch(kind, name, *args, **kwargs))

    def _written(self, write: Callable[[], Revision]) -> Revision:
        if not self.writes_left:
            raise KilledError
        self.writes_left -= 1
        done = write()
        self._look()
        return done

    def bind(self, binding: Object, *, namespace: str = "", dry_run: bool = False) -> None:
        assert (namespace, dry_run) == ("team", True)
        metadata: Any = binding["metadata"]
        probe: Any = self.api.get(MUTATING_WEBHOOKS, PROBE)
        (entry,) = probe["webhooks"]
        assert metadata["name"] in entry["matchConditions"][0]["expression"]
        why = self.failure(entry["clientConfig"])
        if why:
            raise InternalError(f'Internal error: failed calling webhook "{entry["name"]}": {why}')
        missing = f'pods "{metadata["name"]}" not found'
        raise NotFoundError(f'admission webhook "{entry["name"]}" denied the request: {missing}')

    def failure(self, client: Any) -> str:
        place = client["service"]["name"] if "service" in client else origin(client["url"])
        if place not in self.serving:
            return "connection refused"
        bundle = base64.b64decode(client.get("caBundle", ""))
        served = certificate_set(self.serving[place]())
        return "" if served <= certificate_set(bundle) else "certificate of an unknown authority"

    def _look(self) -> None:
        """Count the entries that fail at this moment."""
        try:
            found = registrations(self)
        except NotFoundError:
            return  # it is being installed
        entries = [entry for each in found for entry in each["webhooks"]]
        self.lost += sum(bool(self.failure(each["clientConfig"])) for each in entries)


def inside(twin: Twin) -> bytes:
    """Return the CA of what the webhook in the cluster serves."""
    found: Any = twin.api.get(SECRETS, "deferred-quota-tls", namespace=SYSTEM)
    certificates = base64.b64decode(found["data"]["ca.crt"])
    return certificates.partition(END)[0] + END


def origin(url: str) -> str:
    return url.rpartition("/")[0]


def asked(twin: Twin) -> set[str]:
    clients = [entry["clientConfig"] for each in registrations(twin) for entry in each["webhooks"]]
    return {
        each["service"]["name"] if "service" in each else origin(each["url"]) for each in clients
    }


def trusted(twin: Twin) -> frozenset[bytes]:
    (bundle,) = {
        entry["clientConfig"].get("caBundle", "")
        for each in registrations(twin)
        for entry in each["webhooks"]
    }
    return certificate_set(base64.b64decode(bundle))


OUTSIDE: dict[str, Any] = {"url": HERE, "ca_pem": ca("here")}
ELSEWHERE: dict[str, Any] = {"url": "https://192.0.2.8:9443", "ca_pem": ca("elsewhere")}
ANYWAY: dict[str, Any] = {"url": "https://webhook.example"}
"""A webhook whose CA the API server trusts without being told."""
INSIDE_WISH: dict[str, Any] = {}


def a_cluster() -> Asking:
    twin = Asking()
    twin.serving = {
        HERE: lambda: ca("here"),
        str(ELSEWHERE["url"]): lambda: ca("elsewhere"),
        str(ANYWAY["url"]): lambda: b"",
        SERVICE: lambda: inside(twin),
    }
    return twin


def is_finished(twin: Asking, wish: dict[str, Any]) -> bool:
    served = certificate_set(wish.get("ca_pem", b""))
    if "url" not in wish:
        served = certificate_set(inside(twin))
    return asked(twin) == {wish.get("url", SERVICE)} and trusted(twin) == served


MOVES = [
    (OUTSIDE, INSIDE_WISH),
    (INSIDE_WISH, OUTSIDE),
    (OUTSIDE, ELSEWHERE),
    (ANYWAY, INSIDE_WISH),
    (INSIDE_WISH, ANYWAY),
    (OUTSIDE, ANYWAY),
]


@pytest.mark.timeout(600)  # hundreds of installations
@pytest.mark.parametrize(("before", "after"), MOVES)
def test_the_registered_webhook_answers_wherever_a_move_is_killed(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    before, after = ({**each, "creation": "webhook"} for each in (before, after))
    kills = 0
    while True:
        twin = a_cluster()
        run(twin, **before)
        assert is_finished(twin, before)
        twin.lost, twin.writes_left = 0, kills
        try:
            run(twin, **after)
        except KilledError:
            twin.writes_left = 1_000_000
            run(twin, **after)
            assert (twin.lost, is_finished(twin, after)) == (0, True)
            assert run(twin, **after)[0] == 0
            kills += 1
        else:
            break
    assert (twin.lost, is_finished(twin, after)) == (0, True)
    assert kills > 3
    assert PROBE not in {cast("Any", each)["metadata"]["name"] for each in mutating(twin)}


def mutating(twin: Twin) -> list[Object]:
    return list(twin.api.list(MUTATING_WEBHOOKS).items)


def test_a_webhook_that_is_not_reached_is_not_asked() -> None:
    for before, after in MOVES:
        twin = a_cluster()
        run(twin, **before)
        twin.lost = 0
        del twin.serving[str(after.get("url", SERVICE))]
        with pytest.raises(InstallError, match="connection refused; gave up after"):
            run(twin, **after)
        assert (twin.lost, asked(twin)) == (0, {before.get("url", SERVICE)})


def test_what_stands_is_reported_when_a_move_breaks_off() -> None:
    twin = a_cluster()
    run(twin, **OUTSIDE)
    twin.available = False
    lines = told_until(twin, InstallError)
    assert f"MutatingWebhookConfiguration {REGISTRATION}: trusts the CA of {INSIDE}, too" in lines
    assert lines[-1] == (
        f"not finished: the API server asks {HERE}, as before, and trusts what it trusted: what"
        " worked goes on; run this again to go on from here"
    )
    asks = f"MutatingWebhookConfiguration {REGISTRATION}: asks {INSIDE}"
    for left in range(1000):
        twin = a_cluster()
        run(twin, **OUTSIDE)
        twin.writes_left = left
        if asks in (lines := told_until(twin, KilledError)):
            break
    assert lines[-1] == (
        f"not finished: the API server asks {INSIDE} by MutatingWebhookConfiguration"
        f" {REGISTRATION}, and {HERE} by MutatingWebhookConfiguration {LAST_REGISTRATION},"
        f" ValidatingWebhookConfiguration {REGISTRATION}: both have to go on; run this again to go"
        " on from here"
    )


def told_until(twin: Twin, error: type[BaseException], **wish: Any) -> list[str]:
    lines: list[str] = []
    options = InstallOptions(patience=QUICK, **wish)
    with pytest.raises(error), twin.api.on("get", LEASES, leading()):
        install(cast("InstallApi", twin), options, lines.append)
    return lines


def test_where_nothing_answers_nothing_is_lost_by_moving() -> None:
    twin = a_cluster()
    twin.serving.clear()
    run(twin, **OUTSIDE)
    _, lines = run(twin, **ELSEWHERE)
    assert asked(twin) == {ELSEWHERE["url"]}
    assert any("does not answer, as what was asked before: connection refused" in x for x in lines)


def test_another_ca_at_the_same_place_is_trusted_alone_only_when_it_is_served_with() -> None:
    twin = a_cluster()
    run(twin, **OUTSIDE)
    changed = {**OUTSIDE, "ca_pem": ca("other")}
    with pytest.raises(InstallError, match="certificate of an unknown authority"):
        run(twin, **changed)
    assert trusted(twin) == certificate_set(ca("here")) | certificate_set(ca("other"))
    twin.serving[HERE] = lambda: ca("other")
    run(twin, **changed)
    assert trusted(twin) == certificate_set(ca("other"))


def test_a_ca_that_replaces_the_trust_of_the_machine_counts_as_changed() -> None:
    twin = a_cluster()
    run(twin, url=HERE, waits=False)
    changes, _ = run(twin, **OUTSIDE)
    assert trusted(twin) == certificate_set(ca("here"))
    assert changes == 3
    assert run(twin, **OUTSIDE)[0] == 0


class Forbidding(Asking):
    def bind(self, *_: object, **__: object) -> None:
        raise ForbiddenError('pods "x" is forbidden: cannot create resource "pods/binding"')


def test_a_user_that_may_not_look_moves_without_looking_only_when_asked_to() -> None:
    twin = Forbidding()
    run(twin, **OUTSIDE)
    with pytest.raises(InstallError, match=re.escape("--no-wait goes on without")):
        run(twin)
    assert asked(twin) == {HERE}
    run(twin, waits=False)
    assert asked(twin) == {SERVICE}


class Unasked(Asking):
    """An API server that never asks by the probe, as in a namespace that the webhook exempts."""

    def bind(self, binding: Object, **_: object) -> None:
        metadata: Any = binding["metadata"]
        missing = f'pods "{metadata["name"]}" not found'
        raise NotFoundError(f'admission webhook "stamp.deferredquota.io" denied: {missing}')


def test_what_cannot_be_seen_is_not_taken_for_an_answer() -> None:
    twin = Unasked()
    run(twin, **OUTSIDE)
    with pytest.raises(InstallError, match="its configuration exempts team; --no-wait"):
        run(twin)
    assert asked(twin) == {HERE}


def test_namespaces_that_are_being_deleted_are_not_asked_about() -> None:
    twin = Unasked()
    run(twin, **OUTSIDE)
    labels = {"metadata": {"finalizers": ["example.com/wait"]}}
    twin.api.patch(NAMESPACES, "team", labels)
    twin.api.delete(NAMESPACES, "team")
    found: Any = twin.api.get(NAMESPACES, "team")
    assert found["metadata"]["deletionTimestamp"]
    run(twin)
    assert asked(twin) == {SERVICE}
