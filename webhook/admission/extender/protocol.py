"""The JSON of scheduler extenders, protocol v1: what a scheduler sends, and what it reads.

Field names are those of Go's structs, with capitals: `Pod`, `NodeNames`, `FailedNodes`. Of the pod
only its identity is read, of a node its name; a scheduler configured with `nodeCacheCapable: true`
sends names only. What is given back is copied as it came, unread.

Source: kubernetes v1.36, kube-scheduler/extender/v1/types.go; pkg/scheduler/extender.go send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from webhook.jsonfields.encoding import decode_tolerant
from webhook.quota.objects.names import MAX_NAME_BYTES

_T = TypeVar("_T")

_NULL: Final = msgspec.Raw(b"null")
_NO_NODES: Final = msgspec.Raw(b'{"metadata":{},"items":[]}')


class MalformedCallError(ValueError):
    """Bytes that are not a call of a scheduler which can be answered.

    Attributes:
        reason: `json`, `nesting`, `type` or `request`; for the metric.
        detail: What is wrong, with the path of the field where there is one.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that is to be scheduled; nothing is empty, or longer than a name."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class FilterCall:
    """A scheduler asks which nodes are left for a pod."""

    pod: PodIdentity
    node_names: list[str]
    """The names of all nodes in question."""
    has_names: bool
    """Whether they came as names, so that names are to be given back."""
    nodes: msgspec.Raw
    """The NodeList as it came, `null` where names came."""


@dataclass(frozen=True, slots=True)
class PreemptCall:
    """A scheduler asks on which nodes pods may be evicted for a pod."""

    pod: PodIdentity
    candidates: Mapping[str, object]
    """Node name → its victims there, as they are to be given back; nodes with null are left
    out, because a scheduler that reads null there crashes."""


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = ""
    namespace: str | None = ""
    uid: str | None = ""


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata | None = None


class _NodeList(msgspec.Struct, gc=False):
    items: list[_Object] | None = None


class _FilterArguments(msgspec.Struct, rename="pascal"):
    pod: _Object | None = None
    nodes: msgspec.Raw = _NULL
    node_names: list[str] | None = None


class _Victims(msgspec.Struct, gc=False):
    pods: list[_Object] | None = msgspec.field(default=None, name="Pods")
    violations: int | None = msgspec.field(default=0, name="NumPDBViolations")


class _PreemptArguments(msgspec.Struct, rename="pascal"):
    pod: _Object | None = None
    node_name_to_victims: dict[str, _Victims | None] | None = None
    node_name_to_meta_victims: dict[str, msgspec.Raw] | None = None


class _FilterResult(msgspec.Struct, gc=False, rename="pascal"):
    nodes: msgspec.Raw
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str = ""


class _PreemptResult(msgspec.Struct, gc=False, rename="pascal"):
    node_name_to_meta_victims: Mapping[str, Any]


MOST_NODES: Final = 65_536
"""Nodes of a call; Kubernetes is made for 5,000."""
_MOST_BYTES: Final = 4 * 1024 * 1024
"""What the reasons of an answer take together: each node has its own copy."""

_FILTER: Final = msgspec.json.Decoder(_FilterArguments)
_PREEMPT: Final = msgspec.json.Decoder(_PreemptArguments)
_NODES: Final = msgspec.json.Decoder(_NodeList)
_ENCODER: Final = msgspec.json.Encoder()


def read_filter(data: bytes) -> FilterCall:
    """Read ExtenderArgs.

    Raises:
        MalformedCallError: The data cannot be answered; the reason says why.
    """
    call = _parsed(_FILTER, data, "ExtenderArgs")
    pod = _identity(call.pod)
    if call.node_names is not None:
        _check_count(len(call.node_names), "NodeNames")
        return FilterCall(pod, call.node_names, has_names=True, nodes=_NULL)
    if bytes(call.nodes) == b"null":
        raise MalformedCallError("request", "NodeNames: must be present, or Nodes")
    listed = _parsed(_NODES, call.nodes, "Nodes", "Nodes.").items or ()
    _check_count(len(listed), "Nodes.items")
    names = [_name(node, f"Nodes.items[{index}]") for index, node in enumerate(listed)]
    return FilterCall(pod, names, has_names=False, nodes=call.nodes)


def read_preempt(data: bytes) -> PreemptCall:
    """Read ExtenderPreemptionArgs.

    Raises:
        MalformedCallError: The data cannot be answered; the reason says why.
    """
    call = _parsed(_PREEMPT, data, "ExtenderPreemptionArgs")
    pod = _identity(call.pod)
    if call.node_name_to_meta_victims is not None:
        _check_count(len(call.node_name_to_meta_victims), "NodeNameToMetaVictims")
        given = call.node_name_to_meta_victims.items()
        return PreemptCall(pod, {node: each for node, each in given if bytes(each) != b"null"})
    if call.node_name_to_victims is None:
        detail = "NodeNameToMetaVictims: must be present, or NodeNameToVictims"
        raise MalformedCallError("request", detail)
    _check_count(len(call.node_name_to_victims), "NodeNameToVictims")
    victims = call.node_name_to_victims.items()
    return PreemptCall(pod, {node: _identified(node, each) for node, each in victims if each})


def all_nodes(call: FilterCall) -> bytes:
    """Write that all nodes are left."""
    return _filter_result(call.nodes, call.node_names if call.has_names else None, {})


def no_node(call: FilterCall, why: str) -> bytes:
    """Write that no node is left, and that no eviction would change that.

    Where there are many nodes the reason is cut, so that an answer is not many times as large as
    the call.
    """
    most = _MOST_BYTES // max(1, len(call.node_names))
    text = why if len(why) <= most else f"{why[: most - 3]}..."
    failed = dict.fromkeys(call.node_names, text)
    if call.has_names:
        return _filter_result(_NULL, [], failed)
    return _filter_result(_NO_NODES, None, failed)


def all_candidates(call: PreemptCall) -> bytes:
    """Write that pods may be evicted wherever the scheduler thought of it."""
    return _ENCODER.encode(_PreemptResult(call.candidates))


NO_CANDIDATE: Final = _ENCODER.encode(_PreemptResult({}))
"""The answer that no pod is to be evicted."""


def _filter_result(
    nodes: msgspec.Raw, names: list[str] | None, unresolvable: dict[str, str]
) -> bytes:
    return _ENCODER.encode(_FilterResult(nodes, names, {}, unresolvable))


def _identity(pod: _Object | None) -> PodIdentity:
    metadata = None if pod is None else pod.metadata
    if metadata is None:
        raise MalformedCallError("request", "Pod.metadata: must be present")
    found = PodIdentity(metadata.namespace or "", metadata.name or "", metadata.uid or "")
    for field in ("namespace", "name", "uid"):
        text, rule = getattr(found, field), ""
        if not text:
            rule = "must not be empty"
        elif len(text) > MAX_NAME_BYTES:  # namespaces are looked up and remembered
            rule = f"must be no more than {MAX_NAME_BYTES} characters"
        if rule:
            raise MalformedCallError("request", f"Pod.metadata.{field}: {rule}")
    return found


def _check_count(nodes: int, path: str) -> None:
    if nodes > MOST_NODES:
        raise MalformedCallError("request", f"{path}: must be no more than {MOST_NODES}")


def _name(node: _Object, path: str) -> str:
    name = "" if node.metadata is None else node.metadata.name
    if not name:
        raise MalformedCallError("request", f"{path}.metadata.name: must not be empty")
    return name


def _identified(node: str, victims: _Victims) -> Mapping[str, object]:
    """Return MetaVictims for Victims: an answer has uids only, whatever the question had."""
    uids = [pod.metadata.uid if pod.metadata else "" for pod in victims.pods or ()]
    for index, uid in enumerate(uids):
        if not uid:
            path = f"NodeNameToVictims.{node}.Pods[{index}].metadata.uid"
            raise MalformedCallError("request", f"{path}: must not be empty")
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": victims.violations or 0}


def _parsed(
    decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw, what: str, prefix: str = ""
) -> _T:
    try:
        return decode_tolerant(decoder, data)
    except RecursionError as err:
        raise MalformedCallError("nesting", "the JSON text nests too deep") from err
    except msgspec.ValidationError as err:
        raise MalformedCallError("type", _type_error(str(err), what, prefix)) from err
    except msgspec.DecodeError as err:
        raise MalformedCallError("json", f"the body is not JSON: {err}") from err


def _type_error(text: str, what: str, prefix: str) -> str:
    """Put the path of the field first: `Pod.metadata.uid: expected str, got int`."""
    detail, _, path = text.replace("`", "").replace(" | null", "").partition(" - at ")
    if not path:
        place = f"{what}: " if prefix else f"the body is no {what}: "
        return f"{place}{detail[:1].lower()}{detail[1:]}"
    return f"{prefix}{path.removeprefix('$.')}: {detail[:1].lower()}{detail[1:]}"
