"""A server that decides on a fake cluster."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from webhook.admission.serving.server_settings import ServerParts
from webhook.config import Configuration, ConfigurationFile
from webhook.fakecluster.admission import webhook_configurations
from webhook.fakecluster.admission.chain import AdmissionChain
from webhook.fakecluster.admission.webhook_client import WebhookCaller
from webhook.fakecluster.manifests.loading import with_defaults
from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.fields import mapping
from webhook.kube.api import NAMESPACES, find_object
from webhook.runtime.engine import Engine, EngineOptions
from webhook.runtime.server_parts import server_parts
from webhook.telemetry.metrics import Metrics


def embedded_server(
    cluster: FakeCluster,
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
    engine = Engine(FakeClient(cluster), metrics, EngineOptions(configuration))
    listeners = {}
    if webhook_url:
        gating = (Configuration() if configuration is None else configuration.current).gating
        chain = AdmissionChain(
            webhook_configurations.webhooks(webhook_url, gating=gating),
            WebhookCaller(ca_pem),
            namespace_labels=partial(_namespace_labels, FakeClient(cluster)),
            defaults=with_defaults,
        )
        listeners = {"api": ApiServer(cluster, chain)}
    return server_parts(engine, metrics, listeners)


def _namespace_labels(client: FakeClient, namespace: str) -> Mapping[str, str]:
    found = find_object(client, NAMESPACES, namespace) or {}
    labels = mapping(mapping(found.get("metadata"), "metadata").get("labels"), "metadata.labels")
    return {name: str(value) for name, value in labels.items()}
