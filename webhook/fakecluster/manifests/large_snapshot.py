"""A file with a list of objects, read without making values of most of its pods.

What is read is what `parse_snapshot` makes of the same file. Whatever is not quite ordinary, a
repeated key, a number that kubectl sends otherwise, or a name that is none, is left to it: it says
what is wrong, and where. The former two are looked for by a second process where there is one:
every value has to be made for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from webhook.fakecluster.manifests.snapshot import SnapshotObject, one_object, parse_snapshot
from webhook.fakecluster.storage.pod_strategy import Gate, PodCondition
from webhook.jsonfields.encoding import NumberText, encode_json
from webhook.kube.api import PODS, object_key
from webhook.kube.codec import decode_object
from webhook.kube.files.aside import LARGE_BYTES, done_aside
from webhook.kube.files.documents import Document, count_keys, decode_plain, has_plain_keys
from webhook.kube.files.snapshot_format import SnapshotExtent, documents_of, extent_of
from webhook.kube.files.yaml_scalars import as_sent
from webhook.kube.metadata import ObjectMeta, name_causes
from webhook.quota.nodes.brief_pods import BriefPod

_NULL: Final = msgspec.Raw(b"null")
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_RESIZING: Final = "PodResizePending"
_LISTS: Final = frozenset({"List", "SnapshotList"})


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a container that decide the requests of its pod, as they are written."""

    name: msgspec.Raw = _NULL
    resources: msgspec.Raw = _NULL
    restart_policy: msgspec.Raw = _NULL


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a container's status that decide the requests of its pod."""

    name: msgspec.Raw = _NULL
    resources: msgspec.Raw = _NULL
    allocated_resources: msgspec.Raw = _NULL


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """Affinity to other pods, or against them."""

    pod_affinity: msgspec.Raw = _NULL
    pod_anti_affinity: msgspec.Raw = _NULL


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of the spec that are read of every pod, and what an API server checks of it."""

    node_name: str | None = None
    scheduling_gates: tuple[Gate, ...] | None = None
    termination_grace_period_seconds: int | None = None
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    overhead: msgspec.Raw = _NULL
    resources: msgspec.Raw = _NULL
    affinity: _Affinity | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of the status that are read of every pod, and what an API server checks of it."""

    phase: str | None = None
    qos_class: str | None = None
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    resources: msgspec.Raw = _NULL
    allocated_resources: msgspec.Raw = _NULL


class _PodHead(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that are read of every pod."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


_NO_AFFINITY: Final = _Affinity()
_POD: Final = msgspec.json.Decoder(_PodHead)
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class PodText(BriefPod):
    """A pod of a file: its text, and what is looked at of every pod."""

    __slots__ = (
        "has_pod_affinity",
        "name",
        "namespace",
        "node_name",
        "running_on",
        "template",
        "text",
    )

    def __init__(self, text: msgspec.Raw, head: _PodHead, template: bytes | None) -> None:
        """Take the JSON text of the pod, what was read of it, and what decides its requests."""
        spec = head.spec
        self._value = None
        self.text = text
        self.template = template
        self.namespace = head.metadata.namespace
        self.name = head.metadata.name
        self.node_name = spec.node_name or ""
        self.running_on = "" if head.status.phase in _ENDED else self.node_name
        self.has_pod_affinity = spec.affinity is not None and spec.affinity != _NO_AFFINITY

    def read(self) -> Mapping[str, object]:
        """Return all of it."""
        return with_uid(decode_object(bytes(self.text)), self.namespace, self.name)


def with_uid(pod: Mapping[str, object], namespace: str, name: str) -> Mapping[str, object]:
    """Return a pod with a uid, by which pods are told apart: a file written by hand has none."""
    metadata = pod.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("uid"):
        return pod
    return {**pod, "metadata": {**metadata, "uid": object_key(namespace, name)}}


class _Templates:
    """Requests of pods, made once for pods that agree in what decides them."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def of(self, head: _PodHead) -> bytes | None:
        """Return what decides the requests of a pod, as JSON of a pod; None if not so simple."""
        spec, status = head.spec, head.status
        for condition in status.conditions or ():
            if condition.type == _RESIZING:
                return None
        key = encode_json(
            (
                spec.containers,
                spec.init_containers,
                spec.overhead,
                spec.resources,
                status.container_statuses,
                status.init_container_statuses,
                status.resources,
                status.allocated_resources,
            )
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _template_of(spec, status)
        return known


def _template_of(spec: _Spec, status: _Status) -> bytes:
    return encode_json(
        {
            "spec": {
                "containers": spec.containers,
                "initContainers": spec.init_containers,
                "overhead": spec.overhead,
                "resources": spec.resources,
            },
            "status": {
                "containerStatuses": status.container_statuses,
                "initContainerStatuses": status.init_container_statuses,
                "resources": status.resources,
                "allocatedResources": status.allocated_resources,
            },
        }
    )


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """The objects of some files, and what these do not hold."""

    objects: Sequence[SnapshotObject]
    extent: SnapshotExtent
    pods: Sequence[PodText] = ()
    """Pods that are not among the objects, as they are not read in full yet."""


class _NotOrdinaryError(ValueError):
    """Something has to be looked at by the reader that says what is wrong."""


def read_for_looking(files: Sequence[tuple[str, bytes]]) -> ReadSnapshot:
    """Read files for a command that only looks: a pod of one long list is read when it is used.

    Args:
        files: Name and content.

    Raises:
        SnapshotError: One cannot be read, is empty, or holds an object that is there already.
    """
    if len(files) == 1:
        read = _read_list(*files[0])
        if read is not None:
            return read
    documents = documents_of(files)
    return ReadSnapshot(parse_snapshot(documents), extent_of(documents))


def _read_list(file: str, data: bytes) -> ReadSnapshot | None:
    """Read a file; None where it is no list, or something in it is not ordinary."""
    try:
        head, texts = _parts_of(data)
        document = Document(file, 1, head, {"": 1})
        extent = extent_of([document])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # no list, or something is wrong: the other reader says where
    once = partial(_is_ordinary, data, head, texts)
    with done_aside(once, is_large=len(data) >= LARGE_BYTES) as is_ordinary:
        reader = _ItemReader(document)
        try:
            for index, text in enumerate(texts):
                reader.read(index, text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if reader.is_ambiguous or not is_ordinary():
            return None
    return ReadSnapshot(reader.objects, extent, reader.pods)


def _is_ordinary(data: bytes, head: Mapping[str, object], texts: Sequence[msgspec.Raw]) -> bool:
    """Return whether everything in a list can be read as it is, and no key twice in an object."""
    if not has_plain_keys(data):
        return False
    try:
        keys = sum(count_keys(_AS_IT_IS.decode(text)) for text in texts)
        return keys + count_keys(head) == data.count(b":")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _unchanged(text: str) -> NumberText:
    if as_sent(number := NumberText(text)) is not number:
        raise _NotOrdinaryError
    return number


_AS_IT_IS: Final = msgspec.json.Decoder(float_hook=_unchanged)


def _parts_of(data: bytes) -> tuple[dict[str, object], list[msgspec.Raw]]:
    """Return a list without its items, and these as text."""
    parts = _PARTS.decode(data)
    texts = _TEXTS.decode(parts.get("items", _NULL))
    head = {name: decode_plain(text) for name, text in parts.items() if name != "items"}
    if head.get("kind") not in _LISTS or not isinstance(head.get("apiVersion"), str):
        raise _NotOrdinaryError
    return {**head, "items": []}, texts


class _ItemReader:
    """The items of a list, one after the other."""

    def __init__(self, document: Document) -> None:
        self.objects: list[SnapshotObject] = []
        self.pods: list[PodText] = []
        self._document = document
        self._templates = _Templates()

    def read(self, index: int, text: msgspec.Raw) -> None:
        """Read one item.

        Raises:
            MsgspecError: It is not JSON.
            ValueError: It is not ordinary.
        """
        head = _pod_head(text)
        if head is None:
            self.objects.append(_other_of(self._document, decode_plain(text), index))
            return
        if name_causes(PODS, head.metadata):
            raise _NotOrdinaryError
        self.pods.append(PodText(text, head, self._templates.of(head)))

    @property
    def is_ambiguous(self) -> bool:
        """Whether two objects have one place."""
        names = {(one.namespace, one.name) for one in self.pods}
        names |= {(one.namespace, one.name) for one in self.objects if one.kind == PODS}
        pods = len(self.pods) + sum(one.kind == PODS for one in self.objects)
        places = {one.place for one in self.objects}
        return len(names) < pods or len(places) < len(self.objects)


def _pod_head(text: msgspec.Raw) -> _PodHead | None:
    """Return what is read of a pod; None for any other object, and one that is not so simple."""
    try:
        head = _POD.decode(text)
    except msgspec.ValidationError:
        return None
    is_pod = head.kind == PODS.kind and head.api_version == PODS.api_version
    return head if is_pod and head.metadata.namespace else None


def _other_of(document: Document, value: object, index: int) -> SnapshotObject:
    if not isinstance(value, dict) or not all(
        isinstance(value.get(name), str) and value[name] for name in ("apiVersion", "kind")
    ):
        raise _NotOrdinaryError
    if value["kind"].endswith("List"):
        raise _NotOrdinaryError
    return one_object(document, value, f"items[{index}]")
