"""Objects on a real API server, and its answers.

The builders of `tests.builders` make the objects; here is what a client needs besides: where they
are, and what the API server says.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from tests.builders import a_binding, a_container
from tests.controlplane.rest import Rest

Object = dict[str, Any]

MODE_LABEL: Final = "deferredquota.io/mode"
GATING_LABEL: Final = "deferredquota.io/gating"
GUARDED: Final = "deferredquota.io/guarded"
REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_DRY_RUN: Final = {"dryRun": "All"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered; of a success, the object.

    Attributes:
        code: The HTTP status.
        body: An object, or a Status that says what is wrong.
        warnings: The texts of the Warning headers.
    """

    code: int
    body: Object
    warnings: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether the request was done."""
        return self.code < 300

    @property
    def reason(self) -> str:
        """The reason of a refusal."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The words of a refusal."""
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """What a refusal lists: reason, field, message."""
        causes = self.body.get("details", {}).get("causes", [])
        return [(one.get("reason"), one.get("field"), one.get("message")) for one in causes]

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return str(self.body["metadata"]["uid"])

    @property
    def version(self) -> str:
        """The resourceVersion of the object."""
        return str(self.body["metadata"]["resourceVersion"])

    def __str__(self) -> str:
        return f"{self.code} {self.reason} {self.message}"


class Api:
    """An API server, as one user sees it. Refusals are answers, not exceptions."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        dry_run: bool = False,
        **query: str,
    ) -> Answer:
        """Send a request; `kind` is the content type."""
        asked = {**query, **(_DRY_RUN if dry_run else {})}
        sent = None if body is None else json.dumps(body).encode()
        whole = path + (f"?{urlencode(asked)}" if asked else "")
        reply = self.rest.exchange(method, whole, sent, kind)
        warnings = tuple(map(_warning, reply.headers.get_all("Warning", [])))
        return Answer(reply.status, _decoded(reply.body), warnings)

    def get(self, path: str) -> Answer:
        """Read an object or a list."""
        return self.call("GET", path)

    def create(self, path: str, obj: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """Create an object in a collection."""
        return self.call("POST", path, obj, dry_run=dry_run)

    def patch(self, path: str, patch: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """Change an object by a merge patch."""
        return self.call("PATCH", path, patch, kind=_MERGE, dry_run=dry_run)

    def patch_strategic(
        self, path: str, patch: Mapping[str, Any], *, dry_run: bool = False
    ) -> Answer:
        """Change an object by a patch that knows the keys of its lists."""
        return self.call("PATCH", path, patch, kind=_STRATEGIC, dry_run=dry_run)

    def delete(self, path: str, *, grace_seconds: int | None = None) -> Answer:
        """Delete an object; with 0 seconds, at once."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        return self.call("DELETE", path, options)


def _decoded(body: bytes) -> Any:
    """Read an answer; the API server's mux says in plain words what it does not serve (yet)."""
    try:
        return json.loads(body)
    except ValueError:
        return {"message": body.decode(errors="replace")}


def _warning(header: str) -> str:
    """Take the text out of a Warning header: a code, an agent, and the text in quotes."""
    return header.split(" ", 2)[2][1:-1]


def pods(namespace: str, name: str = "", subresource: str = "") -> str:
    """Give the path of the pods, of one, or of a part of one."""
    return "/".join(
        part for part in (f"/api/v1/namespaces/{namespace}/pods", name, subresource) if part
    )


def quotas(namespace: str, name: str = "", subresource: str = "") -> str:
    """Give the path of the quotas, of one, or of a part of one."""
    parts = (f"/api/v1/namespaces/{namespace}/resourcequotas", name, subresource)
    return "/".join(part for part in parts if part)


def ledger(namespace: str) -> str:
    """Give the path of a namespace's ledger."""
    return f"/apis/deferredquota.io/v1alpha1/namespaces/{namespace}/quotaledgers/ledger"


def a_namespace(name: str, *, mode: str = "deferred", gating: str = "never") -> Object:
    """Make a namespace, opted in unless `mode` is empty.

    Its pods get no gate unless `gating` is given, so that a test can bind them at once: "always"
    gates all of them, "auto" those for which little quota is free, and an empty one is what the
    configuration says, "auto" by default.
    """
    labels = {MODE_LABEL: mode, GATING_LABEL: gating}
    given = {label: value for label, value in labels.items() if value}
    return {"metadata": {"name": name, "labels": given}}


def bind(
    api: Api,
    namespace: str,
    pod: str,
    node: str,
    *,
    uid: str = "",
    version: str = "",
    legacy: bool = False,
    dry_run: bool = False,
) -> Answer:
    """Bind a pod, through `pods/binding` or the older `bindings`.

    `uid` and `version` are preconditions of storage; `bindings` drops them.
    """
    binding: Object = a_binding(pod, node, namespace=namespace, uid=uid)
    if version:
        binding["metadata"]["resourceVersion"] = version
    path = f"/api/v1/namespaces/{namespace}/bindings" if legacy else pods(namespace, pod, "binding")
    return api.create(path, binding, dry_run=dry_run)


def a_registration(
    name: str,
    namespace: str,
    port: int,
    *resources: str,
    group: str = "",
    operation: str = "UPDATE",
    certificates: Path | None = None,
    **fields: Any,
) -> Object:
    """Write down a webhook of somebody else's for what is done with objects of a namespace.

    Args:
        name: Of the registration, and with a domain of its only entry.
        port: Where it is on this machine.
        certificates: A directory with the CA of its certificate.
        fields: Further ones of the entry.
    """
    client = {"url": f"https://127.0.0.1:{port}/"}
    if certificates is not None:
        client["caBundle"] = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation]}
    entry = {
        "name": f"{name}.example.com",
        "clientConfig": client,
        "rules": [{**rule, "resources": resources}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "admissionReviewVersions": ["v1"],
        **fields,
    }
    return {"metadata": {"name": name}, "webhooks": [entry]}


def a_template(**spec: Any) -> Object:
    container = a_container(requests={"cpu": "1"})
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **spec}}
