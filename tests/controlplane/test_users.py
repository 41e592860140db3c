"""Keys and kubeconfigs."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.controlplane.pki import Pki
from tests.controlplane.users import Users, file_name

URL = "https://127.0.0.1:1"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.make(tmp_path / "pki", service_address="10.96.0.1")


@pytest.fixture
def users(tmp_path: Path, pki: Pki) -> Users:
    return Users(URL, pki, tmp_path / "users")


def client_of(kubeconfig: Path) -> x509.Certificate:
    (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
    return x509.load_pem_x509_certificate(base64.b64decode(user["user"]["client-certificate-data"]))


def test_a_user_is_the_common_name_and_groups_are_organizations(users: Users, pki: Pki) -> None:
    client = client_of(users.kubeconfig("alice", ("devs", "ops")))
    ca = x509.load_pem_x509_certificate(pki.ca.certificate)
    client.verify_directly_issued_by(ca)
    names = client.subject.get_attributes_for_oid
    assert [one.value for one in names(NameOID.COMMON_NAME)] == ["alice"]
    assert {one.value for one in names(NameOID.ORGANIZATION_NAME)} == {"devs", "ops"}


def test_admin_may_do_everything(users: Users) -> None:
    names = client_of(users.kubeconfig("admin", None)).subject.get_attributes_for_oid
    assert [one.value for one in names(NameOID.ORGANIZATION_NAME)] == ["system:masters"]


def test_a_kubeconfig_needs_no_other_file(users: Users, pki: Pki) -> None:
    path = users.kubeconfig_of_token("system:serviceaccount:a:b", "secret")
    config = yaml.safe_load(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == URL
    assert base64.b64decode(cluster["certificate-authority-data"]) == pki.ca.certificate
    assert config["users"][0]["user"] == {"token": "secret"}
    assert config["current-context"] == config["contexts"][0]["name"]


def test_the_same_user_has_the_same_kubeconfig(users: Users) -> None:
    assert users.kubeconfig("alice", ("a",)) == users.kubeconfig("alice", ("a",))
    assert users.kubeconfig("alice", ("a",)) != users.kubeconfig("alice", ("b",))


@pytest.mark.parametrize("user", ["system:kube-scheduler", "a/b", "../x", "a b"])
def test_any_user_has_a_file_that_fits_into_kubeconfig(user: str) -> None:
    assert set(file_name(user)).isdisjoint(": /")
    assert file_name(user) != file_name(user, ("group",))


def test_keys_are_for_their_owner_alone(users: Users, pki: Pki) -> None:
    secret = [users.kubeconfig("alice", ()), pki.serving[1], pki.service_accounts[0]]
    for path in secret:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_api_server_is_called_by_address_and_by_service(pki: Pki) -> None:
    certificate = x509.load_pem_x509_certificate(pki.serving[0].read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)
    addresses = {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "10.96.0.1"}
