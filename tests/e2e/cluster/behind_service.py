"""The product as the API server calls it by its Service, with certificates that it keeps itself.

The address of the Service is one of the loopback device (`kubelet.LOOPBACK_SERVICES`), and port 443
there takes root.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.controlplane.roundrobin import RoundRobin
from tests.e2e.cluster.kubelet import mount
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import (
    SYSTEM,
    Product,
    Server,
    apply,
    usual_mask,
    wait_for_ledgers,
)
from webhook.install import render
from webhook.state.well_known import TLS_SECRET
from webhook.tls.rotation_store import SERVICE

_SERVICE: Final = f"/api/v1/namespaces/{SYSTEM}/services/{SERVICE}"
_WAITING_SECONDS: Final = 0.2
"""Until there is a Secret, for which a pod waits."""
_MOUNT_SECONDS: Final = 60.0
"""As a kubelet, which looks about once a minute."""


@contextlib.contextmanager
def behind_service(
    plane: ControlPlane,
    directory: Path,
    change: Callable[[Server], Server],
    *,
    webhooks: int = 1,
    controllers: int = 1,
) -> Iterator[Product]:
    """Run the product until the block is left.

    Args:
        plane: A control plane with `LOOPBACK_SERVICES`, on which it does not run yet.
        directory: For files and logs.
        change: Makes a controller another one before it is started.
        webhooks: How many replicas; the Service hands connections to them in turn.
        controllers: How many controllers.
    """
    api, made = Api(plane.rest), render(mask=usual_mask(plane))
    services = [one for one in made.workloads if one["kind"] == "Service"]
    apply(plane, (*made.cluster, *services, *made.rotation, *made.identities))
    wait_for_ledgers(plane)
    product = Product(
        plane,
        directory,
        webhooks=webhooks,
        controllers=controllers,
        configuration={},
        # it is in no pod
        serving=("--name", f"{SERVICE}.{SYSTEM}.svc", "--certs-secret", TLS_SECRET),
    )
    product.controllers = [change(one) for one in product.controllers]
    product.front.close()
    address = str(api.get(_SERVICE).body["spec"]["clusterIP"])
    product.front = RoundRobin([one.port for one in product.webhooks], (address, 443))
    try:
        apply(plane, (*made.registrations, *made.masks))
        with _mounted(plane, product.certificates):
            product.start_processes()
            product.wait_until_asked(is_masked=True)
            yield product
    finally:
        product.stop()


@contextlib.contextmanager
def _mounted(plane: ControlPlane, directory: Path) -> Iterator[None]:
    """Keep the files of the Secret as a kubelet does, until the block is left."""
    stopping = threading.Event()

    def run() -> None:
        api, pause = Api(plane.rest_as("admin")), _WAITING_SECONDS
        while not stopping.wait(pause):
            with contextlib.suppress(OSError):  # as long as no API server answers
                if mount(api, directory):
                    pause = _MOUNT_SECONDS

    thread = threading.Thread(target=run, name="mount")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
