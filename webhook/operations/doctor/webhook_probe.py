"""Whether the webhook answers at a bind, as it has to, and which clients reach its port.

A bind of a pod that does not exist is tried by a dry run. The API server asks the webhooks that
validate before it looks for the pod, and the handler answers as storage would where there is no
such pod: it charges nothing, and keeps nothing. Whose words the refusal is in says how far it came.
Where no namespace has opted in, a cluster quota that the webhook refuses is tried instead: it
passes the dry run where the webhook does not answer.

Clients are judged by the port of a webhook outside of the cluster, which is asked without a
certificate; inside, by the arguments of its Deployments and by NetworkPolicies.

Source: kubernetes v1.36, pkg/registry/core/pod/storage/storage.go BindingREST.Create;
apiserver/pkg/admission/plugin/webhook/errors/statuserror.go ToStatusErr.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import uuid4

from webhook.jsonfields.fields import mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    BINDINGS,
    CLUSTER_DEFERRED_QUOTAS,
    PODS,
    VALIDATING_WEBHOOKS,
    ApiError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Object,
    RequestTimeoutError,
    UnavailableError,
)
from webhook.operations.deployments import COMPONENT_LABEL, DEPLOYMENTS, NAME_LABEL, WEBHOOK
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError, ResourceAttributes
from webhook.operations.findings import (
    Finding,
    Severity,
    Subject,
    error,
    information,
    subject_of,
    warning,
)
from webhook.operations.names import NETWORK_POLICIES, STAMP_ENTRY
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import BIND_ENTRY, KNOWN_CLIENTS_ONLY, REGISTRATION

_SUBJECT: Final = Subject(VALIDATING_WEBHOOKS.kind, REGISTRATION)
_PREFIX: Final = "deferred-quota-doctor-"
_DENIED: Final = f'admission webhook "{BIND_ENTRY}" denied the request: '
_NOT_CALLED: Final = "failed calling webhook"
_ASKED: Final = (BIND_ENTRY, STAMP_ENTRY)
"""The entries that may be asked about a bind. The second one is not, where its condition stands."""
_SHOW_CERTIFICATE: Final = (
    "Every API server needs an AdmissionConfiguration whose kubeConfigFile names a certificate that"
    " `serve --client-ca` accepts (docs/client-auth.md); until then, run the webhook without"
    " --client-ca."
)
_NO_RIGHT: Final = 'cannot create resource "pods/binding"'
_LABELS: Final[Mapping[str, str]] = {NAME_LABEL: "deferred-quota", COMPONENT_LABEL: "webhook"}
_OTHER_PORTS: Final = ("ops", 8080)
_FORGED: Final = (
    "the webhook asks clients for no certificate, and any client that reaches its port can send it"
    " forged reviews, which reserve quota until they expire"
)


def answers(scene: CheckContext) -> Iterator[Finding]:
    """Try a bind in a namespace that has opted in, if there is one and the webhook is registered.

    Raises:
        NoRightError: The caller may not bind pods.
        UnavailableError: The API server itself does not answer.
    """
    if scene.settings.is_offline or not _is_registered(scene) or scene.emergency().is_begun:
        return
    # one that is only assumed to have opted in has not got the label by which webhooks are asked
    opted_in = [
        one for one in scene.deferred_namespaces() if one.name not in scene.settings.assumed
    ]
    if not opted_in:
        yield from _about_cluster_quota(scene)
        return
    namespace, pod = opted_in[0].name, f"{_PREFIX}{secrets.token_hex(8)}"
    try:
        scene.api.bind(_binding(namespace, pod), namespace=namespace, dry_run=True)
    except UnavailableError:
        raise
    except ApiError as err:
        yield from _judged(scene, err, namespace, pod)


def _about_cluster_quota(scene: CheckContext) -> Iterator[Finding]:
    """Try a cluster quota that only the webhook refuses: where it does not answer, it passes.

    Raises:
        NoRightError: The caller may not create cluster quotas.
        UnavailableError: The API server itself does not answer.
    """
    raw = CLUSTER_DEFERRED_QUOTAS.make(
        {"name": f"{_PREFIX}{secrets.token_hex(8)}"},
        spec={"namespaceSelector": {"matchLabels": {_PREFIX: "none"}}, "hard": {"pods": "1"}},
    )
    try:
        scene.api.create(CLUSTER_DEFERRED_QUOTAS, raw, dry_run=True)
    except InvalidError:
        return  # as it has to be
    except NotFoundError:
        return  # their definition is missing, which has a check of its own
    except ForbiddenError as err:
        attributes = ResourceAttributes("create", CLUSTER_DEFERRED_QUOTAS, "")
        raise NoRightError(attributes, err.message, severity=Severity.INFO) from err
    except RequestTimeoutError as err:
        yield error("webhooks.silent", _SUBJECT, f"does not answer: {err.message}", _look(scene))
        return
    place = scene.asked_at() or "its Service"
    yield error(
        "webhooks.silent",
        _SUBJECT,
        f"the webhook does not answer at {place}: a cluster quota that it refuses passed a dry run",
        _look(scene),
    )


def _is_registered(scene: CheckContext) -> bool:
    return BIND_ENTRY in [each.text("name") for each in scene.entries(VALIDATING_WEBHOOKS)]


def _binding(namespace: str, pod: str) -> Object:
    """A Binding like a scheduler's, to a node that is not there either."""
    return BINDINGS.make(
        # with a uid that no pod has: not even a pod of that name could be bound
        {"name": pod, "namespace": namespace, "uid": str(uuid4())},
        target={"apiVersion": "v1", "kind": "Node", "name": pod},
    )


def _judged(scene: CheckContext, err: ApiError, namespace: str, pod: str) -> Iterator[Finding]:
    missing = f'pods "{pod}" not found'
    words = err.message
    if words == _DENIED + missing:
        return  # as it has to be
    silent = [name for name in _ASKED if f'{_NOT_CALLED} "{name}"' in words]
    if silent and _is_about_certificates(words):
        message = f"{silent[0]} refuses the API server: {words}"
        yield error("webhooks.client-refused", _SUBJECT, message, _SHOW_CERTIFICATE)
    elif silent or isinstance(err, RequestTimeoutError):
        message = f"{silent[0] if silent else BIND_ENTRY} does not answer: {words}"
        yield error("webhooks.silent", _SUBJECT, message, _look(scene))
    elif _DENIED in words:
        decided = words.partition(_DENIED)[2]
        message = f"{BIND_ENTRY} answers, and cannot decide about a bind in {namespace}: {decided}"
        yield warning("webhooks.undecided", _SUBJECT, message, "Look at the webhook's log.")
    elif isinstance(err, NotFoundError) and words == missing:
        yield error(
            "webhooks.unasked",
            _SUBJECT,
            f"{BIND_ENTRY} is not asked about a bind in {namespace}, or lets it pass unseen: the"
            " API server looked for the pod itself",
            "See the other findings about it; it may also run with another configuration, which"
            " exempts the namespace.",
        )
    elif isinstance(err, ForbiddenError) and _NO_RIGHT in words:
        raise NoRightError(
            ResourceAttributes("create", PODS, namespace, subresource="binding"),
            words,
            severity=Severity.INFO,
            remedy="Run it as an administrator. Do not grant that right for this: with it a user"
            " may bind pods.",
        ) from err
    else:
        message = f"whether {BIND_ENTRY} answers cannot be seen, a bind comes to nothing: {words}"
        yield warning(
            "webhooks.unseen", _SUBJECT, message, "Look at the component that the message is from."
        )


def _is_about_certificates(words: str) -> bool:
    """Return whether the webhook takes the API server for another client; TLS has its own words."""
    return KNOWN_CLIENTS_ONLY in words or ("remote error: tls:" in words and "certificate" in words)


def _look(scene: CheckContext) -> str:
    return (
        "Is it running, and can the API server reach it there? kubectl get pods -n"
        f" {scene.settings.system_namespace}; outside of the cluster, wherever it was started."
    )


# -- the port ------------------------------------------------------------------------------


def port(scene: CheckContext) -> Iterator[Finding]:
    """Try the port of a webhook outside of the cluster; else see which pods may reach that inside.

    Raises:
        NoRightError: NetworkPolicies may not be listed.
        NotInSnapshotError: A snapshot has none.
    """
    place = scene.asked_at()
    if place is None:
        return
    if place:
        is_open = not scene.settings.is_offline and scene.settings.answers_all(place)
        if is_open:
            yield information(
                "webhooks.open",
                Subject(VALIDATING_WEBHOOKS.kind, REGISTRATION),
                f"{place} answered without a client certificate: {_FORGED}",
                "Let only the API servers reach it, with a firewall, or answer only those:"
                " serve --client-ca (docs/client-auth.md).",
            )
        return
    webhooks = [each for each in _deployments(scene) if _is_webhook(each)]
    if webhooks and not all(map(_asks_for_certificates, webhooks)) and not _is_closed(scene):
        yield information(
            "webhooks.open",
            Subject("Service", WEBHOOK, scene.settings.system_namespace),
            f"no NetworkPolicy says who may connect to the webhook: {_FORGED}",
            "Adapt manifests/components/network-policy: write the addresses of the API servers in"
            " as the only ones from which its port is reached; or let the API servers show a"
            " certificate (docs/client-auth.md).",
        )


def _deployments(scene: CheckContext) -> tuple[Object, ...]:
    try:
        return scene.objects(DEPLOYMENTS, namespace=scene.settings.system_namespace)
    except (NoRightError, NotInSnapshotError):
        return ()  # the check of the Deployments says so


def _is_webhook(deployment: Object) -> bool:
    return subject_of(DEPLOYMENTS, deployment).name == WEBHOOK


def _asks_for_certificates(deployment: Object) -> bool:
    """Return whether clients of every container that serves have to show a certificate."""
    pod = FieldReader(deployment).child("spec").child("template").child("spec")
    arguments = [each.strings("args") for each in pod.children("containers")]
    serving = [each for each in arguments if "serve" in each]
    return bool(serving) and all(
        any(argument.split("=", 1)[0] == "--client-ca" for argument in each) for each in serving
    )


def _is_closed(scene: CheckContext) -> bool:
    """Return whether network policies name the clients that may connect to the webhook."""
    try:
        policies = scene.objects(NETWORK_POLICIES, namespace=scene.settings.system_namespace)
    except NotFoundError:
        return False
    selecting = [raw for raw in policies if _isolates(FieldReader(raw))]
    return bool(selecting) and not any(map(_admits_all_clients, selecting))


def _isolates(policy: FieldReader) -> bool:
    spec = policy.child("spec")
    types = spec.strings("policyTypes") or ("Ingress",)
    return "Ingress" in types and WebhookSelector.read(spec.child("podSelector")).matches(_LABELS)


def _admits_all_clients(policy: Object) -> bool:
    rules = sequence(mapping(policy.get("spec"), "spec").get("ingress"), "spec.ingress")
    return any(_is_open(mapping(rule, "spec.ingress[]")) for rule in rules)


def _is_open(rule: Mapping[str, object]) -> bool:
    """Return whether a rule names no client, and is about the port of reviews."""
    named = sequence(rule.get("ports"), "spec.ingress[].ports")
    ports = [mapping(each, "spec.ingress[].ports[]").get("port") for each in named]
    return not rule.get("from") and (not ports or any(each not in _OTHER_PORTS for each in ports))
