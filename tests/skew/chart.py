"""`scripts/skew REF --chart`: the chart of another version, upgraded to this one, and back.

Helm installs the chart of the other version on a real control plane, upgrades it to that of the
checkout, rolls it back, upgrades it again and removes it. After each step the processes are those
of the release, as its Deployments would start them, and binds are tried. What registrations trust
may change with no step but the first, and no ledger may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.controlplane.roundrobin import RoundRobin
from tests.e2e.cluster import objects
from tests.e2e.cluster.install.chart import Release
from tests.e2e.cluster.kubelet import LOOPBACK_SERVICES, mount
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, Product, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.skew.story import Side
from tests.torture.version import Version
from webhook.install.chart import CHART
from webhook.state.well_known import TLS_SECRET
from webhook.tls.called_names import REGISTRATIONS
from webhook.tls.rotation_store import SERVICE

_NAMESPACE: Final = "team-a"
_PLACE: Final = f"/api/v1/namespaces/{SYSTEM}"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_DEFINITION: Final = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/quotaledgers.deferredquota.io"
)
_SECONDS: Final = 300.0
"""What a machine that is busy takes at most for anything."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was seen after a command of helm."""

    name: str
    written: Mapping[str, str]
    """Entry → its `caBundle` as helm left it."""
    kept: Mapping[str, str]
    """The same once the processes of the release run."""
    ledger: str
    """The uid of the ledger."""
    used: str
    """What the ledger counts."""


def chart_story(old: Version, new: Version, directory: Path, say: Callable[[str], None]) -> str:
    """Carry the story out; return a table of what was seen.

    Args:
        old: The version whose chart is installed first.
        new: This one.
        directory: For everything that is written.
        say: Called with each step as it begins.

    Raises:
        AssertionError: Something is not as it has to be; the message says what.
    """
    charts = {Side.OLD: old.source / "charts" / CHART.name, Side.NEW: CHART}
    versions = {Side.OLD: old, Side.NEW: new}
    steps: list[Step] = []
    with ControlPlane.start(directory / "plane", apiserver_flags=LOOPBACK_SERVICES) as plane:
        plane.add_nodes(1)
        release = Release(plane)
        say("install: old")
        release.run("install", charts[Side.OLD], "--create-namespace")
        with _processes(plane, directory / "product") as product:
            _run(product, old)
            apply_namespace(Api(plane.rest), _NAMESPACE)
            tenant = Tenant(plane.rest, _NAMESPACE)
            tenant.quota()
            steps.append(_seen("install: old", tenant))
            for name, side in (
                ("upgrade: new", Side.NEW),
                ("rollback: old", Side.OLD),
                ("upgrade again: new", Side.NEW),
            ):
                say(name)
                if name.startswith("rollback"):
                    release.run("rollback", "1")
                else:
                    release.run("upgrade", charts[side], "--reset-values")
                written = _bundles(tenant.api)
                _run(product, versions[side])
                steps.append(_seen(name, tenant, written))
            say("disable, uninstall")
            _opt_out(tenant)
        release.run("uninstall")
        _is_native(tenant)
    _compare(steps)
    return _table(steps)


@contextmanager
def _processes(plane: ControlPlane, directory: Path) -> Iterator[Product]:
    """Give a webhook that the Service leads to, and a controller; neither runs yet."""
    name = ("--name", f"{SERVICE}.{SYSTEM}.svc")  # it is in no pod
    product = Product(plane, directory, webhooks=1, controllers=1, configuration={}, serving=name)
    product.front.close()
    address = str(Api(plane.rest).get(f"{_PLACE}/services/{SERVICE}").body["spec"]["clusterIP"])
    product.front = RoundRobin([one.port for one in product.webhooks], (address, 443))
    try:
        yield product
    finally:
        product.stop()


def _run(product: Product, version: Version) -> None:
    """Replace the processes, in the order of an upgrade; the controller makes the certificates."""
    api, (webhook,) = Api(product.plane.rest), product.webhooks
    for process in (product.controller, webhook):
        process.terminate() if process.is_running else None
        process.command = [version.python, *process.command[1:]]
        process.environment = {**process.environment, **version.environment}
    product.controller.start(waits=False)
    product.controller.wait_until_ready(_SECONDS)
    path = f"{_PLACE}/secrets/{TLS_SECRET}"
    eventually(lambda: api.get(path).ok, "there are certificates", _SECONDS)
    mount(api, product.certificates)
    eventually(lambda: "" not in _bundles(api).values(), "every entry has a caBundle", _SECONDS)
    webhook.start(waits=False)
    webhook.wait_until_ready(_SECONDS)
    becomes(lambda: product.controller.metric("leader"), 1.0, "it leads", seconds=_SECONDS)


def _seen(name: str, tenant: Tenant, written: Mapping[str, str] | None = None) -> Step:
    """Try binds, and return what there is after them."""
    place = objects.ledger(tenant.namespace)
    eventually(lambda: tenant.api.get(place).ok, "there is a ledger", _SECONDS)
    number = name.replace(" ", "-").replace(":", "")
    fits, large = (
        tenant.pod(f"{each}-{number}", cpu) for each, cpu in (("fits", "250m"), ("large", "2"))
    )
    for pod, code in ((fits, 201), (large, 403)):
        pod_name = str(pod.body["metadata"]["name"])
        becomes(
            lambda: tenant.bind(pod_name, uid=pod.uid).code,  # noqa: B023
            code,
            f"{name}: a bind of {pod_name}",
            seconds=_SECONDS,
        )
    tenant.settles()
    taken = str(tenant.taken_by_pods())
    becomes(lambda: tenant.used()["requests.cpu"], taken, "what is used", seconds=_SECONDS)
    kept = _bundles(tenant.api)
    return Step(name, written or kept, kept, tenant.api.get(place).uid, taken)


def _opt_out(tenant: Tenant) -> None:
    place = f"/api/v1/namespaces/{tenant.namespace}"
    gone = {"metadata": {"labels": {objects.MODE_LABEL: None}}}
    assert tenant.api.patch(place, gone).ok
    path = objects.quotas(tenant.namespace)

    def is_complete() -> bool:
        items = tenant.api.get(path).body["items"]
        return all(one["status"].get("hard") == one["spec"]["hard"] for one in items)

    eventually(is_complete, "the API server enforces the quota itself", _SECONDS)


def _is_native(tenant: Tenant) -> None:
    """See that after a removal the API server decides, and that definitions are left."""
    assert _bundles(tenant.api) == {}
    assert tenant.api.get(_DEFINITION).ok
    becomes(lambda: tenant.create("native", "9", dry_run=True).code, 403, "native quota")


def _bundles(api: Api) -> dict[str, str]:
    return {
        f"{name} {entry['name']}": entry["clientConfig"].get("caBundle", "")
        for kind, name in REGISTRATIONS
        for entry in api.get(f"{_ADMISSION}/{kind.plural}/{name}").body.get("webhooks", ())
    }


def _compare(steps: list[Step]) -> None:
    trusted = set(steps[0].kept.values())
    assert len(trusted) == 1, "the first installation trusts one CA"
    for former, step in pairwise(steps):
        assert step.ledger == former.ledger, f"{step.name}: the ledger is another one"
        assert set(step.kept.values()) == trusted, f"{step.name}: another CA is trusted"
        for entry in step.written.keys() & former.kept.keys():
            assert step.written[entry] == former.kept[entry], f"{step.name}: {entry}"


def _table(steps: list[Step]) -> str:
    lines = ["| step | entries | with another `caBundle` | entries that came | used |"]
    lines.append("| --- | --- | --- | --- | --- |")
    former: Mapping[str, str] = {}
    for step in steps:
        both = step.written.keys() & former.keys()
        came = len(step.kept.keys() - former.keys())
        changed = sum(step.written[one] != former[one] for one in both)
        lines.append(f"| {step.name} | {len(step.kept)} | {changed} | {came} | {step.used} |")
        former = step.kept
    return "\n".join(lines)
