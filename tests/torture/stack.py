"""The product as it is installed: processes of its own command line, behind proxies, registered.

The scheduler asks it too, as `manifests/scheduler` says.

Every process speaks to the API server through a link of its own, as its own service account with
exactly the product's rights. The API server speaks to the webhooks through one link that goes
round them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.controlplane.plane import ControlPlane
from tests.controlplane.ports import free_ports
from tests.controlplane.process import Process
from tests.e2e.harness import make_certificates
from tests.torture.bystander import Bystander, registration
from tests.torture.links import Links
from tests.torture.load.shapes import Space
from tests.torture.version import Version, this_version
from webhook.install import MANIFESTS
from webhook.kube.api import Object

WEBHOOKS: Final = "webhooks"
"""The link between the API server and the webhooks."""

SYSTEM: Final = "deferred-quota-system"
_GUARD: Final = "bind.deferredquota.io"
_CONFIGURATION: Final = {
    "apiVersion": "deferredquota.io/v1alpha1",
    "kind": "Configuration",
    "extender": {"enabled": True},
    "elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0, "coolDownSeconds": 1}},
}


@dataclass(slots=True)
class Member:
    """A process of the product; its link to the API server has its name."""

    name: str
    process: Process

    @property
    def is_controller(self) -> bool:
        """Whether it keeps ledgers, if it leads."""
        return self.name.startswith("controller")

    def become(self, version: Version) -> None:
        """Run a version from the next start on."""
        self.process.command = [version.python, *self.process.command[1:]]
        self.process.environment = version.environment


@dataclass(slots=True)
class Stack:
    """All processes of the product; made with `start`."""

    members: list[Member]
    bystander: Bystander
    plane: ControlPlane
    url: str = ""
    authority: Path = Path()

    @property
    def webhooks(self) -> list[Member]:
        """The processes that answer reviews."""
        return [each for each in self.members if not each.is_controller]

    @property
    def controllers(self) -> list[Member]:
        """The processes that stand for election."""
        return [each for each in self.members if each.is_controller]

    @classmethod
    def start(
        cls,
        plane: ControlPlane,
        links: Links,
        directory: Path,
        *,
        webhooks: int,
        controllers: int,
        spaces: Sequence[Space],
        seed: int,
        terminating_pods: str = "Release",
        is_guarded: bool = True,
        threads: int = 64,
        version: Version | None = None,
    ) -> Stack:
        """Install everything and wait until it is ready.

        Args:
            plane: The control plane.
            links: Where links are opened.
            directory: For certificates, kubeconfigs and logs.
            webhooks: How many processes answer reviews.
            controllers: How many stand for election.
            spaces: The namespaces, for the other webhook.
            seed: Of the other webhook's chance.
            terminating_pods: What the configuration says of them.
            is_guarded: False leaves out the entry that guards binds: nothing is enforced then, and
                the observer has to notice.
            threads: How many requests a webhook answers at the same time.
            version: What is installed and runs; by default a copy of this checkout.
        """
        directory.mkdir(parents=True, exist_ok=True)
        version = version or this_version(directory)
        certificates = make_certificates(directory / "certs")
        authority = (certificates / "ca.crt").read_bytes()
        _apply(plane, version.objects("https://127.0.0.1:1", authority).cluster)
        plane.kubectl(
            *("wait", "--for=condition=Established", "--timeout=60s"),
            "crd/quotaledgers.deferredquota.io",
        )
        configuration = directory / "config.yaml"
        varied = {"terminatingPods": terminating_pods, "limits": {"threads": threads}}
        configuration.write_text(json.dumps({**_CONFIGURATION, **varied}))
        maker = _Maker(plane, links, directory, certificates, version, configuration)
        ports = [free_ports(1)[0] for _ in range(webhooks)]
        members = [maker.webhook(number, port) for number, port in enumerate(ports)]
        members += [maker.controller(number) for number in range(controllers)]
        stack = cls(members, Bystander.start(certificates, seed), plane)
        try:
            for member in members:
                member.process.start(waits=False)
            for member in members:
                member.process.wait_until_ready()
            front = links.open(WEBHOOKS, [("127.0.0.1", port) for port in ports])
            stack.url, stack.authority = f"https://127.0.0.1:{front}", certificates / "ca.crt"
            installation = version.objects(stack.url, authority)
            _apply(plane, _registrations(installation.registrations, is_guarded=is_guarded))
            _apply(plane, installation.masks)
            _apply(plane, [registration(stack.bystander.port, authority, list(spaces))])
        except BaseException:
            stack.stop()
            raise
        return stack

    def stop(self) -> None:
        """End all processes."""
        self.bystander.stop()
        for member in self.members:
            member.process.resume()
            member.process.kill()

    def apply_cluster(self, version: Version) -> None:
        """Apply the definitions and rights of a version."""
        _apply(self.plane, version.objects(self.url, self.authority.read_bytes()).cluster)

    def apply_registrations(self, version: Version) -> None:
        """Apply the registrations and the mask of a version."""
        installation = version.objects(self.url, self.authority.read_bytes())
        _apply(self.plane, [*installation.registrations, *installation.masks])

    def scheduler_configuration(self, directory: Path) -> Path:
        """Write what a scheduler needs so that it asks before it looks for nodes."""
        text = (MANIFESTS / "scheduler" / "configuration.yaml").read_text()
        configuration = yaml.safe_load(text)
        for extender in configuration["extenders"]:
            extender["urlPrefix"] = f"{self.url}/scheduler"
            extender["tlsConfig"] = {"caFile": str(self.authority)}
            extender["httpTimeout"] = "2s"
        path = directory / "scheduler.yaml"
        path.write_text(yaml.safe_dump(configuration))
        return path

    def mend(self) -> None:
        """Let every process run again."""
        for member in self.members:
            member.process.resume()
            if not member.process.is_running:
                member.process.start(waits=False)
        for member in self.members:
            member.process.wait_until_ready()


@dataclass(slots=True)
class _Maker:
    plane: ControlPlane
    links: Links
    directory: Path
    certificates: Path
    version: Version
    configuration: Path

    def webhook(self, number: int, port: int) -> Member:
        """Make a webhook process that is not started."""
        name = f"webhook-{number}"
        listen = ("--listen", f"127.0.0.1:{port}", "--certs", str(self.certificates))
        return self._member(name, "serve", "deferred-quota-webhook", listen)

    def controller(self, number: int) -> Member:
        """Make a controller process that is not started."""
        name = f"controller-{number}"
        return self._member(name, "controller", "deferred-quota-controller", ("--identity", name))

    def _member(self, name: str, command: str, account: str, more: Sequence[str]) -> Member:
        (ops,) = free_ports(1)
        arguments: list[str | Path] = [
            *(self.version.python, "-m", "webhook", command),
            *("--kubeconfig", self._kubeconfig(name, account)),
            *("--ops", f"127.0.0.1:{ops}"),
            *("--config", self.configuration),
            *("--log-level", "info" if command == "controller" else "warning"),
            *more,
        ]
        ready = _answers(f"http://127.0.0.1:{ops}/readyz")
        log = self.directory / f"{name}.log"
        return Member(name, Process(name, arguments, log, ready, self.version.environment))

    def _kubeconfig(self, name: str, account: str) -> Path:
        """Write a kubeconfig that goes through a link."""
        port = self.links.open(name, [("127.0.0.1", self.plane.ports.apiserver)])
        given = self.plane.service_account_kubeconfig(SYSTEM, account)
        text = given.read_text()
        assert self.plane.url in text, f"{given} does not name {self.plane.url}"
        path = self.directory / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(text.replace(self.plane.url, f"https://127.0.0.1:{port}"))
        return path


def _registrations(registrations: Sequence[Object], *, is_guarded: bool) -> list[Object]:
    if is_guarded:
        return list(registrations)
    kept: list[Object] = []
    for configuration in registrations:
        entries = configuration["webhooks"]
        assert isinstance(entries, list)
        others = [entry for entry in entries if entry["name"] != _GUARD]
        kept.append({**configuration, "webhooks": others})
    assert kept != list(registrations), f"there is no entry {_GUARD}"
    return kept


def _apply(plane: ControlPlane, objects: Sequence[Object]) -> None:
    bundle = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(bundle))


def _answers(url: str) -> Callable[[], str]:
    def missing() -> str:
        try:
            with closing(urllib.request.urlopen(url, timeout=5)) as response:  # noqa: S310 - ours
                response.read()
        except urllib.request.HTTPError as err:
            return f"{url} says {err.code} {err.read().decode(errors='replace')}"
        return ""

    return missing
