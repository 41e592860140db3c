"""`scripts/trial`: installs in both ways, breaks each part by the runbook, prints the transcript.

There is no kubelet: what the Deployments would run are processes of this machine, behind the
address of the Service, with the rights of the service accounts. It fails where something does not
heal.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.install.chart import helm_program
from tests.e2e.cluster.kubelet import LOOPBACK_SERVICES, Kubelet
from tests.e2e.cluster.product import SYSTEM, Product
from tests.e2e.cluster.waiting import eventually
from tests.trial.transcript import ROOT, Transcript, TrialError
from tests.trial.walks import walks_table
from webhook.tls.issue import issue_ca

PAGE: Final = ROOT / "docs/operations/trial.md"
_HEAD: Final = """\
# A trial

What `scripts/trial` printed on {date}, on a real control plane (Kubernetes 1.36): installed in
both ways, each part broken as the [runbooks](runbooks.md) have it, and healed as the
[outage matrix](outages.md) says. There are nodes but no kubelets: what the Deployments run are
processes of the same machine, so pods are killed and started there, and mounted Secrets are there
sooner. A comment says for how long a command was repeated until it printed this.

"""
_SYSTEM: Final = f"-n {SYSTEM}"
_BOUND: Final = "kubectl -n team-a get pods --no-headers -o wide | grep -c node-"
_LEDGER: Final = "kubectl -n team-a get quotaledger --no-headers"


@dataclass
class Trial:
    """One installation that is broken and heals."""

    script: Transcript
    plane: ControlPlane
    kubelet: Kubelet
    directory: Path
    reinstall: str
    product: Product | None = None

    def carry_out(self) -> None:
        """Break each part."""
        self._begin()
        for part in (
            self._webhook,
            self._controller,
            self._api_server,
            self._bundle,
            self._other_bundle,
            self._secrets,
            self._garbage,
            self._rights,
            self._renew,
            self._change_ca,
            self._ledger,
            self._registration,
            self._emergency,
        ):
            part()

    def end_controller(self) -> None:
        """End the controller as its kubelet would: it gives its Lease back."""
        assert self.product is not None
        self.product.controller.terminate()

    def stop(self) -> None:
        """End the controller."""
        if self.product is not None:
            self.product.stop()

    def _begin(self) -> None:
        script = self.script
        product = Product(
            self.plane, self.directory / "own", webhooks=0, controllers=1, configuration={}
        )
        self.product = product
        product.controller.start()
        eventually(lambda: self.kubelet.server is not None, "the webhook runs", 180)
        script.until(f"kubectl {_SYSTEM} get deployments", r"controller +2/2(.|\n)*webhook +3/3")
        script.until(
            "deferred-quota certs status", r"steady(.|\n)* registered entries(?!(.|\n)*problem)"
        )
        script.text("A namespace with a quota, and a Deployment:")
        script.run("kubectl create namespace team-a")
        script.run("kubectl -n team-a create quota compute --hard=requests.cpu=4")
        script.until("deferred-quota enable team-a", "opted in")
        script.run("kubectl -n team-a apply -f tests/trial/web.yaml")
        self._scale(1)
        script.until(_LEDGER, "requests.cpu 1/4")

    def _scale(self, replicas: int, *, bound: int | None = None) -> None:
        """Let the Deployment have pods, and wait until so many of them have a node."""
        self.script.run(f"kubectl -n team-a scale deployment web --replicas={replicas}")
        wanted = replicas if bound is None else bound
        self.script.until(_BOUND, f"^{wanted}$")

    def _webhook(self) -> None:
        script = self.script
        script.title("The webhook is gone", 3)
        script.text(
            "All its processes are killed ([runbook](runbooks.md#deferredquotawebhookfails))."
        )
        assert self.kubelet.server is not None
        self.kubelet.server.kill()
        script.run("kubectl -n team-a scale deployment web --replicas=2")
        script.until(
            "kubectl -n team-a get events --no-headers -o custom-columns=M:.message"
            " | grep 'failed calling webhook' | tail -n 1",
            "failed calling webhook",
        )
        script.run("deferred-quota doctor 2>&1 | grep -E -A1 '^(error|warn)' | head -n 2")
        script.text("They are started again:")
        self.kubelet.server.start()
        script.until(_BOUND, "^2$")
        script.until(_LEDGER, "requests.cpu 2/4")

    def _controller(self) -> None:
        script = self.script
        assert self.product is not None
        script.title("The controller is gone", 3)
        script.text(
            "Killed ([runbook](runbooks.md#deferredquotanoleader)): binds go on, and what ends is"
            " not counted."
        )
        self.product.controller.kill()
        self._scale(3)
        self._scale(2)
        script.run(_LEDGER)
        script.text("Started again:")
        self.product.controller.start(waits=False)
        script.until(_LEDGER, "requests.cpu 2/4")

    def _api_server(self) -> None:
        script = self.script
        script.title("The API server is restarted", 3)
        script.text("It is ended and started; nothing is to be done.")
        self.plane.apiserver.restart()
        self._scale(3)
        script.until(_LEDGER, "requests.cpu 3/4")
        self._scale(2)
        script.until(_LEDGER, "requests.cpu 2/4")

    def _bundle(self) -> None:
        script = self.script
        script.title("The caBundle is wiped", 3)
        script.run(
            "kubectl patch validatingwebhookconfiguration deferred-quota --type=json"
            """ -p '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]'"""
        )
        script.until("deferred-quota certs status | grep -c ^problem", r"^0$")

    def _other_bundle(self) -> None:
        script = self.script
        assert self.product is not None
        script.title("The caBundle is another CA's", 3)
        script.text(
            "And no controller runs that would write it"
            " ([runbook](runbooks.md#deferredquotacertificatenotverified)):"
        )
        self.product.controller.kill()
        script.run(
            "kubectl get validatingwebhookconfiguration deferred-quota -o json"
            """ | sed "s|\\"caBundle\\": .*|\\"caBundle\\": \\"$OTHER_CA\\",|\""""
            " | kubectl replace -f -"
        )
        script.run("deferred-quota doctor 2>&1 | grep -A1 certificate.not-trusted")
        script.run("deferred-quota certs inject | head -n 1")
        script.until("deferred-quota certs status | grep -c ^problem", r"^0$")
        self.product.controller.start(waits=False)
        self._scale(3)
        self._scale(2)

    def _secrets(self) -> None:
        script = self.script
        script.title("Secrets are lost", 3)
        script.run(f"kubectl {_SYSTEM} delete secret deferred-quota-tls")
        script.until("deferred-quota certs status", r"phase +steady(?!(.|\n)*problem)")
        script.run(f"kubectl {_SYSTEM} delete secret deferred-quota-ca deferred-quota-tls")
        script.until("deferred-quota certs status", r"phase(?!(.|\n)*problem)")
        self._scale(3)
        self._scale(2)

    def _garbage(self) -> None:
        script = self.script
        script.title("The certificate is garbage", 3)
        script.text(
            "[Runbook](runbooks.md#deferredquotacertificaterefused): the former one is served on,"
            " and replaced."
        )
        script.run(
            f"kubectl {_SYSTEM} patch secret deferred-quota-tls"
            """ -p '{"data": {"tls.crt": "Z2FyYmFnZQ=="}}'"""
        )
        script.until("deferred-quota certs status", r"phase(?!(.|\n)*problem)")
        self._scale(3)
        self._scale(2)

    def _rights(self) -> None:
        script = self.script
        script.title("Rights are missing", 3)
        script.text(
            "[Runbook](runbooks.md#deferredquotarotationfails): an event says so, and they are"
            " installed again."
        )
        script.run(f"kubectl {_SYSTEM} delete rolebinding deferred-quota-rotation")
        script.until(
            f"kubectl {_SYSTEM} get events --field-selector reason=CertificatesNotKept --no-headers"
            " -o custom-columns=M:.message",
            "forbidden",
        )
        script.run(f"{self.reinstall} | tail -n 1")
        script.run(f"kubectl {_SYSTEM} get rolebinding deferred-quota-rotation -o name")

    def _renew(self) -> None:
        script = self.script
        script.title("The certificate is to be another one", 3)
        script.text("As where it ends soon ([runbook](runbooks.md#deferredquotacertificateends)):")
        script.run("deferred-quota certs renew")
        script.until("deferred-quota certs status", r"phase(?!(.|\n)*problem)")
        self._scale(3)
        self._scale(2)

    def _change_ca(self) -> None:
        script = self.script
        script.title("The CA is to be another one", 3)
        script.text(
            "As where it ends ([runbook](runbooks.md#deferredquotacertificateauthorityends)):"
        )
        script.run("deferred-quota certs rotate-ca")
        script.until("deferred-quota certs status", r"phase +publish(?!(.|\n)*problem)")
        self._scale(3)
        self._scale(2)

    def _ledger(self) -> None:
        script = self.script
        script.title("A ledger is deleted", 3)
        script.text(
            "[Runbook](runbooks.md#deferredquotaledgerrepaired): it is counted anew from the pods."
        )
        script.until(_LEDGER, "requests.cpu 2/4")
        script.run("kubectl -n team-a delete quotaledger ledger")
        script.until(_LEDGER, "requests.cpu 2/4")

    def _registration(self) -> None:
        script = self.script
        script.title("The registration of the guard is deleted", 3)
        script.text(
            "[Runbook](runbooks.md#deferredquotanotguarded): the mask still stands, so that nothing"
            " enforces the quota until the registration is back; an event says so."
        )
        script.run("kubectl delete validatingwebhookconfiguration deferred-quota")
        script.until(
            "kubectl -n team-a get events --field-selector reason=NotEnforced --no-headers"
            " -o custom-columns=M:.message | tail -n 1",
            r"\w+ \w+",
        )
        script.run("deferred-quota doctor 2>&1 | grep -A1 '^error' | head -n 2")
        script.run(f"{self.reinstall} | tail -n 1")
        script.until("deferred-quota certs status | grep -c ^problem", r"^0$")
        script.until("deferred-quota doctor 2>&1 | tail -n 1", "error: 0")
        self._scale(3)
        self._scale(2)

    def _emergency(self) -> None:
        script = self.script
        script.title("Webhook and controller are gone, and binds have to go on", 3)
        script.text("[Emergency](emergency.md).")
        assert self.product is not None
        assert self.kubelet.server is not None
        for process in (self.kubelet.server, self.product.controller):
            process.kill()
        script.run("deferred-quota emergency open --yes")
        self._scale(3)
        script.text("Both run again:")
        self.product.controller.start(waits=False)
        self.kubelet.server.start()
        script.until("deferred-quota emergency close --yes", "in force")
        script.until(_LEDGER, "requests.cpu 3/4")
        self._scale(5, bound=4)
        script.until(_LEDGER, "requests.cpu 4/4")
        script.run("deferred-quota doctor 2>&1 | tail -n 1")


def trial(name: str, directory: Path, say: Callable[[str], None]) -> str:
    """Install in one of both ways, break and remove it; return the transcript.

    Raises:
        TrialError: Something does not heal.
    """
    chart = f"quota charts/deferred-quota {_SYSTEM}"
    install, again, remove = {
        "kustomize": (
            "kubectl apply -k manifests/overlays/default --server-side",
            "kubectl apply -k manifests/overlays/default --server-side",
            "scripts/uninstall --yes | tail -n 1",
        ),
        "chart": (
            f"helm install {chart} --create-namespace",
            f"helm upgrade {chart}",
            f"helm uninstall quota {_SYSTEM} | tail -n 1",
        ),
    }[name]
    with ControlPlane.start(directory / "plane", apiserver_flags=LOOPBACK_SERVICES) as plane:
        plane.add_nodes(3)
        path = [
            plane.kubectl_program.parent,
            helm_program().parent,
            ROOT / ".venv/bin",
            "/usr/bin:/bin",
        ]
        environment = {
            "KUBECONFIG": str(plane.kubeconfig()),
            "PATH": ":".join(map(str, path)),
            "OTHER_CA": base64.b64encode(issue_ca(now=datetime.now(UTC)).certificate).decode(),
        }
        script = Transcript(environment, say)
        script.title({"kustomize": "By kustomize", "chart": "By the chart"}[name])
        if name == "kustomize":
            script.text(
                "The overlay is for every version of Kubernetes. What `doctor` warns of below is"
                " the policy that it lacks for that, about"
                " [device claims](../versions.md#device-claims)."
            )
        script.until(f"{install} | tail -n 3", "serverside-applied|created|deployed|Opt")
        kubelet = Kubelet(plane, directory / "kubelet")
        made = Trial(script, plane, kubelet, directory, again)
        with kubelet:
            try:
                made.carry_out()
                script.title("Removal", 3)
                script.run("deferred-quota disable team-a --yes")
                script.text("The controller ends with its Deployment:")
                made.end_controller()
                script.run(remove)
                script.until(
                    "kubectl -n team-a get quota compute --no-headers", "requests.cpu: [45]/4"
                )
            except BaseException:
                say(script.whole())
                raise
            finally:
                made.stop()
        return script.whole()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="scripts/trial", description=__doc__)
    parser.add_argument("ways", nargs="*", default=["kustomize", "chart"])
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    given = parser.parse_args(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}] {line}", file=sys.stderr, flush=True)

    parts = []
    for way in given.ways:
        with tempfile.TemporaryDirectory(prefix="trial-") as directory:
            parts.append(trial(way, Path(directory), say))
    text = _HEAD.format(date=time.strftime("%d %B %Y").lstrip("0"))
    text += walks_table() + "\n" + "\n".join(parts)
    if given.write:
        PAGE.write_text(text.rstrip("\n") + "\n")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrialError as err:
        sys.exit(f"trial: {err}")
