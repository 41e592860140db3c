"""Names of resources and quota keys, and the name syntax that Kubernetes checks.

A *resource name* is what a container asks for (`cpu`, `nvidia.com/gpu`); a *quota key* is
what a quota limits (`requests.cpu`, `requests.nvidia.com/gpu`, `pods`).

Source: kubernetes v1.36, pkg/apis/core/helper/helpers.go and
apimachinery/pkg/api/validate/content.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

_T = TypeVar("_T")

UNGATED_ANNOTATION: Final = "deferredquota.io/ungated"
"""Written on a new pod that needs no gate because there is room; its value is a token."""

BIND_ENTRY: Final = "bind.deferredquota.io"
"""The entry of the validating registration that is asked about every bind; in its refusals."""

DEFERRED_KEYS: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""Quota keys that are charged at the bind: compute, `cpu` and `memory` being the old spelling."""

POD_COUNT_KEY: Final = "count/pods"
"""Charged for every stored pod, whatever its phase."""

SHARED_PREFIX: Final = "cdq/"
"""Before the names of quotas that namespaces share, wherever quotas of a namespace are named."""
POOL_PREFIX: Final = "epool."
DERIVED_PREFIXES: Final = (POOL_PREFIX, "eq.", "ceq.")
"""How the names of the ClusterDeferredQuotas begin by which elastic quotas are charged."""

_REQUESTS: Final = "requests."
_HUGEPAGES: Final = "hugepages-"
_QUOTA_HUGEPAGES: Final = (_HUGEPAGES, _REQUESTS + _HUGEPAGES)
_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_NATIVE_DOMAIN: Final = "kubernetes.io/"

_COMPUTE: Final = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "requests.", "limits.")
    for name in ("cpu", "memory", "ephemeral-storage")
)
_POD_KEYS: Final = _COMPUTE | {"pods", POD_COUNT_KEY}
INTEGER_RESOURCES: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
"""Resources of which there are whole numbers only.

Source: kubernetes v1.36, pkg/apis/core/helper/helpers.go IsIntegerResourceName.
"""
_STANDARD_QUOTA_NAMES: Final = _COMPUTE | INTEGER_RESOURCES | {"requests.storage"}

_NAME_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_NAME_PART})?"
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_matches_name_part = re.compile(_NAME_PART).fullmatch
_matches_label_value = re.compile(_LABEL_VALUE).fullmatch
_matches_subdomain = re.compile(_SUBDOMAIN).fullmatch
_matches_dns_label = re.compile(_DNS_LABEL).fullmatch
_CACHED_NAMES: Final = 4096
_CACHED_LENGTH: Final = 512
_matches_uid = re.compile("[!-~]{1,128}").fullmatch
MAX_NAME_BYTES: Final = 253
"""Longest name of an object."""
MAX_LABEL_BYTES: Final = 63
"""Longest name of a container."""

_NAME_PART_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
)
_QUALIFIED_NAME_RULE: Final = (
    f"a valid label key {_NAME_PART_RULE} "
    "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_DNS_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{_DNS_LABEL}')"
)
_LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, "
    "'-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_LABEL_VALUE}')"
)


def cached_by_name(function: Callable[[str], _T]) -> Callable[[str], _T]:
    """Remember what a function returns for names; not for long ones, which requests are full of."""
    cached = lru_cache(maxsize=_CACHED_NAMES)(function)

    @wraps(function)
    def remembering(name: str) -> _T:
        return cached(name) if len(name) <= _CACHED_LENGTH else function(name)

    return remembering


def is_native(name: str) -> bool:
    """Return whether Kubernetes defines the resource: no domain, or one of *kubernetes.io."""
    return "/" not in name or _NATIVE_DOMAIN in name


def is_hugepages(name: str) -> bool:
    """Return whether the resource is a size of huge pages, such as `hugepages-2Mi`."""
    return name.startswith(_HUGEPAGES)


def is_device_class(name: str) -> bool:
    """Return whether the resource counts devices of a DeviceClass (dynamic resource allocation)."""
    return name.startswith(_DEVICE_CLASS)


def device_class_resource(name: str) -> str:
    """Return the resource that counts devices of the DeviceClass of this name."""
    return f"{_DEVICE_CLASS}{name}"


@cached_by_name
def is_extended_resource(name: str) -> bool:
    """Return whether the resource belongs to a vendor, such as `nvidia.com/gpu`.

    A name that would not be legal as the quota key `requests.<name>` is none, nor is one that
    already starts with `requests.`.
    """
    if is_native(name) or name.startswith(_REQUESTS):
        return False
    return not qualified_name_errors(_REQUESTS + name)


@cached_by_name
def is_pod_quota_key(key: str) -> bool:
    """Return whether pods are charged for the quota key; a quota without any such key ignores pods.

    Huge pages count bare or as `requests.hugepages-*`, never as `limits.hugepages-*`; resources
    of vendors and device classes only as `requests.<name>`.

    Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go MatchingResources.
    """
    if key in _POD_KEYS or key.startswith(_QUOTA_HUGEPAGES):
        return True
    if not key.startswith(_REQUESTS):
        return False
    name = key[len(_REQUESTS) :]
    return not is_native(name) or is_device_class(name)


def is_deferrable(key: str) -> bool:
    """Return whether a quota key can be charged at the bind: compute, or a vendor's resource."""
    return key in DEFERRED_KEYS or (
        key.startswith(_REQUESTS) and is_extended_resource(key[len(_REQUESTS) :])
    )


def is_standard_quota_name(key: str) -> bool:
    """Return whether the key, which has no domain, is one that quotas may limit."""
    return key in _STANDARD_QUOTA_NAMES or key.startswith(_QUOTA_HUGEPAGES)


def object_name_errors(text: str) -> tuple[str, ...]:
    """Return why the text cannot be the name of a pod, in the API server's words; empty if it can.

    Source: kubernetes v1.36, apimachinery/pkg/util/validation IsDNS1123Subdomain.
    """
    return _name_errors(text, MAX_NAME_BYTES, _matches_subdomain, _SUBDOMAIN_RULE)


@cached_by_name
def dns_label_errors(text: str) -> tuple[str, ...]:
    """Return why the text cannot be the name of a container or a namespace; empty if it can.

    Source: kubernetes v1.36, apimachinery/pkg/util/validation IsDNS1123Label.
    """
    errors = _name_errors(text, MAX_LABEL_BYTES, _matches_dns_label, _DNS_LABEL_RULE)
    if _DNS_LABEL_RULE in errors and _matches_subdomain(text):
        return (*errors[:-1], "must not contain dots")
    return errors


def is_uid(text: str) -> bool:
    """Return whether the text can be a uid: API servers write 36 characters, and may write more.

    Source: kubernetes v1.36, apimachinery/pkg/types/uid.go, which leaves them open.
    """
    return _matches_uid(text) is not None


def label_value_error(text: str) -> str | None:
    """Return why the text cannot be the value of a label, in the API server's words, or None."""
    return "; ".join(label_value_errors(text)) or None


def label_value_errors(text: str) -> tuple[str, ...]:
    """Return all reasons why the text cannot be the value of a label; empty if it can."""
    errors = _too_long(text, 63)
    return errors if _matches_label_value(text) else (*errors, _LABEL_VALUE_RULE)


def qualified_name_errors(text: str) -> tuple[str, ...]:
    """Return why the text is not a qualified name (`name` or `domain/name`); empty if it is one.

    Lengths are counted in bytes of UTF-8; the words are the API server's.
    """
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (_QUALIFIED_NAME_RULE,)
    errors = _prefix_errors(prefix) if slash else ()
    if not name:
        errors += ("name part must be non-empty",)
    errors += tuple(f"name part {error}" for error in _too_long(name, 63))
    if not _matches_name_part(name):
        errors += (f"name part {_NAME_PART_RULE}",)
    return errors


def _name_errors(
    text: str, most: int, matches: Callable[[str], object], rule: str
) -> tuple[str, ...]:
    too_long = _too_long(text, most, "characters")
    # the pattern is tried on short text only: on long text it would take its time
    if len(text) > _CACHED_LENGTH or matches(text):
        return too_long
    return (*too_long, rule)


def _prefix_errors(prefix: str) -> tuple[str, ...]:
    if not prefix:
        return ("prefix part must be non-empty",)
    errors = _too_long(prefix, MAX_NAME_BYTES)
    if not _matches_subdomain(prefix):
        errors += (_SUBDOMAIN_RULE,)
    return tuple(f"prefix part {error}" for error in errors)


def _too_long(text: str, most_bytes: int, unit: str = "bytes") -> tuple[str, ...]:
    if len(text.encode(errors="surrogatepass")) <= most_bytes:
        return ()
    return (f"must be no more than {most_bytes} {unit}",)


QUOTA_RESERVED: Final = "deferredquota.io/QuotaReserved"
"""Type of the condition that says whether quota is reserved for a pod."""
