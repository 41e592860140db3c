"""What kubelets would do for an installation: pods get ready and end, a Service leads to them.

The addresses of Services are those of the loopback device, where the test can listen itself. One
webhook stands for all replicas; the controllers only look as if they ran.
"""

from __future__ import annotations

import base64
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.controlplane.plane import ControlPlane
from tests.controlplane.ports import free_ports
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, Server, is_ready
from webhook.atomic_file import write_file
from webhook.state.well_known import TLS_SECRET
from webhook.tls.files import KEY_MODE

LOOPBACK_SERVICES: Final = ("--service-cluster-ip-range=127.96.0.0/16",)
"""Flags of an API server whose Services can be listened for."""

_SERVICE: Final = f"/api/v1/namespaces/{SYSTEM}/services/deferred-quota-webhook"
_SECRET: Final = f"/api/v1/namespaces/{SYSTEM}/secrets/deferred-quota-tls"
_PODS: Final = f"/api/v1/namespaces/{SYSTEM}/pods"
_COMPONENT: Final = "app.kubernetes.io/component"


def mount(api: Api, directory: Path) -> bool:
    """Write the files of the Secret, where they differ from what is there; False without one."""
    data = api.get(_SECRET).body.get("data", {})
    for name in ("tls.key", "tls.crt", "ca.crt"):
        path, content = directory / name, base64.b64decode(data.get(name, ""))
        if content and (not path.exists() or path.read_bytes() != content):
            write_file(path, content, mode=KEY_MODE)
    return bool(data)


class Kubelet:
    """Runs pods of the product's namespace while it is entered.

    Args:
        is_serving: Whether the webhook runs; else its pods get ready, and nothing answers.
    """

    def __init__(self, plane: ControlPlane, directory: Path, *, is_serving: bool = True) -> None:
        self.certificates = directory / "mounted"
        self.certificates.mkdir(parents=True, exist_ok=True)
        self.server: Server | None = None
        self._plane, self._directory, self._is_serving = plane, directory, is_serving
        self._api = Api(plane.rest_as("admin"))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        if self.server is not None:
            self.server.kill()
        if self._failure is not None and kind is None:
            raise self._failure

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            try:
                for pod in self._api.get(_PODS).body.get("items", []):
                    self._see_to(pod)
                if self.server is not None:
                    mount(self._api, self.certificates)
                self._failure = None
            except Exception as err:  # noqa: BLE001 - a kubelet goes on; the last one is raised
                self._failure = err

    def _see_to(self, pod: dict[str, Any]) -> None:
        path = f"{_PODS}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            self._api.delete(path, grace_seconds=0)
            return
        if "nodeName" not in pod["spec"] or pod["status"].get("phase") == "Running":
            return
        is_webhook = pod["metadata"]["labels"].get(_COMPONENT) == "webhook"
        if is_webhook and self._is_serving and self.server is None:
            self.server = self._start()
        conditions = [
            {"type": name, "status": "True"} for name in ("Initialized", "ContainersReady", "Ready")
        ]
        status = {"phase": "Running", "conditions": conditions, "podIP": "192.0.2.1"}
        self._api.patch_strategic(f"{path}/status", {"status": status})

    def _start(self) -> Server:
        mount(self._api, self.certificates)
        address = self._api.get(_SERVICE).body["spec"]["clusterIP"]
        (ops,) = free_ports(1)
        command: list[str | Path] = [sys.executable, "-m", "webhook", "serve"]
        command += [
            "--kubeconfig",
            self._plane.service_account_kubeconfig(SYSTEM, "deferred-quota-webhook"),
        ]
        command += ["--certs", self.certificates, "--certs-secret", TLS_SECRET]
        command += ["--listen", f"{address}:443"]
        command += ["--name", f"deferred-quota-webhook.{SYSTEM}.svc"]  # it is in no pod
        server = Server(
            "webhook-inside",
            [*command, "--ops", f"127.0.0.1:{ops}"],
            self._directory / "webhook-inside.log",
            is_ready(ops),
            {"POD_NAME": "webhook-inside", "POD_NAMESPACE": SYSTEM},
            port=443,
            ops_port=ops,
        )
        try:
            server.start()
        except BaseException:
            server.kill()  # else the next attempt finds its port taken
            raise
        return server
