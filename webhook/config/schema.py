"""The tables of the configuration file: which field is read how and where it goes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from webhook.config.field_readers import (
    InvalidSettingError,
    Reader,
    Schema,
    Table,
    boolean,
    choice,
    exactly,
    list_of,
    name,
    parse_yaml,
    reads,
    renaming_section,
    schema_of,
    section,
    set_of,
    text,
    whole,
)
from webhook.config.job_rules import gate, job_rules
from webhook.config.settings import (
    MUTABLE_POD_RESOURCES,
    MUTABLE_SCHEDULING_DIRECTIVES,
    BindNodeFit,
    CertificateSettings,
    Configuration,
    ConfigurationError,
    Coverage,
    ElasticLabelOrder,
    ElasticSettings,
    Extender,
    Gating,
    JobFeatureGates,
    Limits,
    MirrorPods,
    MustSpecify,
    NodeFit,
    PageSettings,
    Queue,
    QueueOrder,
    QuotaUpdate,
    ReclaimMode,
    ReclaimSettings,
    TerminatingPods,
    Timeouts,
)

API_VERSION = "deferredquota.io/v1alpha1"
KIND = "Configuration"

_log = logging.getLogger(__name__)

Check: TypeAlias = Callable[[Configuration], None]
"""Judges a configuration whose fields are well-formed; raises ValueError."""


def accept(_: Configuration) -> None:
    """Accept every configuration: the check of a caller that has none."""


def load_configuration(text: str, source: str, *, check: Check = accept) -> Configuration:
    """Read a configuration.

    Args:
        text: The content of the file: one YAML document, of which JSON is a part.
        source: Name of the file, for messages.
        check: Judges the values that only the core can read.

    Raises:
        ConfigurationError: The text, one of its fields, or the judgement of `check`.
    """
    try:
        configuration = _CONFIGURATION(_renamed(parse_yaml(text), source), "")
    except InvalidSettingError as err:
        raise ConfigurationError(source, err.field, err.detail) from err
    try:
        check(configuration)
    except ValueError as err:
        raise ConfigurationError(source, "", str(err)) from err
    return configuration


_FORMER_GATING: Mapping[object, str] = {"gate": "always", "auto": "auto", "none": "never"}
"""Value of the field `pacing` of earlier versions → value of `gating`."""


def _renamed(value: object, source: str) -> object:
    """Return the fields under their names of today; this version still reads `pacing`."""
    if not isinstance(value, dict) or "pacing" not in value:
        return value
    fields = dict(value)
    former = fields.pop("pacing")
    if "gating" in fields:
        raise InvalidSettingError("pacing", "is the former name of gating: remove it")
    if former not in (None, *_FORMER_GATING):
        raise InvalidSettingError("pacing", "is gating now: always, auto or never")
    _log.warning("field pacing is gating now", extra={"source": source, "pacing": former})
    return fields if former is None else {**fields, "gating": _FORMER_GATING[former]}


_DEFERRABLE = re.compile(r"requests\.[^/\s]+/[^/\s]+")
_NATIVE = re.compile(r"kubernetes\.io/")
"""In resources of Kubernetes itself, such as the devices of a DeviceClass by its name."""


@reads(
    {
        "type": "string",
        "pattern": rf"^{_DEFERRABLE.pattern}$",
        "not": {"pattern": _NATIVE.pattern},
    }
)
def _deferrable(value: object, field: str) -> str:
    key = name(value, field)
    if not _DEFERRABLE.fullmatch(key) or _NATIVE.search(key):
        detail = f"must be 'requests.' and an extended resource (requests.nvidia.com/gpu): {key!r}"
        raise InvalidSettingError(field, detail)
    return key


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@reads({"type": "string", "pattern": f"^{_NAMESPACE.pattern}$"})
def _namespace(value: object, field: str) -> str:
    found = name(value, field)
    if not _NAMESPACE.fullmatch(found):
        raise InvalidSettingError(field, f"must be the name of a namespace, not {found!r}")
    return found


_TIMEOUTS: Table = {
    "ledgerSeconds": ("ledger_seconds", whole(1, 30)),
    "expireReservationSeconds": ("expire_reservation_seconds", whole(35, 3600)),
    "gateReleaseSeconds": ("gate_release_seconds", whole(1, 86_400)),
}

_QUEUE: Table = {
    "order": ("order", choice(QueueOrder)),
    "maxOvertakes": ("max_overtakes", whole(0, 1_000_000)),
    "maxWaitSeconds": ("max_wait_seconds", whole(0, 604_800)),
}

_LIMITS: Table = {
    "bodyBytes": ("body_bytes", whole(64 * 1024, 64 * 1024 * 1024)),
    "threads": ("threads", whole(1, 64)),
    "reservationsPerNamespace": ("reservations_per_namespace", whole(1, 4000)),
    "reasonsPerSecond": ("reasons_per_second", whole(0, 1000)),
    "labelsPerSecond": ("labels_per_second", whole(1, 1000)),
    "logAllowedEvery": ("log_allowed_every", whole(0, 1_000_000)),
}

_EXTENDER: Table = {"enabled": ("enabled", boolean)}

_PAGE: Table = {
    "enabled": ("enabled", boolean),
    "port": ("port", whole(1024, 65_535)),
}

_CERTIFICATES: Table = {"rotate": ("rotate", boolean)}

_RECLAIM: Table = {
    "mode": ("mode", choice(ReclaimMode)),
    "afterSeconds": ("after_seconds", whole(0, 86_400)),
    "protectOwnSeconds": ("protect_own_seconds", whole(0, 86_400)),
    "nodeFit": ("node_fit", choice(NodeFit)),
    "maxEvictionsPerMinute": ("max_evictions_per_minute", whole(1, 100_000)),
    "maxGraceSeconds": ("max_grace_seconds", whole(60, 86_400)),
    "coolDownSeconds": ("cool_down_seconds", whole(0, 86_400)),
}

_ELASTIC: Table = {
    "enabled": ("enabled", boolean),
    "gpuMemoryGB": ("gpu_memory_gb", whole(1, 100_000)),
    "labelOrder": ("label_order", choice(ElasticLabelOrder)),
    "headroom": ("headroom", boolean),
    "reclaim": ("reclaim", renaming_section(ReclaimSettings, _RECLAIM)),
}

_JOB_GATES: Table = {
    MUTABLE_POD_RESOURCES: ("mutable_pod_resources", gate),
    MUTABLE_SCHEDULING_DIRECTIVES: ("mutable_scheduling_directives", gate),
}

_EXPRESSION: Reader[dict[str, object]] = section(
    dict,
    {"scopeName": name, "operator": name, "values": list_of(text)},
    required=("scopeName", "operator"),
)

_LIMITED_RESOURCE: Reader[dict[str, object]] = section(
    dict,
    {
        "apiGroup": text,
        "resource": name,
        "matchContains": list_of(text),
        "matchScopes": list_of(_EXPRESSION),
    },
    required=("resource",),
)

_FIELDS: Table = {
    "apiVersion": ("", exactly(API_VERSION)),
    "kind": ("", exactly(KIND)),
    "deferredResources": ("deferred_resources", list_of(_deferrable)),
    "mustSpecify": ("must_specify", choice(MustSpecify)),
    "mirrorPods": ("mirror_pods", choice(MirrorPods)),
    "terminatingPods": ("terminating_pods", choice(TerminatingPods)),
    "limitedResources": ("limited_resources", list_of(_LIMITED_RESOURCE)),
    "requireQuotaForPriority": ("require_quota_for_priority", list_of(_EXPRESSION)),
    "coverage": ("coverage", choice(Coverage)),
    "quotaUpdate": ("quota_update", choice(QuotaUpdate)),
    "gating": ("gating", choice(Gating)),
    "nodeFit": ("node_fit", choice(BindNodeFit)),
    "breakGlassGroups": ("break_glass_groups", set_of(name)),
    "trustedUsers": ("trusted_users", set_of(name)),
    "exemptNamespaces": ("exempt_namespaces", set_of(_namespace)),
    "queue": ("queue", renaming_section(Queue, _QUEUE)),
    "timeouts": ("timeouts", renaming_section(Timeouts, _TIMEOUTS)),
    "limits": ("limits", renaming_section(Limits, _LIMITS)),
    "extender": ("extender", renaming_section(Extender, _EXTENDER)),
    "page": ("page", renaming_section(PageSettings, _PAGE)),
    "certificates": ("certificates", renaming_section(CertificateSettings, _CERTIFICATES)),
    "elastic": ("elastic", renaming_section(ElasticSettings, _ELASTIC)),
    "jobGates": ("job_gates", renaming_section(JobFeatureGates, _JOB_GATES)),
    "jobs": ("jobs", job_rules),
}

_CONFIGURATION = renaming_section(Configuration, _FIELDS, required=("apiVersion", "kind"))


def configuration_schema() -> Schema:
    """Return the JSON Schema of the file, `apiVersion` and `kind` included.

    It accepts no file that `load_configuration` refuses for the shape of a field. Null, which
    stands for a field that is left out, it refuses.
    """
    return schema_of(_CONFIGURATION)
