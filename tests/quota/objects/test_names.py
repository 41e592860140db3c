from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.quota.objects.names import (
    DEFERRED_KEYS,
    dns_label_errors,
    is_device_class,
    is_extended_resource,
    is_hugepages,
    is_native,
    is_pod_quota_key,
    is_standard_quota_name,
    label_value_error,
    object_name_errors,
    qualified_name_errors,
)

NATIVE = {
    "cpu": True,
    "hugepages-2Mi": True,
    "nvidia.com": True,
    "kubernetes.io/foo": True,
    "example.kubernetes.io/foo": True,
    "deviceclass.resource.kubernetes.io/foo": True,
    "nvidia.com/gpu": False,
    "/x": False,
}


@pytest.mark.parametrize(("name", "expected"), NATIVE.items())
def test_names_without_a_domain_or_of_kubernetes_are_native(name: str, expected: bool) -> None:
    assert is_native(name) is expected


EXTENDED = {
    "nvidia.com/gpu": True,
    "a/b": True,
    "cpu": False,
    "example.kubernetes.io/foo": False,
    "requests.nvidia.com/gpu": False,
    "NVIDIA.com/gpu": False,
    "nvidia.com/": False,
    "nvidia.com/gpu/2": False,
    "nvidia.com/-gpu": False,
    f"nvidia.com/{'g' * 63}": True,
    f"nvidia.com/{'g' * 64}": False,
    f"{'a' * 244}/gpu": True,
    f"{'a' * 245}/gpu": False,
}


@pytest.mark.parametrize(("name", "expected"), EXTENDED.items(), ids=lambda item: str(item)[:40])
def test_extended_resources_can_be_quota_keys(name: str, expected: bool) -> None:
    assert is_extended_resource(name) is expected


def test_huge_pages_and_device_classes_are_known_by_their_prefix() -> None:
    assert is_hugepages("hugepages-1Gi")
    assert not is_hugepages("requests.hugepages-1Gi")
    assert is_device_class("deviceclass.resource.kubernetes.io/fast")
    assert not is_device_class("deviceclass.example.com/fast")


POD_KEYS = {
    "count/pods": True,
    "pods": True,
    **dict.fromkeys(sorted(DEFERRED_KEYS), True),
    "ephemeral-storage": True,
    "requests.ephemeral-storage": True,
    "limits.ephemeral-storage": True,
    "hugepages-2Mi": True,
    "requests.hugepages-2Mi": True,
    "limits.hugepages-2Mi": False,
    "requests.nvidia.com/gpu": True,
    "nvidia.com/gpu": False,
    "limits.nvidia.com/gpu": False,
    "requests.deviceclass.resource.kubernetes.io/fast": True,
    "requests.example.kubernetes.io/foo": False,
    "requests.storage": False,
    "requests.": False,
    "count/jobs.batch": False,
    "configmaps": False,
    "": False,
}


@pytest.mark.parametrize(("key", "expected"), POD_KEYS.items())
def test_pods_are_charged_under(key: str, expected: bool) -> None:
    assert is_pod_quota_key(key) is expected


STANDARD = {
    "cpu": True,
    "limits.memory": True,
    "pods": True,
    "services.nodeports": True,
    "requests.storage": True,
    "hugepages-2Mi": True,
    "requests.hugepages-2Mi": True,
    "storage": False,
    "limits.storage": False,
    "count/pods": False,
    "foo": False,
}


@pytest.mark.parametrize(("key", "expected"), STANDARD.items())
def test_standard_quota_names(key: str, expected: bool) -> None:
    assert is_standard_quota_name(key) is expected


@pytest.mark.parametrize("value", ["", "a", "A-b_c.d9", "x" * 63])
def test_legal_label_values_have_no_error(value: str) -> None:
    assert label_value_error(value) is None


LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value', "
    " or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
LABEL_ERRORS = {
    "bad value!": LABEL_RULE,
    "-a": LABEL_RULE,
    "a\n": LABEL_RULE,
    "x" * 64: "must be no more than 63 bytes",
    "ä" * 32: f"must be no more than 63 bytes; {LABEL_RULE}",
    "\ud800": LABEL_RULE,
}


@pytest.mark.parametrize(("value", "expected"), LABEL_ERRORS.items(), ids=ascii)
def test_other_label_values_have_the_api_servers_error(value: str, expected: str) -> None:
    assert label_value_error(value) == expected


@pytest.mark.parametrize("name", ["a", "A.b-c_d", "example.com/MyName", "1.2/3"])
def test_qualified_names_have_no_errors(name: str) -> None:
    assert qualified_name_errors(name) == ()


NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN_RULE = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
    "characters, '-' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
PARTS_RULE = (
    f"a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
NAME_ERRORS: dict[str, tuple[str, ...]] = {
    "": ("name part must be non-empty", f"name part {NAME_RULE}"),
    "-x": (f"name part {NAME_RULE}",),
    "n" * 64: ("name part must be no more than 63 bytes",),
    "/x": ("prefix part must be non-empty",),
    "A/x": (SUBDOMAIN_RULE,),
    "a/": ("name part must be non-empty", f"name part {NAME_RULE}"),
    f"{'a' * 254}/x": ("prefix part must be no more than 253 bytes",),
    "a/b/c": (PARTS_RULE,),
}


@pytest.mark.parametrize(("name", "expected"), NAME_ERRORS.items(), ids=lambda item: str(item)[:20])
def test_other_names_have_the_api_servers_errors(name: str, expected: tuple[str, ...]) -> None:
    assert qualified_name_errors(name) == expected


def test_names_of_objects_and_containers_have_the_api_servers_errors() -> None:
    assert dns_label_errors("a.b") == ("must not contain dots",)
    assert dns_label_errors("a" * 64) == ("must be no more than 63 characters",)
    too_long, rule = dns_label_errors("A" * 64)
    assert (too_long, (rule,)) == ("must be no more than 63 characters", dns_label_errors("A"))
    assert object_name_errors("a." + "b" * 252) == ("must be no more than 253 characters",)
    assert len(object_name_errors("A" * 254)) == 2


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert (label_value_error(text) is None) <= (len(text) <= 63)
    assert is_extended_resource(text) <= (not is_native(text))
    assert is_extended_resource(text) <= is_pod_quota_key(f"requests.{text}")
