"""A server that decides on a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from webhook.admission.serving.settings import ServerParts
from webhook.cluster.api import NAMESPACES, NotFoundError
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.config import Configuration, ConfigurationFile
from webhook.embedded import registration
from webhook.embedded.admission import AdmissionChain
from webhook.embedded.apiserver import ApiServer
from webhook.embedded.calls import WebhookCaller
from webhook.embedded.snapshots import with_defaults
from webhook.quota.fields import mapping
from webhook.runtime.engine import Engine, EngineOptions
from webhook.runtime.parts import server_parts
from webhook.telemetry.metrics import Metrics


def embedded_server(
    cluster: MemoryCluster,
    configuration: ConfigurationFile | None,
    *,
    webhook_url: str = "",
    ca_pem: str = "",
) -> ServerParts:
    """Build what a server with an embedded cluster runs.

    Args:
        cluster: The cluster to decide on.
        configuration: The file to keep up with; None means the defaults.
        webhook_url: Where this very webhook serves, if the cluster is to be served as well, as
            `api`: its writes are then asked of the webhook.
        ca_pem: The CA that signed the webhook's certificate.
    """
    metrics = Metrics()
    engine = Engine(MemoryClient(cluster), metrics, EngineOptions(configuration))
    listeners = {}
    if webhook_url:
        pacing = (Configuration() if configuration is None else configuration.current).pacing
        chain = AdmissionChain(
            registration.hooks(webhook_url, pacing=pacing),
            WebhookCaller(ca_pem),
            namespace_labels=partial(_namespace_labels, MemoryClient(cluster)),
            defaults=with_defaults,
        )
        listeners = {"api": ApiServer(cluster, chain)}
    return server_parts(engine, metrics, listeners)


def _namespace_labels(client: MemoryClient, namespace: str) -> Mapping[str, str]:
    try:
        found = client.get(NAMESPACES, namespace)
    except NotFoundError:
        return {}
    labels = mapping(mapping(found.get("metadata"), "metadata").get("labels"), "metadata.labels")
    return {name: str(value) for name, value in labels.items()}
