"""What cert-manager would do for an installation, which cannot run here.

Its kinds are served without a schema; Secrets are written as it writes them, for the Certificates
that are there, and the `caBundle` of each registration that names one.

Source: cert-manager v1.18, pkg/util/pki (templates, usages), pkg/controller/certificates/issuing
(annotations, keys, `ca.crt`), pkg/controller/cainjector.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, apply
from tests.e2e.cluster.waiting import becomes
from webhook.tls.called_names import REGISTRATIONS

GROUP: Final = "cert-manager.io"
_KINDS: Final = f"/apis/{GROUP}/v1/namespaces/{SYSTEM}"
_SECRETS: Final = f"/api/v1/namespaces/{SYSTEM}/secrets"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


def definition(kind: str) -> dict[str, Any]:
    """Return the definition of one of its kinds, which takes any fields."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


class CertManager:
    """Issues and injects when a test asks for it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane, self._api = plane, Api(plane.rest)

    def install(self) -> None:
        """Let its kinds be served."""
        apply(self._plane, [definition("Certificate"), definition("Issuer")])
        for plural in ("certificates", "issuers"):
            becomes(lambda: self._api.get(f"{_KINDS}/{plural}").code, 200, plural)  # noqa: B023

    def issue(self, name: str) -> None:
        """Write the Secret of a Certificate anew."""
        certificate = self._api.get(f"{_KINDS}/certificates/{name}").body
        spec = certificate["spec"]
        secret_name, issuer = spec["secretName"], spec["issuerRef"]
        key = self._key(secret_name, spec["privateKey"])
        source = self._api.get(f"{_KINDS}/issuers/{issuer['name']}").body["spec"]
        if "selfSigned" in source:
            issued = authority = _signed(spec, key, None, key)
        else:
            data = self.secret(source["ca"]["secretName"])
            authority = x509.load_pem_x509_certificate(data["tls.crt"])
            issued = _signed(spec, key, authority, _loaded(data["tls.key"]))
        data = {
            "tls.crt": issued.public_bytes(serialization.Encoding.PEM),
            "tls.key": key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
            "ca.crt": authority.public_bytes(serialization.Encoding.PEM),
        }
        notes = {
            f"{GROUP}/alt-names": ",".join(spec.get("dnsNames", ())),
            f"{GROUP}/certificate-name": name,
            f"{GROUP}/common-name": spec.get("commonName", ""),
            f"{GROUP}/ip-sans": "",
            f"{GROUP}/issuer-group": issuer["group"],
            f"{GROUP}/issuer-kind": issuer["kind"],
            f"{GROUP}/issuer-name": issuer["name"],
            f"{GROUP}/uri-sans": "",
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": secret_name,
                "namespace": SYSTEM,
                "annotations": notes,
                "labels": {f"controller.{GROUP}/fao": "true"},
            },
            "data": {each: base64.b64encode(value).decode() for each, value in data.items()},
        }
        apply(self._plane, [secret])

    def inject(self) -> None:
        """Write the CA of the named Certificate into registrations."""
        for kind, name in REGISTRATIONS:
            path = f"{_ADMISSION}/{kind.plural}/{name}"
            raw = self._api.get(path).body
            source = raw["metadata"]["annotations"].get(f"{GROUP}/inject-ca-from")
            if source is None:
                continue
            namespace, _, certificate = source.partition("/")
            assert namespace == SYSTEM
            spec = self._api.get(f"{_KINDS}/certificates/{certificate}").body["spec"]
            bundle = base64.b64encode(self.secret(spec["secretName"])["ca.crt"]).decode()
            patch = [
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
                for index in range(len(raw["webhooks"]))
            ]
            assert self._api.call("PATCH", path, patch, kind="application/json-patch+json").ok

    def secret(self, name: str) -> dict[str, bytes]:
        """Return what a Secret holds; nothing where there is none."""
        data = self._api.get(f"{_SECRETS}/{name}").body.get("data", {})
        return {key: base64.b64decode(value) for key, value in data.items()}

    def _key(self, secret: str, wanted: dict[str, Any]) -> ec.EllipticCurvePrivateKey:
        there = self.secret(secret).get("tls.key")
        if there and wanted["rotationPolicy"] == "Never":
            return _loaded(there)
        assert (wanted["algorithm"], wanted["size"]) == ("ECDSA", 256)
        return ec.generate_private_key(ec.SECP256R1())


def _loaded(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _signed(
    spec: dict[str, Any],
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate | None,
    signing: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    is_ca = bool(spec.get("isCA"))
    common = spec.get("commonName")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])
    hours = re.fullmatch(r"(\d+)h", spec["duration"])
    assert hours is not None
    now = datetime.now(UTC)
    usages = set(spec.get("usages", ("digital signature", "key encipherment")))
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=int(hours[1])))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature="digital signature" in usages,
                key_encipherment="key encipherment" in usages,
                key_cert_sign=is_ca,
                content_commitment=False,
                data_encipherment=False,
                key_agreement=False,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if is_ca:
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    else:
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
        builder = builder.add_extension(by, critical=False)
    if "server auth" in usages:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(usage, critical=False)
    names = [x509.DNSName(each) for each in spec.get("dnsNames", ())]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not common)
    return builder.sign(signing, hashes.SHA256())
