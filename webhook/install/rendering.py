"""The objects of an installation: `manifests/` with what is known of the cluster written in."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from webhook import __version__
from webhook.config import Configuration, PageSettings, ReclaimMode
from webhook.install.clients import KnownClients, client_authority, know_clients
from webhook.install.kustomizations import (
    InstallError,
    Manifest,
    add_component,
    entries_of,
    read_directory,
)
from webhook.install.readiness import CONFIGURATION_ANNOTATION
from webhook.jsonfields.fields import mapping, sequence
from webhook.kube.api import VALIDATING_WEBHOOKS, Object
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.operations.creation import (
    COMPONENT,
    CreationRules,
    creation_objects,
    left_out,
    narrowed_entries,
)
from webhook.operations.creation.cel import cel_list
from webhook.operations.names import CONFIG_KEY, EXEMPT, GLASS_BREAKERS, TRUSTED
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.well_known import (
    ALWAYS_GATING,
    AUTO_GATING,
    CONFIG_MAP,
    DEFAULT_NAMESPACE,
    DEFERRED_RESOURCES_ANNOTATION,
    GATING_LABEL,
    NEVER_GATING,
)

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
"""Where the manifests are in a checkout; they are not part of the Python package."""

API_PRIORITY: Final = "components/api-priority"
"""A component that `scripts/install` does not apply, and that goes with the installation."""

IMAGE: Final = f"deferred-quota:{__version__}"

Mask: TypeAlias = Literal["policy", "webhook", "none"]
"""What hides deferred resources from the API server's own quota check: it itself, by a
MutatingAdmissionPolicy; the webhook; or nothing, for tests."""

_COMPONENTS: Final[dict[Mask, tuple[str, ...]]] = {
    "policy": ("mask-policy",),
    "webhook": ("mask-webhook",),
    "none": (),
}
_DEFAULT: Final = re.compile(rf"(?<![\w-]){DEFAULT_NAMESPACE}(?![\w-])")
_STAMPS: Final = "stamp-policy"
_IDENTITIES: Final = ("identity-policy", "device-claims")
_PAGE: Final = "page"
_ROTATION: Final = "rotation"
_NODE_FIT: Final = "node-fit"
_CLIENTS: Final = "client-auth"
_RECLAIM: Final[dict[ReclaimMode, tuple[str, ...]]] = {
    ReclaimMode.OFF: (),
    ReclaimMode.PLAN: ("reclaim-plan",),
    ReclaimMode.ACT: ("reclaim-plan", "reclaim"),
}
_CONFIG_MAP: Final = ("ConfigMap", CONFIG_MAP)
_PLAIN_KEYS: Final = (
    "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"
)  # fmt: skip
_USUAL_KEYS: Final = cel_list(_PLAIN_KEYS)
"""The list of them that stands in expressions of manifests."""
_CONFIGURATIONS: Final = frozenset(
    {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """An installation's objects, in the order in which they have to be there."""

    cluster: tuple[Object, ...]
    """Namespace, definitions of ledgers and of cluster quotas, rights."""
    page: tuple[Object, ...]
    """Rights and the Service of the controller's page, where that is wanted."""
    rotation: tuple[Object, ...]
    """Rights of the controller to keep the certificates, where that is wanted."""
    reclaim: tuple[Object, ...]
    """Rights of the controller to plan evictions for elastic quotas, and to evict."""
    node_fit: tuple[Object, ...]
    """Rights of the webhook to read nodes, where that is wanted."""
    configuration: tuple[Object, ...]
    """What the registrations and the mask go by, and what runs in the cluster."""
    identities: tuple[Object, ...]
    """The policies that hold our service accounts to what they need, and keep others from writing
    our kinds."""
    workloads: tuple[Object, ...]
    """What runs, and the CA of its clients; empty for a webhook that runs elsewhere."""
    stamps: tuple[Object, ...]
    """The policy that marks Bindings, where it is wanted; nothing counts on it."""
    registrations: tuple[Object, ...]
    """The webhook configurations. Before them the webhook has to answer."""
    entries: tuple[Object, ...] = field(repr=False)
    """The webhook configurations where the webhook decides about new pods; the same as the
    `registrations` without policies for that."""
    creation: tuple[Object, ...]
    """The policies that decide about new pods, where the API server does that itself."""
    masks: tuple[Object, ...]
    """The policy that hides deferred resources. Before it they have to be guarded."""

    @property
    def features(self) -> tuple[Object, ...]:
        """Parts that the configuration switches on and off: rights, and the page's Service."""
        return (*self.page, *self.rotation, *self.reclaim, *self.node_fit)

    @property
    def objects(self) -> list[Object]:
        """All of them, in order."""
        return [
            *self.cluster,
            *self.features,
            *self.configuration,
            *self.identities,
            *self.workloads,
            *self.stamps,
            *self.creation,
            *self.registrations,
            *self.masks,
        ]


def render(  # noqa: PLR0913 - what installations differ in
    *,
    namespace: str = DEFAULT_NAMESPACE,
    url: str = "",
    ca_pem: bytes = b"",
    mask: Mask = "policy",
    stamps: bool = False,
    page: PageSettings | None = None,
    rotates: bool = True,
    reclaim: ReclaimMode = ReclaimMode.PLAN,
    judges_nodes: bool = False,
    clients: KnownClients | None = None,
    deferred_resources: Collection[str] = (),
    exempt_namespaces: Collection[str] = (),
    gating: str = Configuration().gating,
    creation: CreationRules | None = None,
    trusted_users: Collection[str] = (),
    break_glass_groups: Collection[str] = Configuration().break_glass_groups,
    image: str = IMAGE,
    manifests: Path = MANIFESTS,
) -> Rendered:
    """Return the objects of an installation, by what they are for.

    Args:
        namespace: Where they are installed; the files name the default one.
        url: Where the webhook serves, as `https://HOST:PORT`, if it runs outside of the cluster:
            then there are no Deployments. Empty: behind its Service.
        ca_pem: What the API server trusts at that address; empty leaves the registrations without.
        mask: Which form of the mask.
        stamps: Whether Bindings are marked, by a policy.
        page: Settings of the controller's page; None is the default, without it.
        rotates: Whether the controller keeps the certificates of a webhook in the cluster.
        reclaim: What the controller does for elastic quotas that lent.
        judges_nodes: Whether the webhook judges the nodes of binds.
        clients: What clients a webhook in the cluster answers; None is all.
        deferred_resources: Extended resources that the configuration defers, as it names them.
        exempt_namespaces: Namespaces that the configuration exempts: nothing is asked about them,
            and nothing hidden in them, besides those that the manifests leave out.
        gating: `always`, `auto` or `never`, for namespaces that do not say it by a label.
        creation: What policies go by that decide about new pods; None where the webhook decides.
        trusted_users: Names of users that the product's own processes are besides its service
            accounts: they write ledgers too.
        break_glass_groups: Groups whose users may write ledgers by hand.
        image: What the Deployments run.
        manifests: The directory.

    Raises:
        InstallError: The manifests are not there, or not as they have to be.
    """
    if not manifests.is_dir():
        raise InstallError(f"{manifests}: the manifests are missing; run this from a checkout")
    cluster = read_directory(manifests / "base/cluster")
    configuration = read_directory(manifests / "base/configuration")
    workloads = [] if url else read_directory(manifests / "base/workloads")
    served = _page(page or PageSettings(), url, manifests)
    rotation = read_directory(manifests / "components" / _ROTATION) if rotates and not url else []
    components = [manifests / "components" / each for each in _RECLAIM[reclaim]]
    reclaiming = [obj for each in components for obj in read_directory(each)]
    judging = read_directory(manifests / "components" / _NODE_FIT) if judges_nodes else []
    rest = read_directory(manifests / "base/registrations")
    for name in (*_IDENTITIES, *_COMPONENTS[mask], *((_STAMPS,) if stamps else ())):
        rest = add_component(manifests / "components" / name, rest)
    if namespace != DEFAULT_NAMESPACE:
        cluster, configuration, workloads, rest, served, rotation, reclaiming, judging = (
            [cast("Manifest", _moved(each, namespace)) for each in some]
            for some in (
                *(cluster, configuration, workloads, rest),
                *(served, rotation, reclaiming, judging),
            )
        )
    for each in rest:
        if each["kind"] in _CONFIGURATIONS:
            _direct(each, url, ca_pem)
    for each in workloads:
        if each["kind"] == "Deployment":
            _run_image(each, image)
    workloads = _answering(clients, workloads, namespace, manifests)
    rest += _creation(creation, namespace)
    keys = (*_PLAIN_KEYS, *sorted(set(deferred_resources) - DEFERRED_KEYS))
    listed = cel_list(keys)
    rest = [cast("Manifest", _with_keys(each, listed)) for each in rest]
    exempt = {*Configuration().exempt_namespaces, *exempt_namespaces}
    lists = {
        EXEMPT: [namespace, *sorted(exempt - {namespace})],
        TRUSTED: sorted(trusted_users),
        GLASS_BREAKERS: sorted(break_glass_groups),
    }
    for each in rest:
        _leave_out(each, exempt_namespaces)
        _write_lists(each, lists)
        if gating == NEVER_GATING and _component(each) != COMPONENT:
            _ask_for_gates(each)
        _note_deferred(each, keys)
    entries = tuple(each for each in rest if _component(each) == "registration")
    return Rendered(
        cluster=tuple(cluster),
        page=tuple(served),
        rotation=tuple(rotation),
        reclaim=tuple(reclaiming),
        node_fit=tuple(judging),
        configuration=tuple(configuration),
        identities=tuple(each for each in rest if _component(each) == "identity"),
        workloads=tuple(workloads),
        stamps=tuple(each for each in rest if _component(each) == "stamp"),
        registrations=tuple(_narrowed(each, creation) for each in entries),
        entries=entries,
        creation=tuple(each for each in rest if _component(each) == COMPONENT),
        masks=tuple(each for each in rest if _component(each) == "mask"),
    )


def render_everything(namespace: str, manifests: Path) -> Rendered:
    """Return the objects that an installation may have left, however it was made."""
    return render(
        namespace=namespace,
        mask="policy",
        stamps=True,
        page=PageSettings(enabled=True),
        reclaim=ReclaimMode.ACT,
        judges_nodes=True,
        creation=CreationRules(),
        manifests=manifests,
    )


def configured(objects: Sequence[Object], configuration: str) -> list[Object]:
    """Return objects with the configuration in its ConfigMap, and its hash on the pods.

    So pods are replaced when it changes: what runs then was started with it.
    """
    digest = hashlib.sha256(configuration.encode()).hexdigest()[:16]
    made: list[Object] = []
    for each in objects:
        if (each["kind"], mapping(each["metadata"], "metadata").get("name")) == _CONFIG_MAP:
            made.append({**each, "data": {CONFIG_KEY: configuration}})
        elif each["kind"] == "Deployment":
            made.append(_annotated(each, digest))
        else:
            made.append(each)
    return made


def _annotated(deployment: Object, digest: str) -> Object:
    spec = mapping(deployment.get("spec"), "spec")
    template = mapping(spec.get("template"), "spec.template")
    metadata = mapping(template.get("metadata"), "spec.template.metadata")
    annotations = mapping(metadata.get("annotations"), "annotations")
    annotations = {**annotations, CONFIGURATION_ANNOTATION: digest}
    template = {**template, "metadata": {**metadata, "annotations": annotations}}
    return {**deployment, "spec": {**spec, "template": template}}


def _creation(rules: CreationRules | None, namespace: str) -> list[Manifest]:
    """Return the policies for new pods, where there are to be some."""
    if rules is None:
        return []
    made = creation_objects(replace(rules, left_out=left_out(namespace, ())))
    return [cast("Manifest", each) for each in made]


def _narrowed(configuration: Object, rules: CreationRules | None) -> Object:
    """Return a webhook configuration without what policies decide."""
    if rules is None:
        return configuration
    return {**configuration, "webhooks": narrowed_entries(entries_of(configuration), rules)}


def _answering(
    clients: KnownClients | None, workloads: list[Manifest], namespace: str, manifests: Path
) -> list[Manifest]:
    """Return what runs, with a webhook that answers some clients only where some are named."""
    if clients is None or not workloads:
        return workloads
    know_clients(workloads, clients, manifests / "components" / _CLIENTS)
    return [client_authority(clients, namespace), *workloads]


def _page(settings: PageSettings, url: str, manifests: Path) -> list[Manifest]:
    """Return the objects of the page; without pods of the cluster it needs no Service."""
    if not settings.enabled:
        return []
    objects = read_directory(manifests / "components" / _PAGE)
    services = [each for each in objects if each["kind"] == "Service"]
    for service in services:
        (port,) = sequence(mapping(service.get("spec"), "spec").get("ports"), "spec.ports")
        cast("Manifest", port)["targetPort"] = settings.port
    return [each for each in objects if not (url and each in services)]


def _moved(value: object, namespace: str) -> object:
    """Return a value of a manifest with another namespace wherever the default one is named.

    Besides metadata these are the Services of webhooks, subjects of bindings, selectors that leave
    the namespace out by name, and the user names in expressions.
    """
    if isinstance(value, str):
        return _DEFAULT.sub(namespace, value)
    if isinstance(value, dict):
        return {name: _moved(item, namespace) for name, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, namespace) for item in value]
    return value


def _component(obj: Object) -> object:
    labels = mapping(mapping(obj.get("metadata"), "metadata").get("labels"), "metadata.labels")
    return labels.get("app.kubernetes.io/component")


def _direct(configuration: Manifest, url: str, ca_pem: bytes) -> None:
    """Write into every entry where the webhook is and what to trust there."""
    for entry in entries_of(configuration):
        client = dict(mapping(entry.get("clientConfig"), "clientConfig"))
        if url:
            path = mapping(client.get("service"), "clientConfig.service").get("path", "")
            client = {"url": f"{url.rstrip('/')}{path}"}
        if ca_pem:
            client["caBundle"] = base64.b64encode(ca_pem).decode("ascii")
        entry["clientConfig"] = client


def _note_deferred(configuration: Manifest, keys: Collection[str]) -> None:
    """Write beside the guard which resources are deferred by configuration, also if none are."""
    if configuration["kind"] != VALIDATING_WEBHOOKS.kind:
        return
    metadata = cast("Manifest", configuration["metadata"])
    names = ",".join(key for key in keys if key not in DEFERRED_KEYS)
    notes = mapping(metadata.get("annotations"), "metadata.annotations")
    metadata["annotations"] = {**notes, DEFERRED_RESOURCES_ANNOTATION: names}


def _run_image(deployment: Manifest, image: str) -> None:
    spec = mapping(deployment.get("spec"), "spec")
    pod = mapping(mapping(spec.get("template"), "template").get("spec"), "template.spec")
    for container in sequence(pod.get("containers"), "containers"):
        cast("Manifest", container)["image"] = image


def _leave_out(value: object, names: Collection[str]) -> None:
    """Add namespaces to every selector that leaves out some by name."""
    if isinstance(value, dict):
        if _names_namespaces(value):
            shipped = [str(name) for name in sequence(value.get("values"), "values")]
            value["values"] = [*shipped, *sorted(set(names) - set(shipped))]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _leave_out(item, names)


def _ask_for_gates(value: object) -> None:
    """Let selectors that spare namespaces without gating select those that ask for gates.

    Those that select them select all but the latter.
    """
    if isinstance(value, dict):
        if value.get("key") == GATING_LABEL:
            operator = "In" if value["operator"] == "NotIn" else "NotIn"
            value.update(operator=operator, values=[ALWAYS_GATING, AUTO_GATING])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _ask_for_gates(item)


def excluded_namespaces(value: object) -> set[str]:
    """Return the namespaces that the selectors of an object leave out by name."""
    if isinstance(value, dict):
        if _names_namespaces(value):
            return {str(name) for name in sequence(value.get("values"), "values")}
        value = list(value.values())
    return set().union(*map(excluded_namespaces, value)) if isinstance(value, list) else set()


def _names_namespaces(expression: Mapping[str, object]) -> bool:
    return expression.get("key") == NAMESPACE_NAME_LABEL and expression.get("operator") == "NotIn"


def _write_lists(policy: Manifest, lists: Mapping[str, Sequence[str]]) -> None:
    """Write names into the variables of a policy that list some."""
    if policy["kind"] != "ValidatingAdmissionPolicy":
        return
    spec = mapping(policy.get("spec"), "spec")
    for item in sequence(spec.get("variables"), "variables"):
        variable = cast("Manifest", item)
        if variable["name"] in lists:
            variable["expression"] = cel_list(lists[str(variable["name"])])


def _with_keys(value: object, listed: str) -> object:
    """Write the list of the deferred keys into every expression that lists the usual ones."""
    if isinstance(value, str):
        return value.replace(_USUAL_KEYS, listed)
    if isinstance(value, dict):
        return {name: _with_keys(item, listed) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_keys(item, listed) for item in value]
    return value
