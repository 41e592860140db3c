"""The whole control plane, started in a few seconds and ended without a trace.

```
with ControlPlane.start(tmp_path) as plane:
    plane.add_nodes(3)
    plane.kubectl("apply", "-f", "-", stdin=manifest)
    plane.apiserver.restart()
```

Everything listens on 127.0.0.1 only. The API server has a CA of its own, and RBAC. etcd speaks
plain HTTP without credentials and does not wait for its disk: it must hold nothing but tests.
"""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.controlplane import arguments as flags
from tests.controlplane.audit import audit_flags
from tests.controlplane.build import provide
from tests.controlplane.nodes import node
from tests.controlplane.pki import Pki
from tests.controlplane.ports import free_ports
from tests.controlplane.process import START_SECONDS, Process, ProcessError
from tests.controlplane.rest import Rest, RestError
from tests.controlplane.users import ADMIN, Users

_SCHEDULER: Final = "system:kube-scheduler"
_CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
_POLL_SECONDS: Final = 0.03


class KubectlError(Exception):
    """A kubectl that ended with an error; the message is what it printed."""


def _say_nothing(_line: str) -> None:
    pass


class ControlPlane:
    """A control plane that runs; made with `start`.

    Attributes:
        directory: Everything it writes.
        url: Where the API server is.
        etcd, apiserver: Its processes.
    """

    def __init__(
        self,
        directory: Path,
        programs: Mapping[str, Path],
        extras: flags.Extras,
        *,
        has_controllers: bool = True,
        is_bound: bool = True,
    ) -> None:
        self.directory = directory.absolute()
        self._programs, self._extras = programs, extras
        self._has_controllers, self._is_bound = has_controllers, is_bound
        self.ports = flags.Ports(*free_ports(4))
        self.url = f"https://127.0.0.1:{self.ports.apiserver}"
        for name in ("etcd", "logs"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        # etcd refuses a directory that others may read
        (self.directory / "etcd").chmod(0o700)
        self.pki = Pki.make(self.directory / "pki", service_address=flags.SERVICE_ADDRESS)
        self._users = Users(self.url, self.pki, self.directory / "kubeconfigs")
        self._nodes = 0
        self.rest = self.rest_as(ADMIN)
        self.etcd = self._etcd()
        self.apiserver = self._apiserver()
        self._scheduler: Process | None = None
        self._controller_manager: Process | None = None

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        scheduler: bool = True,
        controller_manager: bool = True,
        apiserver_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        scheduler_fields: Mapping[str, object] | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        is_bound: bool = True,
        say: Callable[[str], None] = _say_nothing,
    ) -> Self:
        """Start it and wait until it serves.

        Args:
            directory: An empty directory for data, keys and logs.
            scheduler: Whether to run a scheduler.
            controller_manager: Whether to run the controllers. Without them nothing makes service
                accounts, and pods are admitted without one.
            apiserver_flags: Further flags of the API server; the last of two stands.
            controller_manager_flags: The same of the controller manager, such as
                `--resource-quota-sync-period=2s`.
            scheduler_fields: Fields of KubeSchedulerConfiguration, such as `podMaxBackoffSeconds`.
            feature_gates: Gates of all three.
            is_bound: Whether it ends with this process, even if that is killed.
            say: Told what is done where that takes long, as building does.

        Raises:
            BinariesError: The programs can be neither found nor built.
            ProcessError: One of them does not start; the message has the end of its log.
        """
        extras = flags.Extras(
            apiserver_flags,
            controller_manager_flags,
            scheduler_fields or {},
            feature_gates or {},
        )
        plane = cls(
            directory,
            provide(say),
            extras,
            has_controllers=controller_manager,
            is_bound=is_bound,
        )
        try:
            plane.start_processes(scheduler=scheduler)
        except BaseException:
            plane.stop()
            raise
        return plane

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes. They have nothing to keep, so they are not asked."""
        for process in reversed(self.processes):
            process.kill()
        self._users.close()

    # -- its parts -------------------------------------------------------------------------

    @property
    def processes(self) -> list[Process]:
        """All processes, in the order of their start."""
        parts = (self.etcd, self.apiserver, self._controller_manager, self._scheduler)
        return [part for part in parts if part is not None]

    @property
    def etcd_url(self) -> str:
        """Where etcd's clients connect, plain HTTP; its JSON gateway is there too."""
        return f"http://127.0.0.1:{self.ports.etcd}"

    @property
    def scheduler(self) -> Process:
        """The scheduler."""
        assert self._scheduler is not None, "this control plane was started without a scheduler"
        return self._scheduler

    @property
    def controller_manager(self) -> Process:
        """The controller manager."""
        assert self._controller_manager is not None, "started without a controller manager"
        return self._controller_manager

    @property
    def ca_file(self) -> Path:
        """The CA of the API server's certificate."""
        return self.pki.ca_file

    @property
    def kubectl_program(self) -> Path:
        """Where kubectl is."""
        return self._programs["kubectl"]

    # -- a scheduler that comes later ------------------------------------------------------

    def start_scheduler(self, configuration: Path) -> None:
        """Start the scheduler with a configuration file, on a control plane that runs without one.

        Args:
            configuration: A KubeSchedulerConfiguration, YAML or JSON, as for a cluster; its
                connection and election are replaced by what fits here.

        Raises:
            ProcessError: It does not start; the message has the end of its log.
        """
        assert self._scheduler is None, "this control plane has a scheduler already"
        self._scheduler = self._make_scheduler(yaml.safe_load(configuration.read_text()))
        self._scheduler.start()

    # -- users -----------------------------------------------------------------------------

    def kubeconfig(self, user: str = ADMIN, groups: Sequence[str] | None = None) -> Path:
        """Give the kubeconfig of a user with a client certificate.

        Args:
            user: `admin` may do everything; others what RBAC gives them.
            groups: The user's groups.
        """
        return self._users.kubeconfig(user, groups)

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, duration: str = "24h"
    ) -> Path:
        """Give the kubeconfig of a service account, with a new token of the TokenRequest API."""
        token = self._token(namespace, name, duration)
        return self._users.kubeconfig_of_token(f"system:serviceaccount:{namespace}:{name}", token)

    def service_account_rest(self, namespace: str, name: str) -> Rest:
        """Give the REST paths, called with a new token of a service account."""
        return self._users.rest_of_token(self._token(namespace, name, "24h"))

    def _token(self, namespace: str, name: str, duration: str) -> str:
        command = ("create", "token", name, "--namespace", namespace, "--duration", duration)
        return self.kubectl(*command).strip()

    def rest_as(self, user: str, groups: Sequence[str] | None = None) -> Rest:
        """Give the REST paths, called with a client certificate; `rest` is admin's."""
        return self._users.rest(user, groups)

    def kubectl(
        self, *args: str | Path, stdin: str | None = None, user: str = ADMIN, seconds: float = 120.0
    ) -> str:
        """Run kubectl, and give what it prints.

        Raises:
            KubectlError: It ended with an error.
        """
        command = [self.kubectl_program, "--kubeconfig", self.kubeconfig(user)]
        command += ["--cache-dir", self.directory / "kubectl-cache"]
        ran = subprocess.run(
            [*map(str, command), *map(str, args)],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if ran.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(map(str, args))}: {ran.stderr.strip()}")
        return ran.stdout

    # -- nodes -----------------------------------------------------------------------------

    def add_nodes(
        self, count: int, cpu: str = "64", memory: str = "256Gi", pods: int = 1000
    ) -> list[str]:
        """Add nodes that have no kubelet, and return their names.

        They look ready for ever, because the controller that waits for heartbeats is not run.
        Admission taints every new node until that controller finds it ready; the taint is removed.
        """
        names = [f"node-{self._nodes + number}" for number in range(count)]
        self._nodes += count
        for name in names:
            made = self.rest.create("/api/v1/nodes", node(name, cpu=cpu, memory=memory, pods=pods))
            if "taints" in made["spec"]:
                untaint = [{"op": "remove", "path": "/spec/taints"}]
                self.rest.patch(f"/api/v1/nodes/{name}", untaint, "json")
        return names

    # -- starting --------------------------------------------------------------------------

    def start_processes(self, *, scheduler: bool) -> None:
        self.etcd.start()
        self.apiserver.start()
        if self._has_controllers:
            self._controller_manager = self._make_controller_manager()
            self._controller_manager.start(waits=False)
        if scheduler:
            self._scheduler = self._make_scheduler()
            self._scheduler.start(waits=False)
        for process in self.processes:
            process.wait_until_ready()
        if self._has_controllers:
            self._wait_for_service_accounts()

    def _wait_for_service_accounts(self) -> None:
        """Wait until the controllers work: pods need the account that one of them makes."""
        give_up = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up:
            with contextlib.suppress(RestError, OSError):
                self.rest.get("/api/v1/namespaces/default/serviceaccounts/default")
                return
            time.sleep(_POLL_SECONDS)
        raise ProcessError(
            f"no service account was made in {START_SECONDS:.0f} s\n"
            f"{self.controller_manager.tail()}"
        )

    def _keys(self) -> dict[str, Path]:
        certificate, key = self.pki.serving
        signing, checking = self.pki.service_accounts
        return {
            "ca": self.ca_file,
            "certificate": certificate,
            "key": key,
            "signing": signing,
            "checking": checking,
        }

    def _process(self, program: str, arguments: Sequence[str], ready: Callable[[], str]) -> Process:
        log = self.directory / "logs" / f"{program}.log"
        command: list[str | Path] = [self._programs[program], *arguments]
        return Process(program, command, log, ready, is_bound=self._is_bound)

    def _etcd(self) -> Process:
        arguments = flags.etcd_arguments(self.directory / "etcd", self.etcd_url)
        return self._process("etcd", arguments, _answers(Rest(self.etcd_url, None), "/readyz"))

    def _apiserver(self) -> Process:
        arguments = audit_flags(self.directory, self.ports.apiserver)
        arguments += flags.apiserver_arguments(  # a log of its own comes last, and stands
            self._keys(), self.ports, self._extras, has_service_accounts=self._has_controllers
        )
        return self._process("kube-apiserver", arguments, _answers(self.rest, "/readyz"))

    def _make_controller_manager(self) -> Process:
        kubeconfig = self.kubeconfig(_CONTROLLER_MANAGER)
        arguments = flags.controller_manager_arguments(
            self._keys(), kubeconfig, self.ports, self._extras
        )
        ready = _answers(_own_certificate(self.ports.controller_manager), "/healthz")
        return self._process("kube-controller-manager", arguments, ready)

    def _make_scheduler(self, given: Mapping[str, Any] | None = None) -> Process:
        config = self.directory / "scheduler.json"
        kubeconfig = self.kubeconfig(_SCHEDULER)
        config.write_text(flags.scheduler_configuration(kubeconfig, self._extras, given))
        arguments = flags.scheduler_arguments(config, self.ports, self._extras)
        # the first is of 1.31 and later
        ready = _answers(_own_certificate(self.ports.scheduler), "/readyz", "/healthz")
        return self._process("kube-scheduler", arguments, ready)


def _own_certificate(port: int) -> Rest:
    """Call a program that makes a certificate for itself at every start, which nobody can know."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return Rest(f"https://127.0.0.1:{port}", context)


def _answers(rest: Rest, path: str, otherwise: str = "") -> Callable[[], str]:
    """Make a check that a page is there, or another one where there is no such page."""

    def missing() -> str:
        with contextlib.closing(rest):
            status, body = rest.call("GET", path)
            if status == 404 and otherwise:
                status, body = rest.call("GET", otherwise)
        return "" if status == 200 else f"{path} says {status} {body.decode(errors='replace')}"

    return missing
