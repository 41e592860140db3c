"""Context of the checks: a cluster, read once where that is enough, and how to judge it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final, Generic, TypeAlias, TypeVar

from webhook.config import Configuration, TerminatingPods
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    EVENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ApiError,
    ClusterApi,
    ForbiddenError,
    ListOptions,
    NotFoundError,
    Object,
)
from webhook.kube.kinds import DEVICE_CLASSES, Kind
from webhook.kube.metadata import time_text
from webhook.operations.cluster_quotas import SharedQuota, concerning, quotas_of, read_shared
from webhook.operations.creation import CreationRules
from webhook.operations.deployments import asked_at
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError, ResourceAttributes
from webhook.operations.emergency_state import (
    GUARDS,
    OTHERS,
    POLICY_BINDINGS,
    EmergencyState,
    state_of,
)
from webhook.operations.findings import Finding, Subject, error, subject_of
from webhook.operations.names import POLICY_VERSIONS, policy_kinds
from webhook.operations.reading import read_all, read_pod
from webhook.quota.charging.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.lazy_ledger import identity_of
from webhook.state.ledger_store import LEDGER_NAME
from webhook.state.object_decoders import decode_pod
from webhook.state.well_known import (
    DEFAULT_NAMESPACE,
    DEFERRED_MODE,
    MODE_LABEL,
    REGISTRATION,
    SHADOW_MODE,
)

_T = TypeVar("_T")

_FEW: Final = 32
"""Namespaces that are asked about one by one: lists over a cluster may be long."""
_SMALL_PART: Final = 50
"""As few are less than one in so many of all namespaces."""
_LEDGERS: Final = f"metadata.name={LEDGER_NAME}"

_EVENTS_OF_CLUSTER: Final = "default"
"""Where events are kept of objects without namespace."""
_EVENT_SOURCE: Final = "deferred-quota"
_CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""How far the clocks of those who write events may be ahead of this one."""

Validity: TypeAlias = tuple[datetime, datetime]
"""From when to when a certificate is valid."""


def _not_tried(_: str) -> bool:
    return False


def _no_answer(_: str) -> Object:
    return {}


def _nothing_served(_: str) -> bytes:
    return b""


def _no_certificates(_: bytes) -> Sequence[Validity]:
    return ()


def _no_refusal(_certificate: bytes | str, _bundle: bytes) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings by which the checks judge."""

    deferred_keys: Set[str] = DEFERRED_KEYS
    """Quota keys that are charged at the bind."""
    holds_terminating: bool = False
    """Pods that are stuck terminating are charged until they are gone."""
    exempt: Set[str] = field(default_factory=lambda: Configuration().exempt_namespaces)
    """Namespaces that are never touched."""
    system_namespace: str = DEFAULT_NAMESPACE
    rotates: bool = True
    """Whether the controller keeps the certificates of a webhook in the cluster."""
    rejected: str = ""
    """Why the installed configuration cannot be used; empty when it can."""
    gating: str = Configuration().gating
    """`always`, `auto` or `never`, for namespaces that do not say it by a label."""
    creation: CreationRules = field(default_factory=CreationRules)
    """What policies go by that decide about new pods, but for the namespaces that they leave
    out."""
    trusted_users: Set[str] = frozenset()
    """Users that the webhook takes for the product's own processes, besides its service
    accounts."""
    glass_breakers: Set[str] = field(default_factory=lambda: Configuration().break_glass_groups)
    """Groups that may do what else only the product may."""
    namespaces: tuple[str, ...] = ()
    """Look only at these; empty is all."""
    assumed: Set[str] = frozenset()
    """Namespaces to be judged as if they had opted in."""
    assumed_mode: str = DEFERRED_MODE
    """What they are taken to have opted in to."""
    expire_seconds: float = 45.0
    """How long the controller keeps a reservation that comes to nothing."""
    is_offline: bool = False
    """The cluster is a snapshot: nothing moves, and what is missing may only not be in it."""
    complete: Set[Kind] = frozenset()
    """Kinds of which the snapshot has all that there are, also where that is none."""
    pause_seconds: float = 3.0
    """Between two looks at what may be changing just now."""
    leader_seconds: float = 20.0
    """How long to look at the Lease for a sign of life."""
    read_bundle: Callable[[bytes], Sequence[Validity]] = _no_certificates
    """Reads PEM certificates; raises ValueError when it cannot."""
    refusal: Callable[[bytes, bytes], str] = _no_refusal
    """Says why a bundle does not verify a certificate and the CAs behind it, all PEM; empty if it
    does."""
    refusal_at: Callable[[str, bytes], str] = _no_refusal
    """Says the same of what is served at https://HOST:PORT; empty too where nothing is."""
    answers_all: Callable[[str], bool] = _not_tried
    """Says whether what serves at https://HOST:PORT answers a client that shows no certificate;
    False too where nothing does."""
    get_path: Callable[[str], Object] = _no_answer
    """Returns what the API server answers at a path; raises ApiError."""
    served_at: Callable[[str], bytes] = _nothing_served
    """Returns the certificate that is served at https://HOST:PORT, as PEM; empty if none is."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The time, for certificates and events only."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, configuration: Configuration, system_namespace: str) -> Settings:
        """Return the settings that a configuration makes, and defaults for all others.

        Raises:
            InvalidFieldError: One of its rules cannot be evaluated.
        """
        return cls(
            deferred_keys=DEFERRED_KEYS | set(configuration.deferred_resources),
            holds_terminating=configuration.terminating_pods is TerminatingPods.HOLD,
            exempt=configuration.exempt_namespaces,
            system_namespace=system_namespace,
            rotates=configuration.certificates.rotate,
            gating=configuration.gating,
            creation=CreationRules.of(configuration),
            trusted_users=configuration.trusted_users,
            glass_breakers=configuration.break_glass_groups,
            expire_seconds=float(configuration.timeouts.expire_reservation_seconds),
        )

    def deferred_of(self, quotas: Iterable[ResourceQuota]) -> NamespaceQuotas:
        """Choose those of some quotas that are deferred, as the configuration says."""
        return deferred_quotas(quotas, self.deferred_keys, holds_terminating=self.holds_terminating)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace as the checks see it; `mode` is None without the label."""

    name: str
    labels: dict[str, str]
    is_exempt: bool
    is_ending: bool

    @property
    def mode(self) -> str | None:
        """The value of the label that opts in; None without it."""
        return self.labels.get(MODE_LABEL)

    @property
    def is_deferred(self) -> bool:
        """Whether its quotas are deferred."""
        return self.mode == DEFERRED_MODE and not self.is_exempt

    @property
    def is_shadow(self) -> bool:
        """Whether it is in shadow mode."""
        return self.mode == SHADOW_MODE and not self.is_exempt

    @property
    def subject(self) -> Subject:
        """What findings say it is."""
        return Subject("Namespace", self.name)


@dataclass(frozen=True, slots=True)
class ReportedEvent:
    """What an event says."""

    time: datetime
    """When it was so last."""
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeviceClasses:
    """DeviceClasses of the cluster."""

    objects: tuple[Object, ...] = ()
    """Empty also where they cannot be read."""
    are_served: bool | None = None
    """Whether the API server has the kind; None where that cannot be seen."""


class CheckContext:
    """The cluster as the checks read it."""

    def __init__(self, api: ClusterApi, settings: Settings) -> None:
        self.api = api
        self.settings = settings
        self.lacks: dict[str, None] = {}
        """What a snapshot lacks of what the running check compares; it goes on without."""
        self._lists: dict[tuple[Kind, str], tuple[Object, ...]] = {}
        self._pods: dict[str, tuple[Pod | str, ...]] = {}
        self._quotas: _Parsed[Mapping[str, list[ResourceQuota]]] = _Parsed(_by_namespace)
        self._events: dict[str, Mapping[tuple[str, str], Sequence[ReportedEvent]]] = {}
        self._cluster_quotas: _Parsed[list[tuple[SharedQuota, Object]]] = _Parsed(_shared)

    # -- reading ---------------------------------------------------------------------------

    def objects(
        self, kind: Kind, *, namespace: str = "", again: bool = False
    ) -> tuple[Object, ...]:
        """Return all objects of a kind, read once; `again` reads them anew.

        Raises:
            NoRightError: They may not be listed.
            NotInSnapshotError: A snapshot has none of them.
            NotFoundError: The API server does not serve the kind.
        """
        key = kind, namespace
        if again or key not in self._lists:
            found = self._listed(kind, lambda raw: raw, namespace)
            self._lists[key] = tuple(found)
        return self._lists[key]

    def find(self, kind: Kind, name: str, *, namespace: str = "") -> Object | None:
        """Return one object as it is now; None when there is none.

        Raises:
            NoRightError: It may not be read.
            NotInSnapshotError: A snapshot has no object of its kind.
        """
        try:
            if self._may_lack(kind):
                raise NotInSnapshotError(kind)
            return self.api.get(kind, name, namespace=namespace)
        except NotFoundError:
            return None
        except ForbiddenError as err:
            raise self._unread("get", kind, namespace, err) from err

    def pods(self, namespace: str, *, again: bool = False) -> tuple[Pod | str, ...]:
        """Return the pods of a namespace; words in the place of one that cannot be read.

        Raises:
            NoRightError: They may not be listed.
        """
        if again or namespace not in self._pods:
            self._pods[namespace] = tuple(self._listed(PODS, read_pod, namespace))
        return self._pods[namespace]

    def ledgers(
        self, namespaces: Collection[str], read: Callable[[Object], _T]
    ) -> Iterator[tuple[str, _T | None]]:
        """Yield what `read` makes of the ledger of each namespace; None where there is none.

        Raises:
            NoRightError: One may not be read.
            NotInSnapshotError: A snapshot has no ledger.
        """
        listed = self._at_once(QUOTA_LEDGERS, namespaces, read, _LEDGERS)
        for name in namespaces:
            if listed is None:
                raw = self.find(QUOTA_LEDGERS, LEDGER_NAME, namespace=name)
                yield name, None if raw is None else read(raw)
            else:
                yield name, next(iter(listed[name]), None)

    def settled_ledgers(
        self, namespaces: Collection[str], read: Callable[[Object], _T]
    ) -> dict[str, list[_T]]:
        """Read many namespaces with few calls: their ledgers, their pods, and their ledgers again.

        Return what `read` makes of the ledger, if there is one, of each namespace where it was the
        same twice; `pods` returns the pods of between then. What is not returned is to be read
        alone: the ledger changed, or the namespaces are few or may not be read at once.
        """
        before = self._at_once(QUOTA_LEDGERS, namespaces, identity_of, _LEDGERS)
        pods = None if before is None else self._at_once(PODS, namespaces, read_pod)
        if before is None or pods is None:
            return {}
        self._pods.update((name, tuple(found)) for name, found in pods.items())
        after = self._at_once(
            QUOTA_LEDGERS, namespaces, lambda raw: (identity_of(raw), read(raw)), _LEDGERS
        )
        return {
            name: [value for _, value in found]
            for name, found in (after or {}).items()
            if [version for version, _ in found] == before[name]
        }

    def _at_once(
        self,
        kind: Kind,
        namespaces: Collection[str],
        read: Callable[[Object], _T],
        fields: str = "",
    ) -> dict[str, list[_T]] | None:
        """Return what `read` makes of the objects of each namespace, by one list over the cluster.

        None where they are to be read one by one: a snapshot, few, or a list that is forbidden.
        """
        number = len(namespaces)
        if self.settings.is_offline or number <= _FEW:
            return None
        if number * _SMALL_PART <= len(self.objects(NAMESPACES)):
            return None
        found: dict[str, list[_T]] = {name: [] for name in namespaces}

        def look(raw: Object) -> tuple[str, _T] | None:
            name = subject_of(kind, raw).namespace
            return (name, read(raw)) if name in found else None

        try:
            listed = self._listed(kind, look, "", fields)
        except NotFoundError:
            return found  # the kind is not served: there are none
        except NoRightError:
            return None
        for name, value in filter(None, listed):
            found[name].append(value)
        return found

    def unassigned_pods(self, read: Callable[[Object], _T]) -> list[_T]:
        """Return what `read` makes of every pod without a node.

        Raises:
            NoRightError: They may not be listed.
        """
        namespaces = self.settings.namespaces or ("",)
        return [
            found
            for namespace in namespaces
            for found in self._listed(PODS, read, namespace, "spec.nodeName=")
        ]

    def assigned_pods(self, read: Callable[[Object], _T]) -> list[_T]:
        """Return what `read` makes of every pod of the cluster that has a node.

        Raises:
            NoRightError: They may not be listed.
        """
        return self._listed(PODS, read, "", "spec.nodeName!=")

    def _listed(
        self, kind: Kind, read: Callable[[Object], _T], namespace: str, fields: str = ""
    ) -> list[_T]:
        try:
            found = read_all(
                self.api,
                kind,
                read,
                ListOptions(namespace, field_selector=fields),
                decode=decode_pod if kind == PODS else None,
            )
        except ForbiddenError as err:
            raise self._unread("list", kind, namespace, err) from err
        if not found and self._may_lack(kind):
            raise NotInSnapshotError(kind)
        return found

    def _may_lack(self, kind: Kind) -> bool:
        """Return whether this is a snapshot without any object of a kind that it may not hold."""
        is_open = self.settings.is_offline and kind not in self.settings.complete
        return is_open and not self.api.list(kind).items

    def _unread(
        self, verb: str, kind: Kind, namespace: str, err: ForbiddenError
    ) -> NoRightError | NotInSnapshotError:
        """Return why something cannot be read; in a snapshot it may only not have been taken."""
        if self.settings.is_offline:
            return NotInSnapshotError(kind)
        return NoRightError(ResourceAttributes(verb, kind, namespace), err.message)

    @cached_property
    def device_classes(self) -> DeviceClasses:
        """DeviceClasses, asked for once, also where the API server has none."""
        try:
            return DeviceClasses(self.objects(DEVICE_CLASSES), are_served=True)
        except NotFoundError:
            return DeviceClasses(are_served=False)
        except (ApiError, NotInSnapshotError, NoRightError):
            return DeviceClasses()

    @property
    def lacks_policies(self) -> bool:
        """Whether this is a snapshot without mutating admission policies: more are not known."""
        return self.settings.is_offline and self.policies() is None

    def check_policies_known(self) -> None:
        """Check that what no policy does is not done.

        Raises:
            NotInSnapshotError: A snapshot has no mutating admission policy.
        """
        if self.lacks_policies:
            raise NotInSnapshotError(policy_kinds(POLICY_VERSIONS[0])[0])

    def entries(self, kind: Kind, name: str = REGISTRATION) -> Sequence[FieldReader]:
        """Return the webhooks of a webhook configuration; none where that is missing.

        Raises:
            NoRightError: It may not be read.
            NotInSnapshotError: A snapshot has no such configuration.
            InvalidFieldError: It cannot be read.
        """
        return FieldReader(self.find(kind, name) or {}).children("webhooks")

    def asked_at(self) -> str | None:
        """Return where the API server asks; see `deployments.asked_at`, and `entries`."""
        return asked_at(self.find(VALIDATING_WEBHOOKS, REGISTRATION) or {})

    def has_mutating_entry(self, name: str) -> bool:
        """Return whether the mutating registration has a webhook of a name.

        Raises:
            NoRightError: It may not be read.
            NotInSnapshotError: A snapshot has no such registration.
        """
        try:
            return name in [one.text("name") for one in self.entries(MUTATING_WEBHOOKS)]
        except InvalidFieldError:
            return False  # the check of registrations says what cannot be read

    def policies(self) -> tuple[Kind, tuple[Object, ...], tuple[Object, ...]] | None:
        """Return the mutating admission policies and their bindings, of the newest version.

        None where the API server has no such thing, and where a snapshot has none.
        """
        for version in POLICY_VERSIONS:
            policy, binding = policy_kinds(version)
            try:
                return policy, self.objects(policy), self.objects(binding)
            except (NotFoundError, NotInSnapshotError):
                continue
        return None

    def emergency(self) -> EmergencyState:
        """Return the state of the emergency, as far as it can be read."""
        try:
            _, _, bindings = self.policies() or (None, (), ())
        except NoRightError:
            bindings = ()  # the check of the mask says so
        ours = [raw for raw in bindings if subject_of(PODS, raw).name in POLICY_BINDINGS]
        try:
            found = [self.find(kind, name) for kind, name in (GUARDS, *OTHERS)]
            return state_of([*(raw for raw in found if raw is not None), *ours])
        except (InvalidFieldError, NoRightError, NotInSnapshotError):
            return EmergencyState()  # the checks of what cannot be read say so

    def namespaces(self) -> list[Namespace]:
        """Return the namespaces that are looked at and can be read."""
        return [one for one in map(self._namespace, self.wanted()) if one is not None]

    def every_namespace(self) -> list[Namespace]:
        """Return all namespaces of the cluster that can be read, looked at or not."""
        found = map(self._namespace, self.objects(NAMESPACES))
        return [one for one in found if one is not None]

    def deferred_namespaces(self) -> list[Namespace]:
        """Return the namespaces whose quotas are deferred."""
        return [one for one in self.namespaces() if one.is_deferred and not one.is_ending]

    def shadow_namespaces(self) -> list[Namespace]:
        """Return the namespaces that are only watched."""
        return [one for one in self.namespaces() if one.is_shadow and not one.is_ending]

    def labels_in(self, mode: str) -> list[dict[str, str]]:
        """Return the labels of the namespaces in a mode; of a snapshot without any, none."""
        namespaces = self.deferred_namespaces if mode == DEFERRED_MODE else self.shadow_namespaces
        try:
            return [one.labels for one in namespaces()]
        except NotInSnapshotError as err:
            self.lacks[err.resource] = None
            return []

    def is_manifest(self, node: FieldReader) -> bool:
        """Return whether an object of a snapshot is yet to be applied: API servers give uids."""
        return self.settings.is_offline and not node.child("metadata").text("uid")

    def wanted(self) -> list[Object]:
        """Return the Namespaces that are looked at as they are, also those that cannot be read."""
        every = self.objects(NAMESPACES)
        return [raw for raw in every if self.looks_at(subject_of(NAMESPACES, raw).name)]

    def looks_at(self, namespace: str) -> bool:
        """Return whether a namespace is one of those that are looked at."""
        return not self.settings.namespaces or namespace in self.settings.namespaces

    def _namespace(self, raw: Object) -> Namespace | None:
        try:
            meta = FieldReader(raw).child("metadata")
            name = meta.text("name")
            is_assumed = name in self.settings.assumed
            opted_in = {MODE_LABEL: self.settings.assumed_mode} if is_assumed else {}
            return Namespace(
                name,
                {**meta.string_map("labels"), **opted_in},
                is_exempt=name in self.settings.exempt or name == self.settings.system_namespace,
                is_ending=meta.has("deletionTimestamp"),
            )
        except InvalidFieldError:
            return None

    def quotas(self, namespace: str, *, again: bool = False) -> list[ResourceQuota]:
        """Return the quotas of a namespace that can be read, sorted by name.

        `again` reads these anew, and no others: very many namespaces may need that.
        """
        if again:
            raws = self.objects(RESOURCE_QUOTAS, namespace=namespace, again=True)
            return _by_namespace(raws).get(namespace, [])
        return self._quotas.of(self.objects(RESOURCE_QUOTAS)).get(namespace, [])

    def cluster_quotas(self, *, again: bool = False) -> list[tuple[SharedQuota, Object]]:
        """Return the quotas that namespaces share, and their objects, sorted by name.

        None where they are not installed, and where a snapshot has none.

        Raises:
            NoRightError: They may not be listed.
            InvalidFieldError: Not even the name of one can be read.
        """
        try:
            raws = self.objects(CLUSTER_DEFERRED_QUOTAS, again=again)
        except (NotFoundError, NotInSnapshotError):
            return []
        return self._cluster_quotas.of(raws)

    def shared_by(self, namespace: Namespace) -> list[ResourceQuota]:
        """Return the quotas that a namespace shares and that can be read, by names in ledgers."""
        every = [one for one, _ in self.cluster_quotas()]
        return quotas_of(concerning(every, namespace.name, namespace.labels))

    def explained(self, finding: Finding) -> Finding:
        """Return a finding that points to a log with the event that may say the same, if there is.

        Every client with the right to write events can write such a one: it stands beside what to
        do, and with its source.
        """
        if CONTROLLER_LOG not in finding.remedy or finding.subject is None:
            return finding
        event = self._newest_warning(finding.subject)
        if not event:
            return finding
        return replace(finding, remedy=f"{finding.remedy} {event}")

    def _newest_warning(self, subject: Subject) -> str:
        """Return the text of the last warning about an object that names our controller."""
        events = self.events_about(subject)
        last = next((one for one in events if one.type == "Warning"), None)
        if last is None:
            return ""
        return (
            f"An event that names {_EVENT_SOURCE} as its source says, at {time_text(last.time)}:"
            f" {last.reason}: {last.message}"
        )

    def events_about(self, subject: Subject) -> Sequence[ReportedEvent]:
        """Return the events about an object that name our controller, the newest first.

        Tenants write such events, too. They are read once; none where they may not be read or are
        not in a snapshot.
        """
        namespace = subject.namespace or _EVENTS_OF_CLUSTER
        if namespace not in self._events:
            latest = self.settings.now() + _CLOCKS_DIFFER
            is_many = len(self._events) == _FEW  # tried once, also where that is forbidden
            self._events[namespace] = {}
            with suppress(ApiError, NoRightError, NotInSnapshotError):
                every = [one.name for one in self.every_namespace()] if is_many else []
                listed: Mapping[str, Iterable[_Reported]] = self._at_once(
                    EVENTS, every, _reported
                ) or {namespace: map(_reported, self.objects(EVENTS, namespace=namespace))}
                self._events.update((name, _by_object(one, latest)) for name, one in listed.items())
        return self._events[namespace].get((subject.kind, subject.name), ())

    # -- judging ---------------------------------------------------------------------------

    def judged(
        self,
        kind: Kind,
        raws: Iterable[Object],
        judge: Callable[[FieldReader, Subject], Iterable[Finding]],
    ) -> Iterator[Finding]:
        """Judge objects one by one; one that cannot be read is a finding and stops no other."""
        for raw in raws:
            subject = subject_of(kind, raw)
            try:
                yield from judge(FieldReader(raw), subject)
            except InvalidFieldError as err:
                yield unreadable(subject, err)

    def pause(self) -> None:
        """Wait between two looks; a snapshot does not change."""
        if not self.settings.is_offline:
            self.settings.sleep(self.settings.pause_seconds)


class _Parsed(Generic[_T]):
    """Result of parsing a list of objects, kept until they are read again."""

    def __init__(self, parse: Callable[[Sequence[Object]], _T]) -> None:
        self._parse = parse
        self._last: tuple[Sequence[Object], _T] | None = None

    def of(self, raws: Sequence[Object]) -> _T:
        """Return what the objects are parsed into."""
        if self._last is None or self._last[0] is not raws:
            self._last = raws, self._parse(raws)
        return self._last[1]


def _by_namespace(raws: Sequence[Object]) -> Mapping[str, list[ResourceQuota]]:
    """Return the quotas that can be read of each namespace, sorted by name."""
    found: dict[str, list[ResourceQuota]] = {}
    for raw in raws:
        with suppress(InvalidFieldError):  # `judged` says so
            quota = ResourceQuota.from_stored(raw)
            found.setdefault(quota.namespace, []).append(quota)
    return {name: sorted(quotas, key=lambda one: one.name) for name, quotas in found.items()}


def _shared(raws: Sequence[Object]) -> list[tuple[SharedQuota, Object]]:
    return sorted(((read_shared(raw), raw) for raw in raws), key=lambda one: one[0].spec.name)


_Reported: TypeAlias = tuple[tuple[str, str], ReportedEvent] | None
"""Kind and name of what an event is about, and what it says; None of one that does not name us."""


def _reported(raw: Object) -> _Reported:
    with suppress(InvalidFieldError):
        event = FieldReader(raw)
        last = event.timestamp("lastTimestamp")
        if event.text("reportingComponent").startswith(_EVENT_SOURCE) and last is not None:
            about = event.child("involvedObject")
            texts = (event.text(name) for name in ("type", "reason", "message"))
            return (about.text("kind"), about.text("name")), ReportedEvent(last, *texts)
    return None


def _by_object(
    reported: Iterable[_Reported], latest: datetime
) -> Mapping[tuple[str, str], Sequence[ReportedEvent]]:
    """Return events by kind and name of what they are about, the newest first.

    None of later than `latest`: it would stay the newest.
    """
    found: dict[tuple[str, str], list[ReportedEvent]] = {}
    for about, event in filter(None, reported):
        if event.time <= latest:
            found.setdefault(about, []).append(event)
    for events in found.values():
        events.sort(key=lambda one: one.time, reverse=True)
    return found


CONTROLLER_LOG: Final = "Look at the log of the controller that leads."
"""What to do where the controller knows more. An event that names it is shown beside."""


def unreadable(subject: Subject, err: InvalidFieldError) -> Finding:
    """Return the finding of an object with a field of the wrong type."""
    return error("object.unreadable", subject, f"cannot be read: {err}", "Correct the field.")


def quota_subject(quota: ResourceQuota) -> Subject:
    """Return which quota a finding is about."""
    return Subject("ResourceQuota", quota.name, quota.namespace)


def waiting(count: int) -> str:
    """Return how many pods wait, as the beginning of a sentence."""
    return "1 pod waits" if count == 1 else f"{count} pods wait"
