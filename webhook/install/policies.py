"""Admission policies of an installation: whether the API server has them, and which have to go."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final, Literal, TypeAlias

from webhook.install.apply import (
    Applier,
    InstallApi,
    current,
    delete,
    describe,
    kind_of_object,
    patch_once,
)
from webhook.install.kustomizations import InstallError, entries_of
from webhook.jsonfields.fields import mapping, sequence
from webhook.kube.api import JsonPatch, NotFoundError, Object
from webhook.kube.kinds import DEVICE_CLASSES
from webhook.kube.metadata import object_name
from webhook.operations.names import DEVICE_CLAIMS_POLICY, DEVICE_CLASS_MINOR
from webhook.operations.retry import Report

Choice: TypeAlias = Literal["auto", "policy", "webhook"]
"""Form of a part that the API server may have itself; `auto` takes what it has."""
Form: TypeAlias = Literal["policy", "webhook"]

MUTATING_POLICIES: Final = "mutatingadmissionpolicies"
VALIDATING_POLICIES: Final = "validatingadmissionpolicies"
_POLICY_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_NONE_SERVED: Final = (
    "this API server has no MutatingAdmissionPolicy in admissionregistration.k8s.io/v1"
    " (Kubernetes 1.36 has)"
)
_NO_VALIDATING_POLICIES: Final = (
    "service accounts: this API server has no ValidatingAdmissionPolicy in"
    " admissionregistration.k8s.io/v1, so a client with one of their tokens may write all that"
    " their roles grant"
)


def choose_form(
    api: InstallApi, option: str, wanted: Choice, needs: Set[str] = frozenset({MUTATING_POLICIES})
) -> Form:
    """Return the form of the mask, or of what decides about new pods, that the API server can have.

    Args:
        api: The API server.
        needs: What it has to serve.
        option: The option that says what is wanted, for messages.
        wanted: What it says.

    Raises:
        InstallError: It cannot have the one that is wanted.
        ApiError: It does not answer.
    """
    if wanted == "webhook":
        return "webhook"
    if needs <= _served(api):
        return "policy"
    if wanted == "policy":
        raise InstallError(f"{option} policy: {_NONE_SERVED}; use {option} webhook")
    return "webhook"


def check_stamps(api: InstallApi) -> None:
    """See that the API server can mark Bindings.

    Raises:
        InstallError: It cannot.
        ApiError: It does not answer.
    """
    if MUTATING_POLICIES not in _served(api):
        raise InstallError(f"--stamps: {_NONE_SERVED}; nothing but the mark of bound pods needs it")


def remove_objects(
    api: InstallApi, objects: Sequence[Object], applier: Applier, report: Report
) -> None:
    """Remove what an earlier installation had, the last of them first; nothing that is not there.

    Raises:
        ApiError: The API server refused it; what was removed before is gone.
    """
    for each in reversed(objects):
        if current(api, each) is None:
            continue
        if not applier.dry_run:
            metadata = mapping(each.get("metadata"), "metadata")
            name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
            delete(api, kind_of_object(each), name, namespace=namespace)
        applier.changes += 1
        report(f"{describe(each)}: {'would be deleted' if applier.dry_run else 'deleted'}")


def drop_entries(
    api: InstallApi,
    former: Sequence[Object],
    wanted: Sequence[Object],
    applier: Applier,
    report: Report,
) -> None:
    """Take entries out of webhook configurations that others have applied, too.

    With server-side apply those would stay, as they are not ours alone.

    Args:
        api: The API server.
        former: The configurations with entries that are not wanted.
        wanted: The same configurations without, which are applied.
        applier: Its dry run is taken; it counts what is changed.
        report: Takes a line about each change.

    Raises:
        ApiError: The API server refused it.
    """
    for before, after in zip(former, wanted, strict=True):
        unwanted = _entry_names(before) - _entry_names(after)
        found = current(api, after)
        if applier.dry_run or found is None or not unwanted & _entry_names(found):
            continue
        entries = list(entries_of(found))
        kept = [each for each in entries if each.get("name") not in unwanted]
        metadata = mapping(found.get("metadata"), "metadata")
        version = metadata["resourceVersion"]
        patch: JsonPatch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/webhooks", "value": kept},
        ]
        patch_once(api, kind_of_object(after), str(metadata["name"]), patch, dry_run=False)
        applier.changes += 1
        gone = ", ".join(sorted(str(name) for name in unwanted & _entry_names(found)))
        report(f"{describe(after)}: is left without {gone}")


def _entry_names(configuration: Object) -> set[object]:
    return {entry.get("name") for entry in entries_of(configuration)}


def apply_identities(
    api: InstallApi, identities: Sequence[Object], applier: Applier, report: Report, *, minor: int
) -> None:
    """Hold our service accounts to what they need, or say that the API server cannot.

    The policy about DeviceClasses goes where the API server has none: it would refuse all new pods.

    Args:
        minor: The minor version of the API server; 0 where it is not known.

    Raises:
        ApiError: It does not answer, or refused a policy.
    """
    if VALIDATING_POLICIES in _served(api):
        lacks_classes = 0 < minor < DEVICE_CLASS_MINOR or not _serves_device_classes(api)
        unwanted = [each for each in identities if lacks_classes and _is_about_devices(each)]
        applier.apply_all(each for each in identities if each not in unwanted)
        remove_objects(api, unwanted, applier, report)
    else:
        report(_NO_VALIDATING_POLICIES)


def _is_about_devices(policy: Object) -> bool:
    return object_name(policy) == DEVICE_CLAIMS_POLICY


def _served(api: InstallApi, group: str = _POLICY_GROUP) -> set[object]:
    resources = sequence(api.raw(group).get("resources"), "resources")
    return {mapping(each, "resources").get("name") for each in resources}


def _serves_device_classes(api: InstallApi) -> bool:
    """Return whether there are DeviceClasses: a policy about them refuses pods where not."""
    try:
        return DEVICE_CLASSES.plural in _served(api, f"/apis/{DEVICE_CLASSES.api_version}")
    except NotFoundError:
        return False
