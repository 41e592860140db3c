"""Whether the webhook answers reviews of any client that reaches its port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.jsonfields.fields import mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import VALIDATING_WEBHOOKS, NotFoundError, Object
from webhook.operations.deployments import COMPONENT_LABEL, DEPLOYMENTS, NAME_LABEL, WEBHOOK
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError
from webhook.operations.findings import Finding, Subject, information, subject_of
from webhook.operations.names import NETWORK_POLICIES
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import REGISTRATION

_LABELS: Final[Mapping[str, str]] = {NAME_LABEL: "deferred-quota", COMPONENT_LABEL: "webhook"}
_OTHER_PORTS: Final = ("ops", 8080)
_FORGED: Final = (
    "the webhook asks clients for no certificate, and any client that reaches its port can send it"
    " forged reviews, which reserve quota until they expire"
)


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
