"""Admission policies of an installation: whether the API server has them, and which have to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

from webhook.install.apply import Applier, ApplyApi, current, delete, describe, kind_of_object
from webhook.install.kustomizations import InstallError
from webhook.install.rendering import Mask
from webhook.jsonfields.fields import mapping, sequence
from webhook.kube.api import Object
from webhook.operations.retry import Report

MaskChoice: TypeAlias = Literal["auto", "policy", "webhook"]

_POLICY_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_NONE_SERVED: Final = (
    "this API server has no MutatingAdmissionPolicy in admissionregistration.k8s.io/v1"
    " (Kubernetes 1.36 has)"
)
_NO_VALIDATING_POLICIES: Final = (
    "service accounts: this API server has no ValidatingAdmissionPolicy in"
    " admissionregistration.k8s.io/v1, so whoever has one of their tokens may write all that their"
    " roles grant"
)


class Paths(Protocol):
    """An API server that answers to paths."""

    def raw(self, method: str, path: str) -> Object:
        """Send a request to a path of the API and return the object that was answered."""


def choose_mask(api: Paths, wanted: MaskChoice) -> Mask:
    """Return the form of the mask that the API server can have.

    Raises:
        InstallError: It cannot have the one that is wanted.
        ApiError: It does not answer.
    """
    if wanted == "webhook":
        return "webhook"
    if _serves_policies(api):
        return "policy"
    if wanted == "policy":
        raise InstallError(f"--mask policy: {_NONE_SERVED}; use --mask webhook")
    return "webhook"


def check_stamps(api: Paths) -> None:
    """See that the API server can mark Bindings.

    Raises:
        InstallError: It cannot.
        ApiError: It does not answer.
    """
    if not _serves_policies(api):
        raise InstallError(f"--stamps: {_NONE_SERVED}; nothing but the mark of bound pods needs it")


def remove_objects(
    api: ApplyApi, objects: Sequence[Object], applier: Applier, report: Report
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


def apply_identities(
    api: Paths, identities: Sequence[Object], applier: Applier, report: Report
) -> None:
    """Hold our service accounts to what they need, or say that the API server cannot.

    Raises:
        ApiError: It does not answer, or refused a policy.
    """
    if "validatingadmissionpolicies" in _served(api):
        applier.apply_all(identities)
    else:
        report(_NO_VALIDATING_POLICIES)


def _serves_policies(api: Paths) -> bool:
    return "mutatingadmissionpolicies" in _served(api)


def _served(api: Paths) -> set[object]:
    resources = sequence(api.raw("GET", _POLICY_GROUP).get("resources"), "resources")
    return {mapping(each, "resources").get("name") for each in resources}
