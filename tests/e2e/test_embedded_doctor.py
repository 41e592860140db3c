"""The bind that the doctor tries, at the real handler: on the fake cluster, over HTTP and TLS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_quota
from tests.cli.clusters import write_kubeconfig
from tests.e2e.embedded import Embedded, serving
from tests.e2e.harness import eventually
from webhook.cli import cli

REGISTRATION = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "deferred-quota"},
    "webhooks": [{"name": "bind.deferredquota.io"}],
}
SNAPSHOT = (a_namespace("team-a"), a_quota("compute"), REGISTRATION)
LEDGER = "/apis/deferredquota.io/v1alpha1/namespaces/team-a/quotaledgers/ledger"


def is_counted(server: Embedded) -> bool:
    found = server.api("GET", LEDGER)
    return found.status == 200 and "quotas" in json.loads(found.body).get("status", {})


def test_the_webhook_answers_and_charges_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, SNAPSHOT) as server:
        port = server.webhook.announcement["listeners"]["api"]["port"]
        kubeconfig = write_kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
        assert eventually(lambda: is_counted(server))
        before = json.loads(server.api("GET", LEDGER).body)
        arguments = ["doctor", "--kubeconfig", str(kubeconfig), "--pause", "0", "-o", "json"]
        found: Any = json.loads(CliRunner().invoke(cli, arguments).stdout)
        assert "answers" in found["checked"]
        ids = {each["id"] for each in found["findings"]}
        assert ids.isdisjoint(
            {"webhooks.silent", "webhooks.unasked", "webhooks.undecided", "webhooks.unseen"}
        )
        assert json.loads(server.api("GET", LEDGER).body)["status"] == before["status"]
        told = [json.loads(line) for line in server.webhook.log.read_text().splitlines()]
    (decided,) = [each for each in told if "deferred-quota-doctor-" in json.dumps(each)]
    assert (decided["level"], decided["code"]) == ("info", 404)
