"""Which policies an installation has: the mask where the API server can, the mark where wanted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from tests.install.twin import Twin, run
from webhook.install import InstallError
from webhook.install.apply import InstallApi
from webhook.install.policies import VALIDATING_POLICIES, apply_identities, choose_form
from webhook.install.rendering import render
from webhook.kube.api import NotFoundError
from webhook.operations.names import DEVICE_CLAIMS_POLICY, policy_kinds
from webhook.operations.names import VALIDATING_POLICIES as VALIDATING_ADMISSION_POLICIES

STAMPS = (
    "MutatingAdmissionPolicyBinding deferred-quota-stamp",
    "MutatingAdmissionPolicy deferred-quota-stamp",
)


@pytest.mark.parametrize(
    ("wanted", "served", "chosen"),
    [
        ("auto", True, "policy"),
        ("auto", False, "webhook"),
        ("policy", True, "policy"),
        ("webhook", True, "webhook"),
    ],
)
def test_the_mask_is_what_the_api_server_can_do(wanted: Any, served: bool, chosen: str) -> None:
    twin = Twin()
    twin.resources = twin.resources if served else twin.resources[1:]
    assert choose_form(cast("InstallApi", twin), "--mask", wanted) == chosen


def test_a_policy_that_is_not_served_is_an_error_with_the_way_out() -> None:
    twin = Twin()
    twin.resources = ()
    with pytest.raises(InstallError, match="use --mask webhook"):
        run(twin, mask="policy")


def policies(twin: Twin) -> set[str]:
    return {
        f"{kind.kind} {cast('Any', each)['metadata']['name']}"
        for kind in policy_kinds("v1")
        for each in twin.api.list(kind).items
    }


@pytest.mark.parametrize("mask", ["policy", "webhook"])
def test_nothing_marks_bindings_unless_that_is_wanted(mask: str) -> None:
    twin = Twin()
    run(twin, mask=mask)
    assert not policies(twin) & {*STAMPS}
    run(twin, mask=mask, stamps=True)
    assert policies(twin) >= {*STAMPS}


def test_what_is_wanted_again_stays() -> None:
    twin = Twin()
    run(twin, stamps=True)
    assert run(twin, stamps=True)[0] == 0
    assert policies(twin) >= {*STAMPS}


@pytest.mark.parametrize("mask", ["policy", "webhook"])
def test_a_policy_that_is_not_wanted_any_more_goes_once(mask: str) -> None:
    twin = Twin()
    run(twin, mask=mask, stamps=True)
    twin.written.clear()
    changes, lines = run(twin, mask=mask)
    assert changes == 2
    assert [line for line in lines if "stamp" in line] == [
        f"{each}: deleted" for each in reversed(STAMPS)
    ]
    assert twin.written == [f"delete {each}" for each in reversed(STAMPS)]
    assert run(twin, mask=mask)[0] == 0


def test_a_dry_run_says_that_a_policy_would_go() -> None:
    twin = Twin()
    run(twin, stamps=True)
    changes, lines = run(twin, dry_run=True)
    assert changes == 2
    assert [line for line in lines if "stamp" in line] == [
        f"{each}: would be deleted" for each in reversed(STAMPS)
    ]
    assert policies(twin) >= {*STAMPS}


@pytest.mark.parametrize("mask", ["auto", "webhook"])
def test_marks_that_the_api_server_cannot_make_are_refused_before_anything_is_written(
    mask: str,
) -> None:
    twin = Twin()
    twin.resources = twin.resources[1:]
    with pytest.raises(InstallError, match="--stamps: this API server has no Mutating"):
        run(twin, mask=mask, stamps=True)
    assert twin.written == []


def test_where_nothing_can_hold_the_service_accounts_that_is_said() -> None:
    twin = Twin()
    twin.resources = tuple(
        each for each in twin.resources if each["name"] != "validatingadmissionpolicies"
    )
    _, lines = run(twin)
    assert any("so a client with one of their tokens may write all" in line for line in lines)
    assert not any("ValidatingAdmissionPolicy" in each for each in twin.written)


POLICY_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
DEVICES: Final = "/apis/resource.k8s.io/v1"


@pytest.mark.parametrize(
    ("minor", "devices", "has_it"),
    [
        (33, ["deviceclasses"], False),
        (34, ["deviceclasses"], True),
        (0, ["deviceclasses"], True),
        (34, ["resourceclaims"], False),
        (34, None, False),
        (0, None, False),
    ],
)
def test_a_server_without_device_classes_gets_no_policy_with_these(
    minor: int, devices: list[str] | None, *, has_it: bool
) -> None:
    applied: list[str] = []
    served = {POLICY_GROUP: [VALIDATING_POLICIES], **({DEVICES: devices} if devices else {})}

    def raw(path: str) -> dict[str, Any]:
        if path not in served:
            raise NotFoundError(path)
        return {"resources": [{"name": one} for one in served[path]]}

    def get(_kind: object, name: str, **_: object) -> dict[str, Any]:
        raise NotFoundError(name)

    api = SimpleNamespace(raw=raw, get=get)
    applier = SimpleNamespace(
        apply_all=lambda objects: applied.extend(each["metadata"]["name"] for each in objects)
    )
    identities = render().identities
    apply_identities(cast("Any", api), identities, cast("Any", applier), print, minor=minor)
    assert (applied.count(DEVICE_CLAIMS_POLICY) == 2) is has_it
    assert len(applied) == len(identities) - (0 if has_it else 2)


DEVICE_CLAIMS = (
    f"ValidatingAdmissionPolicy {DEVICE_CLAIMS_POLICY}",
    f"ValidatingAdmissionPolicyBinding {DEVICE_CLAIMS_POLICY}",
)


def about_devices(lines: list[str]) -> list[str]:
    return [line for line in lines if DEVICE_CLAIMS_POLICY in line]


def test_the_policy_about_device_classes_goes_where_they_are_served_no_more() -> None:
    twin = Twin()
    run(twin)
    twin.device_classes = False
    twin.written.clear()
    changes, lines = run(twin)
    assert changes == 2
    assert about_devices(lines) == [f"{each}: deleted" for each in DEVICE_CLAIMS]
    assert twin.written == [f"delete {each}" for each in DEVICE_CLAIMS]
    assert run(twin)[0] == 0


def test_a_dry_run_says_that_the_policy_about_device_classes_would_go() -> None:
    twin = Twin()
    run(twin)
    twin.device_classes = False
    changes, lines = run(twin, dry_run=True)
    assert changes == 2
    assert about_devices(lines) == [f"{each}: would be deleted" for each in DEVICE_CLAIMS]
    stored = twin.api.list(VALIDATING_ADMISSION_POLICIES).items
    assert DEVICE_CLAIMS_POLICY in {cast("Any", each)["metadata"]["name"] for each in stored}
