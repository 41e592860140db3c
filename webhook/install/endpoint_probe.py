"""Whether the API server reaches a webhook somewhere, before it is sent there.

A registration of its own, asked before all others and about one pod that does not exist, names the
place and what to trust there. A Binding of that pod, tried by a dry run, then comes back with the
words of the webhook that answered: the webhook finds no such pod, or the API server says why it
could not ask. Nothing else is ever asked there, also when the registration is left over.

Source: kubernetes v1.36, apiserver/pkg/admission/configuration/mutating_webhook_manager.go (in the
order of their names); plugin/webhook/errors/statuserror.go ToStatusErr.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeAlias

from webhook.install.apply import FIELD_MANAGER, InstallApi, delete
from webhook.jsonfields.fields import mapping
from webhook.kube.api import (
    BINDINGS,
    MUTATING_WEBHOOKS,
    ApiError,
    ClusterApi,
    ForbiddenError,
    NotFoundError,
    Object,
    UnavailableError,
)
from webhook.operations.retry import RetryPolicy

PROBE: Final[Object] = MUTATING_WEBHOOKS.make(
    {
        "name": "aa-deferred-quota-probe",  # those are asked first whose names come first
        "labels": {
            "app.kubernetes.io/name": "deferred-quota",
            "app.kubernetes.io/part-of": "deferred-quota",
            "app.kubernetes.io/component": "probe",
        },
    }
)
"""The registration, without what it asks; it is there only while something is looked at."""
_SECONDS: Final = 5
_KNOWN_SECONDS: Final = 30.0
"""In which every API server knows of a registration."""
_NO_RIGHT: Final = 'cannot create resource "pods/binding"'
_UNSEEN: Final = "the API server does not ask it yet, or its configuration exempts {}"


Namespaces: TypeAlias = Callable[[], Sequence[str]]


class CannotProbeError(Exception):
    """Whether a webhook answers cannot be seen at all; the message says why."""


class Probe:
    """Asks a webhook at one place, through the API server; made by `probing`."""

    def __init__(
        self, api: InstallApi, client: Mapping[str, object], namespaces: Namespaces
    ) -> None:
        self._api = api
        self._pod = f"deferred-quota-probe-{secrets.token_hex(8)}"
        self._entry = f"{self._pod}.deferredquota.io"
        self._registration = _registration(self._entry, self._pod, client)
        self._namespaces = namespaces
        self._turns = itertools.count()

    def obstacle(self) -> str:
        """Return why the webhook did not answer as it has to; empty when it did.

        Where no namespace is left it may answer as it likes.

        Raises:
            CannotProbeError: The caller may not try it.
            ApiError: The API server does not take the registration.
        """
        # each time: another installation may have put its own in this place
        self._api.apply(
            MUTATING_WEBHOOKS, self._registration, field_manager=FIELD_MANAGER, force=True
        )
        namespaces = self._namespaces()
        if not namespaces:
            return ""
        namespace = namespaces[next(self._turns) % len(namespaces)]
        try:
            self._api.bind(_binding(namespace, self._pod), namespace=namespace, dry_run=True)
        except ApiError as err:
            return self._judge(err, namespace)
        return _UNSEEN.format(namespace)

    def settled_obstacle(self, patience: RetryPolicy) -> str:
        """Return the obstacle as soon as the API server knows of the registration.

        Raises:
            CannotProbeError: It does not ask by it.
            ApiError: The API server does not answer.
        """
        wait = replace(patience, seconds=min(patience.seconds, _KNOWN_SECONDS)).begin()
        while (found := wait.retry(self.obstacle)).startswith(_UNSEEN.partition("{")[0]):
            if not wait.pause():
                raise CannotProbeError(found)
        return found

    def _judge(self, err: ApiError, namespace: str) -> str:
        denied = f'admission webhook "{self._entry}" denied the request: '
        if err.message == f'{denied}pods "{self._pod}" not found':
            return ""
        if self._entry in err.message:
            return err.message.rpartition(f'"{self._entry}"')[2].removeprefix(":").strip()
        if isinstance(err, ForbiddenError) and _NO_RIGHT in err.message:
            raise CannotProbeError(err.message) from err
        if isinstance(err, UnavailableError):
            raise err  # the API server itself does not answer
        return _UNSEEN.format(namespace)


@contextmanager
def probing(
    api: InstallApi, client: Mapping[str, object], namespaces: Namespaces
) -> Iterator[Probe]:
    """Yield a probe of a place, and remove its registration in the end.

    Args:
        client: A `clientConfig` with the webhook's path for changes.
        namespaces: Returns some that have opted in, and in which things can be made.
    """
    try:
        yield Probe(api, client, namespaces)
    finally:
        with contextlib.suppress(ApiError):
            remove_probe(api)


def remove_probe(api: ClusterApi) -> None:
    """Remove the registration of a probe, if one was left.

    Raises:
        ApiError: The API server refuses it.
    """
    with contextlib.suppress(NotFoundError):
        delete(api, MUTATING_WEBHOOKS, str(mapping(PROBE["metadata"], "metadata")["name"]))


def _registration(entry: str, pod: str, client: Mapping[str, object]) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
        "scope": "Namespaced",
    }
    return {
        **PROBE,
        "webhooks": [
            {
                "name": entry,
                "clientConfig": dict(client),
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": _SECONDS,
                "rules": [rule],
                "matchConditions": [{"name": "probe", "expression": f"request.name == '{pod}'"}],
            }
        ],
    }


def _binding(namespace: str, pod: str) -> Object:
    """A Binding without uid: the webhook has to look for the pod first."""
    return BINDINGS.make(
        {"name": pod, "namespace": namespace},
        target={"apiVersion": "v1", "kind": "Node", "name": pod},
    )
