"""The product as it is deployed, but as processes of this machine: webhooks and controllers.

```
with Product.start(plane, tmp_path, webhooks=2) as product:
    product.webhooks[0].kill()
    product.controller.pause()
```

Everything is as `manifests/` have it, rights included: each process calls the API server with the
token of its service account. Only the registrations differ: they have a URL instead of a Service.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.controlplane.features import POLICIES, serves
from tests.controlplane.plane import ControlPlane
from tests.controlplane.ports import free_ports
from tests.controlplane.process import Process
from tests.controlplane.roundrobin import RoundRobin
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.e2e.harness import make_certificates
from webhook.config import Configuration, ReclaimMode, load_configuration
from webhook.install import Mask, render
from webhook.install.policies import Form
from webhook.kube.api import VALIDATING_WEBHOOKS
from webhook.operations.creation import CreationRules
from webhook.state.feature_gates import PROBE_MINOR
from webhook.state.well_known import DEFAULT_NAMESPACE, LEADER_LEASE, REGISTRATION
from webhook.tls.called_names import REGISTRATIONS

SYSTEM: Final = DEFAULT_NAMESPACE
_PROBE: Final = "deferred-quota-probe"
_CONFIGURATION: Final = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}


@dataclass(eq=False)
class Server(Process):
    """A process of the product.

    Attributes:
        port: Where reviews are answered; 0 of a controller.
        ops_port: Where probes and metrics are.
    """

    port: int = 0
    ops_port: int = 0

    def ops(self, path: str) -> tuple[int, str]:
        """Get a page of the operations port."""
        return _get(self.ops_port, path)

    def reasons(self) -> list[str]:
        """Return why it is not ready; nothing where it is, or says nothing yet."""
        try:
            status, body = self.ops("/readyz")
        except OSError:
            return []
        found: list[str] = json.loads(body).get("reasons", []) if status == 503 else []
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Sum the values of a metric over all series that have these labels."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        total = 0.0
        for line in self.ops("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            found, _, inside = series.rstrip("}").partition("{")
            if found == f"deferred_quota_{name}" and wanted <= set(inside.split(",")):
                total += float(value)
        return total


def _same(server: Server) -> Server:
    return server


class Product:
    """The product, running on a control plane; made with `start`.

    Attributes:
        webhooks: Admission servers; they keep their ports when they are restarted.
        controllers: Controllers, of which one leads; none if the webhooks are that too.
        front: Shares connections out among the webhooks.
        url: Where the API server calls.
    """

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        *,
        webhooks: int,
        controllers: int,
        configuration: Mapping[str, Any],
        direct: bool = False,
        namespace: str = SYSTEM,
        serving: Sequence[str | Path] = (),
    ) -> None:
        self._serving = serving
        directory.mkdir(parents=True, exist_ok=True)
        self.plane, self.directory, self.namespace = plane, directory, namespace
        self.certificates = make_certificates(directory / "certs")
        self.configuration_file = directory / "config.yaml"
        self.configuration_file.write_text(json.dumps({**_CONFIGURATION, **configuration}))
        self._webhook_access = plane.service_account_kubeconfig(namespace, "deferred-quota-webhook")
        self._controller_access = plane.service_account_kubeconfig(
            namespace, "deferred-quota-controller"
        )
        self._admin = plane.kubeconfig()
        self.webhooks = [self._webhook(number, controllers == 0) for number in range(webhooks)]
        self.controllers = [self._controller(number) for number in range(controllers)]
        self.front = RoundRobin([server.port for server in self.webhooks])
        port = self.webhooks[0].port if direct else self.front.port
        self.url = f"https://127.0.0.1:{port}"

    @classmethod
    def start(
        cls,
        plane: ControlPlane,
        directory: Path,
        *,
        webhooks: int = 1,
        controllers: int = 1,
        mask: Mask | None = None,
        creation: Form = "webhook",
        configuration: Mapping[str, Any] | None = None,
        direct: bool = False,
        serving: Sequence[str | Path] = (),
    ) -> Self:
        """Install it, start it, and wait until the API server asks it.

        Args:
            plane: A control plane on which it does not run yet.
            directory: For certificates and logs.
            webhooks: How many admission servers; the API server's connections go to them in turn.
            controllers: How many controllers; with 0 the webhooks are `--with-controller`.
            mask: Who hides deferred resources from the API server's own check; itself, if it can.
            creation: What decides about new pods: policies, or the webhook.
            configuration: Fields of the configuration file.
            direct: Let the API server call the first webhook itself, as behind a Service: `front`
                copies every byte.
            serving: Further arguments of the admission servers.
        """
        given = configuration or {}
        mask = mask or usual_mask(plane)
        judges_nodes = given.get("nodeFit", "Off") != "Off"
        parts = render(url="https://127.0.0.1:1", judges_nodes=judges_nodes)
        apply(plane, (*parts.cluster, *parts.node_fit))
        wait_for_ledgers(plane)
        product = cls(
            plane,
            directory,
            webhooks=webhooks,
            controllers=controllers,
            configuration=given,
            direct=direct,
            serving=serving,
        )
        try:
            product.forget_registrations()
            product.start_processes()
            ca = (product.certificates / "ca.crt").read_bytes()
            extended = given.get("deferredResources", ())
            elastic = given.get("elastic", {})
            wanted = render(
                url=product.url,
                ca_pem=ca,
                mask=mask,
                deferred_resources=extended,
                gating=given.get("gating", Configuration().gating),
                creation=_creation_rules(given) if creation == "policy" else None,
                judges_nodes=judges_nodes,
                reclaim=ReclaimMode(elastic.get("reclaim", {}).get("mode", "Plan")),
            )
            apply(plane, _as_by_service(wanted.objects) if direct else wanted.objects)
            product.wait_until_registration_is_read()
            product.wait_until_asked(is_masked=mask != "none")
        except BaseException:
            product.stop()
            raise
        return product

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def controller(self) -> Server:
        """The first controller; the only one unless a test starts more."""
        return self.controllers[0]

    @property
    def processes(self) -> list[Server]:
        """All processes."""
        return [*self.webhooks, *self.controllers]

    def stop(self) -> None:
        """End all processes. The registrations stay, so that an outage can be looked at."""
        for process in self.processes:
            process.kill()
        self.front.close()

    def restore(self) -> None:
        """Let everything run and be ready again, whatever a test did to it."""
        if self.controllers and not any(one.is_running for one in self.controllers):
            self._forget_leader()
        for process in self.processes:
            if process.is_running:
                process.resume()
            else:
                process.start(waits=False)
        self.front.ports = tuple(server.port for server in self.webhooks)
        for process in self.processes:
            process.wait_until_ready()

    @contextlib.contextmanager
    def another_controller(self, change: Callable[[Server], Server] = _same) -> Iterator[Server]:
        """Run one more controller, until the block is left.

        Args:
            change: Makes the process another one before it is started.
        """
        with self._another(
            self.controllers, change(self._controller(len(self.controllers)))
        ) as made:
            yield made

    @contextlib.contextmanager
    def another_webhook(self, change: Callable[[Server], Server] = _same) -> Iterator[Server]:
        """Run one more webhook, until the block is left; connections go to it as well.

        Args:
            change: Makes the process another one before it is started.
        """
        made = change(self._webhook(len(self.webhooks), is_controller=False))
        with self._another(self.webhooks, made):
            self.front.ports = tuple(server.port for server in self.webhooks)
            yield made

    @contextlib.contextmanager
    def _another(self, servers: list[Server], made: Server) -> Iterator[Server]:
        try:
            made.start()
            servers.append(made)
            yield made
        finally:
            made.resume()
            made.kill()
            if made in servers:
                servers.remove(made)
            self.front.ports = tuple(server.port for server in self.webhooks)

    def metric(self, name: str, **labels: str) -> float:
        """Sum a metric over all processes."""
        return sum(process.metric(name, **labels) for process in self.processes)

    # -- inside ----------------------------------------------------------------------------

    def _webhook(self, number: int, is_controller: bool) -> Server:
        port, ops_port = free_ports(2)
        access = self._admin if is_controller else self._webhook_access
        arguments: list[str | Path] = [
            "serve",
            "--kubeconfig",
            access,
            "--certs",
            self.certificates,
            *self._serving,
        ]
        arguments += ["--listen", f"127.0.0.1:{port}"]
        if is_controller:
            arguments += ["--with-controller"]
        return self._server(f"webhook-{number}", arguments, port, ops_port)

    def _controller(self, number: int) -> Server:
        (ops_port,) = free_ports(1)
        arguments: list[str | Path] = ["controller", "--kubeconfig", self._controller_access]
        return self._server(f"controller-{number}", arguments, 0, ops_port)

    def _server(self, name: str, arguments: list[str | Path], port: int, ops_port: int) -> Server:
        command = [sys.executable, "-m", "webhook", *arguments, "--config", self.configuration_file]
        return Server(
            name,
            [*command, "--ops", f"127.0.0.1:{ops_port}"],
            self.directory / f"{name}.log",
            is_ready(ops_port),
            {"POD_NAME": name, "POD_NAMESPACE": self.namespace},
            port=port,
            ops_port=ops_port,
        )

    def forget_registrations(self) -> None:
        """Delete what a product before this one registered, which trusts another CA."""
        api = Api(self.plane.rest)
        for kind, name in REGISTRATIONS:
            api.delete(f"/apis/{kind.group}/{kind.version}/{kind.plural}/{name}")

    def _forget_leader(self) -> None:
        """Delete the Lease of a controller that was killed: the next would wait for its end."""
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        Api(self.plane.rest).delete(f"{leases}/{LEADER_LEASE}")

    def start_processes(self) -> None:
        self._forget_leader()
        for process in self.processes:
            process.start(waits=False)
        for process in self.processes:
            process.wait_until_ready()

    def wait_until_registration_is_read(self) -> None:
        """Wait until each process goes by the registration: no bind waits for a count then."""
        kind = VALIDATING_WEBHOOKS
        path = f"/apis/{kind.group}/{kind.version}/{kind.plural}/{REGISTRATION}"
        uid = Api(self.plane.rest).get(path).uid
        for process in self.processes:
            eventually(
                lambda: uid in process.log.read_text(),  # noqa: B023
                f"{process.name} has read the registration",
            )

    def wait_until_asked(self, *, is_masked: bool) -> None:
        """Wait until the API server acts on what was registered; it reads that a moment later."""
        api = Api(self.plane.rest)
        quota = {"metadata": {"name": "probe"}, "spec": {"hard": {"requests.cpu": "1"}}}
        eventually(lambda: _can_probe(api, quota), "the probe of a product before this one is gone")
        eventually(lambda: self._is_asked(api), "the webhook is asked about binds")
        if is_masked:
            eventually(lambda: _hides(api), "deferred resources are hidden in status")
        api.delete(f"/api/v1/namespaces/{_PROBE}")

    def _is_asked(self, api: Api) -> bool:
        before = self._answered()
        objects.bind(api, _PROBE, "nobody", "nowhere", uid="of-nobody", dry_run=True)
        return self._answered() > before

    def _answered(self) -> float:
        return sum(
            server.metric("admission_requests_total", phase="validating")
            for server in self.webhooks
        )


def usual_mask(plane: ControlPlane) -> Mask:
    """Return the form of the mask that is installed where nobody names one."""
    return "policy" if serves(plane.rest, POLICIES) else "webhook"


def _creation_rules(given: Mapping[str, Any]) -> CreationRules:
    text = json.dumps({**_CONFIGURATION, **given})
    return CreationRules.of(load_configuration(text, "the configuration of a test"))


def apply(plane: ControlPlane, wanted: Any) -> None:
    """Apply objects, as kubectl does it on the server; Jobs where `scripts/install` does it too."""
    lacks_gates = int(plane.rest.get("/version")["minor"]) < PROBE_MINOR
    items = [each for each in wanted if not (lacks_gates and each["kind"] == "Job")]
    whole = {"apiVersion": "v1", "kind": "List", "items": items}
    command = ("apply", "--server-side", "--force-conflicts", "--filename", "-")
    plane.kubectl(*command, stdin=json.dumps(whole))


def apply_namespace(api: Api, name: str, *, mode: str = "deferred", gating: str = "never") -> None:
    """Make a namespace (see `objects.a_namespace`), and wait until pods can be made in it."""
    wanted = objects.a_namespace(name, mode=mode, gating=gating)
    made = api.create("/api/v1/namespaces", wanted)
    assert made.code in (201, 409), str(made)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    becomes(lambda: api.get(account).code, 200, f"{name} has a service account")


@contextlib.contextmanager
def a_team(
    plane: ControlPlane, name: str, *, mode: str = "deferred", gating: str = "never"
) -> Iterator[Tenant]:
    """Give a new namespace, see `apply_namespace`; it is deleted when the block is left."""
    team = Tenant(plane.rest, name)
    apply_namespace(team.api, name, mode=mode, gating=gating)
    yield team
    # without a kubelet nothing would end the pods, and the scheduler would try those that wait
    team.clear()
    team.api.delete(f"/api/v1/namespaces/{name}")


def wait_for_ledgers(plane: ControlPlane) -> None:
    api = Api(plane.rest)
    for plural in ("quotaledgers", "clusterdeferredquotas"):
        path = f"/apis/deferredquota.io/v1alpha1/{plural}"
        becomes(lambda: api.get(path).code, 200, f"the API server serves {plural}")  # noqa: B023


def _can_probe(api: Api, quota: Mapping[str, Any]) -> bool:
    api.create("/api/v1/namespaces", objects.a_namespace(_PROBE))
    return api.create(objects.quotas(_PROBE), quota).code in (201, 409)


def _hides(api: Api) -> bool:
    hard = {"requests.cpu": "1", "pods": "1"}
    path = objects.quotas(_PROBE, "probe", "status")
    written = api.patch(path, {"status": {"hard": hard}}, dry_run=True)
    assert written.ok, str(written)
    return set(written.body["status"]["hard"]) == {"pods"}


def is_ready(port: int) -> Callable[[], str]:
    def missing() -> str:
        status, text = _get(port, "/readyz")
        return "" if status == 200 else text

    return missing


def _as_by_service(wanted: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Give the validating entries another name of the same address.

    An API server keeps connections apart by the path of a Service, but not of a URL, and of each
    address no more than 25: what is over is closed, and a handshake costs more than an answer.

    Source: kubernetes v1.36, apiserver/pkg/util/webhook/client.go hookClientConfig; client-go
    transport/cache.go idleConnsPerHost.
    """
    return [
        json.loads(json.dumps(one).replace("https://127.0.0.1:", "https://localhost:"))
        if one["kind"] == "ValidatingWebhookConfiguration"
        else one
        for one in wanted
    ]


def _get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
