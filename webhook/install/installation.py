"""Install deferred-quota, in an order in which the API server calls nothing that is not there yet.

1. Namespace, CustomResourceDefinitions, rights, and the policies that restrict the rights: nothing
   uses them yet.
2. Certificates. If there are registrations already and the CA is new, they trust it beside the
   former one, before a webhook serves with it.
3. The configuration and the Deployments, until every replica runs with that configuration and a
   controller leads. If there is a mask already, it first stops hiding what the new configuration
   does not defer: until then it may hide only what both the former processes and the new ones
   charge.
4. The registrations: from now on the API server calls the webhook. They come late, because entries
   that charge stop what the webhook does not answer, and because the API server has to enforce the
   quotas of a namespace before the registrations leave it out. If the webhook moves, or its CA
   changes, the API server first has to reach the new one; then all entries call it, and after that
   the former CA is removed.
5. The mask, last: until then the API server enforces quotas as before. Policies and objects of the
   page that an earlier installation had and this one has not are removed.

Repeated, this changes nothing, or finishes what was left. If it ends between two writes, what works
goes on, and a message says what is installed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from webhook.config import (
    BindNodeFit,
    Configuration,
    ConfigurationError,
    ReclaimMode,
    load_configuration,
)
from webhook.install.apply import Applier, InstallApi, current, describe, is_foreign_definition
from webhook.install.certificates import Certificates, bundle_of, certificates
from webhook.install.clients import KnownClients, client_authority, installed_clients
from webhook.install.emergency.switching import EmergencySwitch
from webhook.install.endpoint_changes import endpoint_changes, is_registered, trusted_now
from webhook.install.endpoint_switch import Redirection
from webhook.install.exemption import dropped_resources, wait_until_enforced
from webhook.install.kustomizations import InstallError
from webhook.install.place import is_kept_by_helm, namespace_to_install
from webhook.install.policies import (
    MUTATING_POLICIES,
    VALIDATING_POLICIES,
    Choice,
    Form,
    apply_identities,
    check_stamps,
    choose_form,
    drop_entries,
    remove_objects,
)
from webhook.install.readiness import (
    wait_for_deletions,
    wait_until_available,
    wait_until_established,
    wait_until_led,
)
from webhook.install.rendering import (
    IMAGE,
    MANIFESTS,
    Mask,
    Rendered,
    configured,
    excluded_namespaces,
    render,
    render_everything,
)
from webhook.jsonfields.fields import differences, mapping, string_map
from webhook.kube.api import (
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    POD_GATINGS,
    SECRETS,
    ClusterApi,
    Object,
    find_object,
)
from webhook.kube.metadata import object_name, object_namespace
from webhook.operations.creation import (
    AUTO_GATE_POLICY,
    CreationRules,
    creation_objects,
    left_out,
    without_gating,
)
from webhook.operations.emergency_state import opened_object
from webhook.operations.names import CONFIG_KEY, OPTED_IN
from webhook.operations.retry import Report, RetryPolicy, silent
from webhook.policy import check_configuration
from webhook.state.feature_gates import PROBE_MINOR
from webhook.state.well_known import CA_SECRET, CONFIG_MAP, TLS_SECRET
from webhook.tls.bootstrap import IssuedParts
from webhook.tls.rotation_store import CertificateStore, ForeignCertificatesError

_GATES: Final = "MutatingAdmissionPolicy"
_GATING_SECONDS: Final = 60.0
"""How long a leader has to make PodGatings; an older one makes none."""
_MOST_NAMED: Final = 5
OLDEST_MINOR: Final = 30
"""Kubernetes 1.30: the first in which conditions of webhooks are final."""

PATIENCE: Final = RetryPolicy(seconds=300, pause_seconds=1)

_NO_CONFIGURATION: Final = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"


_KEPT_BY_HELM: Final = (
    "helm: a release has this installation, and its next upgrade will stop at what is written now;"
    " use helm upgrade instead, or give that --force-conflicts"
)
_STAYS_OPEN: Final = (
    "emergency: it was opened, and stays so: nothing is asked and nothing hidden until you run"
    " deferred-quota emergency close"
)
_DEFINITION: Final = "CustomResourceDefinition"
_CREATION_WORDS: Final[Mapping[Form, str]] = {
    "policy": "by policies in the API server itself (MutatingAdmissionPolicy)",
    "webhook": "by the webhook",
}
_MASK_WORDS: Final[Mapping[Mask, str]] = {
    "policy": "by the API server itself (MutatingAdmissionPolicy)",
    "webhook": "by the webhook",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """Options of an installation."""

    namespace: str = ""
    """Where to install; empty is where it is already, else the default."""
    mask: Choice = "auto"
    """Which form of the mask; "auto" takes what the API server has."""
    creation: Choice | None = "auto"
    """What decides about new pods: policies in the API server, or the webhook; None is what does
    already, at a first installation the webhook."""
    stamps: bool = False
    """Whether Bindings are marked, so that pods show that they came through the guard."""
    image: str = IMAGE
    """What the Deployments run."""
    url: str = ""
    """Where the webhook serves if it runs outside of the cluster; else empty."""
    ca_pem: bytes | None = None
    """What to trust at that address; empty is what the API server's own machine trusts, None what
    is trusted there already."""
    clients: KnownClients | None = None
    """What clients the webhook in the cluster answers; None keeps what is installed."""
    answers_all: bool = False
    """Whether it answers all clients, whatever is installed."""
    configuration: str | None = None
    """Text of the configuration; None keeps the one that is installed."""
    dry_run: bool = False
    """Let the API server check, and change nothing."""
    waits: bool = True
    """Whether to wait for the Deployments before the API server calls them."""
    patience: RetryPolicy = PATIENCE
    """How long to wait for one thing."""
    keeps_open: bool = False
    """Whether the emergency is open, and stays so: what is installed selects no namespace."""
    manifests: Path = MANIFESTS


def install(api: InstallApi, wish: InstallOptions, report: Report) -> int:
    """Install, or bring an installation up to date; return how many objects changed.

    Raises:
        InstallError: Something is not as it has to be; what was done until then stays.
        ApiError: The API server refused something, or does not answer.
    """
    minor = _supported_minor(api)
    wish = replace(wish, namespace=namespace_to_install(api, wish.namespace))
    mask = _mask(api, wish, report)
    wish = replace(wish, creation=_creation(api, wish, report))
    wish = _as_found(api, wish, report)
    wish = replace(wish, clients=_clients(api, wish, report))
    installed = _installed_configuration(api, wish.namespace)
    if installed is None and wish.configuration is None and is_registered(api):
        raise InstallError(
            f"ConfigMap {wish.namespace}/{CONFIG_MAP}: is not there, although an installation is;"
            " what it exempts and defers would be given up: give it with --config FILE"
        )
    texts = (wish.configuration, installed, _NO_CONFIGURATION)
    configuration = next(text for text in texts if text is not None)
    settings = _read(configuration, wish)
    for line in (
        *endpoint_changes(
            api,
            wish.url,
            namespace=wish.namespace,
            manifests=wish.manifests,
            dry_run=wish.dry_run,
        ),
        *_configured_elsewhere(wish, installed),
    ):
        report(line)
    wish = replace(wish, ca_pem=_trusted(api, wish, report))
    parts = _render(wish, mask, settings)
    patience = wish.patience if wish.waits and not wish.dry_run else None
    wait_for_deletions(api, parts.cluster, patience, report)
    applier = Applier(api, report, dry_run=wish.dry_run)
    dropped = dropped_resources(api, settings.deferred_resources)
    redirection = Redirection(api, applier, report, parts.registrations)
    try:
        until_then = _in_force_now(api, parts, settings, dropped)
        early = parts.identities if wish.dry_run else _render(wish, mask, until_then).identities
        _prepare(api, applier, wish, replace(parts, identities=early), report, minor=minor)
        if wish.url:
            redirection.trust(wish.ca_pem or b"")
        else:
            bundle = _certify(api, applier, redirection, report, namespace=wish.namespace)
            parts = _render(replace(wish, ca_pem=bundle), mask, settings)
        narrowed = _narrowed_masks(api, wish, installed, settings, dropped)
        _apply_as_found(api, applier, wish, narrowed)
        applier.apply_all(configured((*parts.configuration, *parts.workloads), configuration))
        _wait_until_in_force(api, wish, parts, settings, dropped, report)
        _redirect(api, wish, redirection, parts.entries)
        _let_policies_decide(api, applier, wish, parts)
        _wait_until_gated(api, wish, parts, settings, report)
        _apply_and_settle(api, applier, wish, (*parts.stamps, *parts.registrations))
        drop_entries(api, parts.entries, parts.registrations, applier, report)
        if early != parts.identities:
            apply_identities(api, parts.identities, applier, report, minor=minor)
        if not wish.waits and (narrowed or installed not in {None, configuration}):
            report(
                "mask: hides what was deferred before, at most; run this again without --no-wait"
            )
        else:
            _apply_as_found(api, applier, wish, parts.masks)
        remove_objects(api, _unwanted(wish, mask, parts), applier, report)
    except BaseException:
        if words := redirection.unfinished():
            report(words)
        raise
    return applier.changes


# -- inside --------------------------------------------------------------------------------


def _as_found(api: InstallApi, wish: InstallOptions, report: Report) -> InstallOptions:
    """Return what to install where an emergency may be open; report who else keeps it."""
    keeps_open = EmergencySwitch(api, report, wish.patience).state().is_begun
    if keeps_open:
        report(_STAYS_OPEN)
    elif is_kept_by_helm(api):
        report(_KEPT_BY_HELM)
    return replace(wish, keeps_open=keeps_open)


def _apply_as_found(
    api: InstallApi, applier: Applier, wish: InstallOptions, objects: Iterable[Object]
) -> None:
    """Apply what selects namespaces, where the emergency is as it was at the start.

    An installation waits for minutes, in which an administrator opens or closes it: guards would be
    back without a recount, or gone without a note.

    Raises:
        InstallError: It is not as it was.
    """
    if EmergencySwitch(api, silent, wish.patience).state().is_begun != wish.keeps_open:
        change = "closed" if wish.keeps_open else "opened"
        raise InstallError(f"the emergency was {change} meanwhile: run this again")
    applier.apply_all(objects)


def _mask(api: InstallApi, wish: InstallOptions, report: Report) -> Mask:
    """Return the form of the mask, where the API server has all policies that are wanted."""
    mask = choose_form(api, "--mask", wish.mask)
    if wish.stamps:
        check_stamps(api)
    report(f"mask: {_MASK_WORDS[mask]}")
    return mask


def _creation(api: InstallApi, wish: InstallOptions, report: Report) -> Form:
    """Return what decides about new pods, where the API server can have that."""
    needs = {MUTATING_POLICIES, VALIDATING_POLICIES}
    wanted = wish.creation or _installed_creation(api)
    form = choose_form(api, "--creation", wanted, needs)
    report(f"new pods: {_CREATION_WORDS[form]}")
    return form


def _clients(api: InstallApi, wish: InstallOptions, report: Report) -> KnownClients | None:
    """Return what clients the webhook is to answer; None is all."""
    if wish.url or wish.answers_all:
        return None
    clients = wish.clients or installed_clients(api, wish.namespace)
    if clients:
        names = ", ".join(clients.names)
        report(
            f"clients: the webhook answers only those with a certificate for {names};"
            " deferred-quota doctor finds whether the API server shows one"
        )
    return clients


def _installed_creation(api: InstallApi) -> Choice:
    """Return what decides about new pods now, or is on its way to it; at first, what there is."""
    if not is_registered(api):
        return "auto"
    gates = (each for each in creation_objects(CreationRules()) if each["kind"] == _GATES)
    return "policy" if any(current(api, each) is not None for each in gates) else "webhook"


def _let_policies_decide(
    api: InstallApi, applier: Applier, wish: InstallOptions, parts: Rendered
) -> None:
    """Apply the policies for new pods, so that every API server goes by them.

    Until then the entries of the webhook decide: also where other policies are there already, which
    may be about other namespaces than those to come. Both together do no more than one of them.
    """
    if not any(_is_other(each, current(api, each)) for each in parts.creation):
        applier.leave_all(parts.creation)
        return
    if not applier.dry_run and is_registered(api):
        _apply_and_settle(api, applier, wish, parts.entries)
    _apply_and_settle(api, applier, wish, parts.creation)


def _wait_until_gated(
    api: InstallApi,
    wish: InstallOptions,
    parts: Rendered,
    settings: Configuration,
    report: Report,
) -> None:
    """Wait for what policies go by in namespaces that are gated by need; the entry goes after that.

    The controller makes it. None that does is no reason to stop: the bind is guarded all the same.
    """
    if wish.dry_run or not any(_gates_by_need(each) for each in parts.creation):
        return
    seconds = min(wish.patience.seconds, _GATING_SECONDS)
    wait = replace(wish.patience, seconds=seconds).begin()
    exempt = left_out(wish.namespace, settings.exempt_namespaces)
    while missing := wait.retry(lambda: _ungated(api, settings.gating, exempt)):
        if not wish.waits or not wait.pause():
            names = ", ".join(missing[:_MOST_NAMED])
            report(
                f"new pods: no PodGating in {names}: until a controller of this release leads, no"
                " pod is gated there"
            )
            return


def _gates_by_need(obj: Object) -> bool:
    return object_name(obj) == AUTO_GATE_POLICY


def _ungated(api: InstallApi, gating: str, exempt: Collection[str]) -> list[str]:
    stored = set(map(object_namespace, api.list(POD_GATINGS).items))
    namespaces = {
        str(each["name"]): string_map(each.get("labels"), "metadata.labels")
        for each in _opted_in(api, exempt)
    }
    return without_gating(namespaces, gating, stored)


def _is_other(wanted: Object, found: Object | None) -> bool:
    return next(differences(wanted, found), None) is not None


def _apply_and_settle(
    api: InstallApi, applier: Applier, wish: InstallOptions, objects: Iterable[Object]
) -> None:
    """Apply what API servers go by, and wait until every one of them knows what was changed.

    Raises:
        InstallError: The emergency was opened or closed since this began.
    """
    before = applier.changes
    _apply_as_found(api, applier, wish, objects)
    if applier.changes > before and not wish.dry_run:
        wish.patience.begin().wait_for_caches()


def _prepare(
    api: InstallApi,
    applier: Applier,
    wish: InstallOptions,
    parts: Rendered,
    report: Report,
    *,
    minor: int,
) -> None:
    """Apply what our processes need before they run: definitions, rights, and their bounds."""
    foreign = [each for each in parts.cluster if is_foreign_definition(current(api, each))]
    for each in foreign:
        report(f"{describe(each)}: is another program's, and left as it is")
    lacks_gates = 0 < minor < PROBE_MINOR
    cluster = [
        each
        for each in parts.cluster
        if each not in foreign and not (lacks_gates and each["kind"] == JOBS.kind)
    ]
    applier.apply_all((*cluster, *parts.features))
    if not wish.dry_run:
        for definition in (each for each in parts.cluster if each["kind"] == _DEFINITION):
            wait_until_established(api, definition, wish.patience)
    apply_identities(api, parts.identities, applier, report, minor=minor)


def _trusted(api: InstallApi, wish: InstallOptions, report: Report) -> bytes:
    """Return the CAs to trust at the URL: those given, else those that are trusted there now.

    Raises:
        InstallError: Without a URL, the certificates are another program's.
    """
    if not wish.url:
        _certificates(api, wish.namespace)
    if wish.ca_pem is not None or not wish.url:
        return wish.ca_pem or b""
    kept = trusted_now(api, wish.url)
    if kept:
        report(f"trust: the CA that was given for {wish.url} before stays")
    else:
        report(
            f"trust: no --ca, so the API server accepts at {wish.url} only certificates of CAs that"
            " its own machine trusts; for one of `deferred-quota certs bootstrap`, give --ca FILE"
        )
    return kept


def _in_force_now(
    api: InstallApi, parts: Rendered, wanted: Configuration, dropped: Collection[str]
) -> Configuration:
    """Return a configuration as far as it is in force before the registrations change.

    Exempt are namespaces that no guard is called about already, and dropped resources are deferred:
    until then our service accounts have to work there, and with them.
    """
    there = [found for found in (current(api, each) for each in parts.registrations) if found]
    left = [excluded_namespaces(each) for each in there]
    return replace(
        wanted,
        exempt_namespaces=wanted.exempt_namespaces.intersection(*left),
        deferred_resources=(*wanted.deferred_resources, *dropped),
    )


def _configured_elsewhere(wish: InstallOptions, installed: str | None) -> Iterator[str]:
    """Yield that processes outside of the cluster do not read a configuration that is new."""
    if wish.url and wish.configuration not in {None, installed}:
        yield (
            f"configuration: what runs for {wish.url} keeps that of its own file: change the file"
            " of `serve --config` as well, which takes effect within seconds, or at a restart"
            " where docs/configuration.md says so"
        )


def _supported_minor(api: InstallApi) -> int:
    """Return the minor version of an API server of Kubernetes 1, 0 if it does not say it.

    Raises:
        InstallError: It is older than what is supported.
    """
    version = api.server_version()
    digits = "".join(each for each in str(version.get("minor", "")) if each.isdecimal())
    minor = int(digits) if digits and str(version.get("major")) == "1" else 0
    if 0 < minor < OLDEST_MINOR:
        raise InstallError(
            f"Kubernetes 1.{OLDEST_MINOR} or newer is needed; this API server is"
            f" {version.get('gitVersion')}"
        )
    return minor


def _installed_configuration(api: ClusterApi, namespace: str) -> str | None:
    """Return the text of the configuration that is installed; None when there is none."""
    installed = find_object(api, CONFIG_MAPS, CONFIG_MAP, namespace=namespace) or {}
    return string_map(installed.get("data"), "data").get(CONFIG_KEY)


def _read(text: str, wish: InstallOptions) -> Configuration:
    """Judge the configuration that is given, or the one that is installed and would stay."""
    is_given = wish.configuration is not None
    source = "--config" if is_given else f"ConfigMap {wish.namespace}/{CONFIG_MAP}"
    try:
        return load_configuration(text, source, check=check_configuration)
    except ConfigurationError as err:
        remedy = "" if is_given else "; it is installed: give another one with --config FILE"
        raise InstallError(f"{err}{remedy}") from err


def _render(wish: InstallOptions, mask: Mask, configuration: Configuration) -> Rendered:
    rendered = render(
        namespace=wish.namespace,
        url=wish.url,
        ca_pem=wish.ca_pem or b"",
        mask=mask,
        stamps=wish.stamps,
        page=configuration.page,
        rotates=configuration.certificates.rotate,
        reclaim=_reclaim_of(configuration),
        judges_nodes=configuration.node_fit is not BindNodeFit.OFF,
        clients=wish.clients,
        deferred_resources=configuration.deferred_resources,
        exempt_namespaces=configuration.exempt_namespaces,
        gating=configuration.gating,
        creation=CreationRules.of(configuration) if wish.creation == "policy" else None,
        trusted_users=configuration.trusted_users,
        break_glass_groups=configuration.break_glass_groups,
        image=wish.image,
        manifests=wish.manifests,
    )
    if not wish.keeps_open:
        return rendered
    return replace(
        rendered,
        stamps=tuple(map(opened_object, rendered.stamps)),
        registrations=tuple(map(opened_object, rendered.registrations)),
        entries=tuple(map(opened_object, rendered.entries)),
        creation=tuple(
            opened_object(each) if each["kind"] == "MutatingAdmissionPolicyBinding" else each
            for each in rendered.creation
        ),
        masks=tuple(map(opened_object, rendered.masks)),
    )


def _reclaim_of(configuration: Configuration) -> ReclaimMode:
    elastic = configuration.elastic
    return elastic.reclaim.mode if elastic.enabled else ReclaimMode.OFF


def _unwanted(wish: InstallOptions, mask: Mask, wanted: Rendered) -> list[Object]:
    """Return the objects that an earlier installation may have left, and this one has not."""
    every = render_everything(wish.namespace, wish.manifests)
    kept = {describe(each) for each in (*wanted.features, *wanted.creation)}
    former = [each for each in (*every.features, *every.creation) if describe(each) not in kept]
    stamps = () if wish.stamps else every.stamps
    authority = () if wish.clients else (client_authority(KnownClients("", ()), wish.namespace),)
    return [*former, *authority, *stamps, *(() if mask == "policy" else every.masks)]


def _narrowed_masks(
    api: ClusterApi,
    wish: InstallOptions,
    installed: str | None,
    wanted: Configuration,
    dropped: Collection[str],
) -> list[Object]:
    """Return the mask that is there as it may be while the configuration changes.

    It hides no more than it does already and both configurations defer, and in no namespace that
    it left out or one of them exempts. Nothing is returned where that is what it will be, unless
    it leaves out more than now, or a resource is dropped: the guard may do that only when the API
    server enforces again.
    Of processes that run elsewhere the former configuration is not known.
    """
    if wish.dry_run:
        return []
    try:
        before = wanted if wish.url or installed is None else _read(installed, wish)
    except InstallError:
        before = Configuration()  # what runs could not read it either: the least may be hidden
    masks = _render(wish, "policy", wanted).masks
    there = [found for found in (current(api, each) for each in masks) if found is not None]
    text = str(there)
    left_out_now = set[str]().union(*map(excluded_namespaces, there))
    both = replace(
        wanted,
        deferred_resources=tuple(
            key
            for key in wanted.deferred_resources
            if key in before.deferred_resources and f"'{key}'" in text
        ),
        exempt_namespaces=wanted.exempt_namespaces | before.exempt_namespaces | left_out_now,
    )
    narrowed = _render(wish, "policy", both).masks
    leaves_out_no_more = wanted.exempt_namespaces <= left_out_now and not dropped
    if not there or (narrowed == masks and leaves_out_no_more):
        return []
    return [each for each in narrowed if current(api, each) is not None]


def _certify(
    api: InstallApi, applier: Applier, redirection: Redirection, report: Report, *, namespace: str
) -> bytes:
    """See to good certificates; return what the API server has to trust."""
    wanted, ca, tls = _certificates(api, namespace)
    for reason in wanted.reasons:
        report(f"not kept: {reason}")
    report(
        f"certificates: {'kept' if wanted.made is IssuedParts.NOTHING else f'new {wanted.made}'}"
    )
    applier.apply(_at_version(wanted.ca, ca))
    redirection.trust(wanted.bundle)  # also of a CA that an earlier run made, and came no further
    applier.apply(_at_version(wanted.tls, tls))
    if applier.dry_run:
        return wanted.bundle
    # another installation may have been at work: what counts is what the webhook will serve
    return bundle_of(api.get(SECRETS, TLS_SECRET, namespace=namespace))


def _certificates(
    api: ClusterApi, namespace: str
) -> tuple[Certificates, Object | None, Object | None]:
    """Return what the Secrets have to hold, and both as they are.

    Raises:
        InstallError: One of them is not ours.
    """
    ca, tls = (
        find_object(api, SECRETS, name, namespace=namespace) for name in (CA_SECRET, TLS_SECRET)
    )
    wanted = certificates(
        ca,
        tls,
        namespace=namespace,
        now=datetime.now(UTC),
        registered=_registered_bundles(api, namespace),
    )
    return wanted, ca, tls


def _registered_bundles(api: ClusterApi, namespace: str) -> tuple[bytes, ...]:
    """Return what the entries trust that call the Service; nothing where cert-manager writes it."""
    try:
        return tuple(one.bundle for one in CertificateStore(api, namespace).entries())
    except ForeignCertificatesError:
        return ()


def _redirect(
    api: InstallApi, wish: InstallOptions, redirection: Redirection, registrations: Sequence[Object]
) -> None:
    """Redirect the API server, or let it forget a CA, once it reaches the new place."""
    if wish.waits and not wish.dry_run:
        exempt = set().union(*map(excluded_namespaces, registrations))
        redirection.verify(registrations, lambda: _asked_about(api, exempt), wish.patience)
    if redirection.redirect(registrations) and not wish.dry_run:
        wish.patience.begin().wait_for_caches()  # until every API server asks there


def _asked_about(api: ClusterApi, exempt: Collection[str]) -> list[str]:
    """Return the namespaces about which guards are asked."""
    return [str(each["name"]) for each in _opted_in(api, exempt)]


def _opted_in(api: ClusterApi, exempt: Collection[str]) -> list[Object]:
    """Return the metadata of opted-in namespaces, but of those that are being deleted."""
    found = api.list(NAMESPACES, OPTED_IN).items
    metadata = (mapping(each.get("metadata"), "metadata") for each in found)
    return [
        each
        for each in metadata
        if not each.get("deletionTimestamp") and str(each["name"]) not in exempt
    ]


def _at_version(wanted: Object, found: Object | None) -> Object:
    """Return what is wanted, to be applied only in the place of what was found."""
    if found is None:
        return wanted
    version = mapping(found.get("metadata"), "metadata")["resourceVersion"]
    metadata = {**mapping(wanted.get("metadata"), "metadata"), "resourceVersion": version}
    return {**wanted, "metadata": metadata}


def _wait_until_in_force(
    api: ClusterApi,
    wish: InstallOptions,
    parts: Rendered,
    configuration: Configuration,
    dropped: Collection[str],
    report: Report,
) -> None:
    """Wait for the replicas, and for the API server to enforce what will not be charged then."""
    _wait_for_workloads(api, wish, parts, report)
    if not wish.dry_run:
        patience = wish.patience if wish.waits else None
        exempt = configuration.exempt_namespaces
        wait_until_enforced(api, exempt, frozenset(dropped), patience, report)


def _wait_for_workloads(
    api: ClusterApi, wish: InstallOptions, parts: Rendered, report: Report
) -> None:
    if wish.dry_run or not wish.waits:
        return
    for each in parts.workloads:
        if each["kind"] == "Deployment":
            report(f"{describe(each)}: waiting until all replicas are ready")
            wait_until_available(api, each, wish.patience)
    if parts.workloads:
        report("controller: waiting until one leads")
        wait_until_led(api, wish.namespace, wish.patience)
