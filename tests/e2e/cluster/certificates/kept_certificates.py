"""The certificates that a controller keeps: seen, changed, and taken away."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.product import SYSTEM, Product, Server
from tests.e2e.cluster.waiting import eventually
from webhook.kube.rest import RestClient, load_config
from webhook.state.well_known import CA_SECRET, TLS_SECRET
from webhook.tls.rotation import (
    InstalledCertificates,
    Phase,
    Surroundings,
    WriteCa,
    next_step,
    phase_of,
)
from webhook.tls.rotation_store import SERVICE, CertificateStore, spec_for

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_REGISTRATIONS: Final = (
    f"{_ADMISSION}/mutatingwebhookconfigurations/deferred-quota",
    f"{_ADMISSION}/mutatingwebhookconfigurations/zz-deferred-quota-jobs",
    f"{_ADMISSION}/validatingwebhookconfigurations/deferred-quota",
)
_PHASE_SECONDS: Final = 300.0
_LEADER_SECONDS: Final = 90.0


@dataclass(frozen=True)
class KeptCertificates:
    """The certificates of a product that runs behind its Service."""

    plane: ControlPlane
    product: Product
    store: CertificateStore

    @property
    def held(self) -> InstalledCertificates:
        """What both Secrets hold."""
        return self.store.read().held

    @property
    def pair(self) -> bytes:
        """The certificate that is to be served, DER; empty where there is none."""
        serving = self.held.serving
        return ssl.PEM_cert_to_DER_cert(serving.certificate.decode()) if serving else b""

    @property
    def phase(self) -> Phase:
        """How far a change of the CA is."""
        return phase_of(self.held, datetime.now(UTC))

    def bundles(self) -> set[str]:
        """Return the `caBundle` of every entry."""
        return {
            entry["clientConfig"].get("caBundle", "")
            for path in _REGISTRATIONS
            for entry in self.plane.rest.get(path)["webhooks"]
        }

    def trusted(self) -> list[str]:
        """Return what the entries trust, PEM."""
        return [base64.b64decode(one).decode() for one in self.bundles()]

    def wipe_bundles(self) -> None:
        """Take the `caBundle` out of every entry."""
        for path in _REGISTRATIONS:
            entries = range(len(self.plane.rest.get(path)["webhooks"]))
            wipe = [
                {"op": "remove", "path": f"/webhooks/{index}/clientConfig/caBundle"}
                for index in entries
            ]
            self.plane.rest.patch(path, wipe, "json")

    def lose_secrets(self, seconds: float) -> None:
        """Delete both Secrets, and wait until there is another certificate."""
        self._lose((CA_SECRET, TLS_SECRET), seconds)

    def replace_pair(self, seconds: float) -> None:
        """Delete the Secret of the certificate that is served, and wait until there is another."""
        self._lose((TLS_SECRET,), seconds)

    def wait_for_renewal(self, seconds: float) -> None:
        """Wait until the controller has replaced the certificate that is to be served."""
        before = self.pair
        eventually(lambda: self.pair != before, "it is renewed", seconds)

    def wait_until_served(self) -> None:
        """Wait until new connections to all replicas are shown the certificate."""
        for replica in self.product.webhooks:
            eventually(
                lambda replica=replica: served_by(replica) == self.pair,  # type: ignore[misc]
                f"{replica.name} serves it",
                growth=1,
            )

    def begin_ca_change(self) -> None:
        """Write a new CA into its Secret, and nothing else: a controller has to go on."""
        stored = self.store.read()
        around = Surroundings(now=datetime.now(UTC), forces="ca")
        step = next_step(stored.held, spec_for(SYSTEM), around)
        assert isinstance(step, WriteCa)
        self.store.apply(step, stored, now=around.now)

    def kill_leaders(self) -> Iterator[Phase]:
        """Kill the controller that leads in each phase of a change; yield it, steady at last."""
        for phase in (Phase.PUBLISH, Phase.SWITCH, Phase.RETIRE):
            yield self._reach(phase)
            leader = eventually(self.leader, "a controller leads", _LEADER_SECONDS)
            assert leader is not None
            leader.kill()
            leader.start(waits=False)
        yield self._reach(Phase.STEADY)

    def leader(self) -> Server | None:
        """Return the controller that leads, if one does."""
        for controller in self.product.controllers:
            with contextlib.suppress(OSError):  # it starts
                if controller.metric("leader") == 1.0:
                    return controller
        return None

    def _lose(self, secrets: Sequence[str], seconds: float) -> None:
        before = self.pair
        self.plane.kubectl("delete", "secret", "--namespace", SYSTEM, *secrets)
        eventually(lambda: self.pair not in (b"", before), "it is made anew", seconds)

    def _reach(self, wanted: Phase) -> Phase:
        """Wait until a phase is reached or all are over, and return which is."""
        ends = (wanted, Phase.STEADY)
        seen: list[Phase] = []

        def is_reached() -> bool:
            seen.append(self.phase)
            return seen[-1] in ends

        eventually(is_reached, wanted, _PHASE_SECONDS, growth=1)
        return seen[-1]


@contextlib.contextmanager
def kept_certificates(plane: ControlPlane, product: Product) -> Iterator[KeptCertificates]:
    """Give the certificates of a product, with a client that is closed in the end."""
    api = RestClient(load_config(plane.kubeconfig(), None))
    try:
        yield KeptCertificates(plane, product, CertificateStore(api, SYSTEM))
    finally:
        api.close()


def served_by(replica: Server, context: ssl.SSLContext | None = None) -> bytes:
    """Return the certificate that a new connection to a replica is shown, DER.

    Args:
        replica: A webhook.
        context: What the connection trusts, for the name of the Service; by default, anything.
    """
    if context is None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", replica.port), timeout=5) as sock,
        context.wrap_socket(sock, server_hostname=f"{SERVICE}.{SYSTEM}.svc") as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
