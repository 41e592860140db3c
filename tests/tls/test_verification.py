"""Calls by the registrations are tried as the API server makes them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from tests.tls.certificates import a_serving_certificate, written
from tests.tls.listening import listening
from webhook.tls import verification
from webhook.tls.called_names import RegisteredCall
from webhook.tls.files import server_context
from webhook.tls.issue import CA_LIFETIME, issue_ca
from webhook.tls.verification import Verification, handshake_with, verify

TODAY = datetime.now(UTC)
CA, OTHER = issue_ca(now=TODAY), issue_ca(now=TODAY)
ENDED = issue_ca(now=TODAY - CA_LIFETIME - timedelta(days=1))
PEM = CA.certificate
GUARD = "ValidatingWebhookConfiguration deferred-quota"
JOBS = "MutatingWebhookConfiguration zz-deferred-quota-jobs"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Where a certificate for `localhost` and 127.0.0.1 is served."""
    pair = written(tmp_path, a_serving_certificate(ca=CA, now=TODAY))
    with listening(lambda: server_context(*pair)) as place:
        yield place


BUNDLES = {
    "the CA": (PEM, ""),
    "several CAs": (OTHER.certificate + ENDED.certificate + PEM, ""),
    "the CA beside what cannot be read": (
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + PEM,
        "",
    ),
    "another CA": (OTHER.certificate, "unable to get local issuer certificate"),
    "garbage": (b"garbage", "it cannot be read"),
    "no ASCII": (b"\xff", "it cannot be read"),
    "a CA of nothing that is served": (ENDED.certificate, "unable to get local issuer certificate"),
    "what this machine trusts": (b"", "unable to get local issuer certificate"),
}


@pytest.mark.parametrize(("bundle", "refusal"), BUNDLES.values(), ids=BUNDLES)
def test_a_bundle_verifies_what_a_ca_of_it_has_signed(
    address: tuple[str, int], bundle: bytes, refusal: str
) -> None:
    assert handshake_with(address)("localhost", bundle) == refusal


NAMES = {
    "127.0.0.1": "",
    "LOCALHOST": "",
    "elsewhere.example": "Hostname mismatch, certificate is not valid for 'elsewhere.example'.",
    "127.0.0.2": "IP address mismatch, certificate is not valid for '127.0.0.2'.",
    ".example": "no certificate can be for that name",
}


@pytest.mark.parametrize(("name", "refusal"), NAMES.items())
def test_the_name_that_is_called_has_to_be_covered(
    address: tuple[str, int], name: str, refusal: str
) -> None:
    assert handshake_with(address)(name, PEM) == refusal


def test_a_leaf_of_a_ca_that_has_ended_is_refused(tmp_path: Path) -> None:
    begun = TODAY - CA_LIFETIME - timedelta(days=1)
    ended = issue_ca(now=begun)
    leaf = a_serving_certificate(ca=ended, now=begun, lifetime=CA_LIFETIME)
    pair = written(tmp_path, leaf)
    with listening(lambda: server_context(*pair)) as place:
        assert handshake_with(place)("localhost", ended.certificate) == "certificate has expired"


def test_a_ca_that_another_one_signed_is_trusted_by_itself(tmp_path: Path) -> None:
    """As Go's x509 does it, and OpenSSL does not by default."""
    leaf = a_serving_certificate(ca=CA, now=TODAY)
    pair = written(tmp_path, leaf)
    with listening(lambda: server_context(*pair)) as place:
        assert handshake_with(place)("localhost", leaf.certificate) == ""


def test_a_server_that_does_not_answer_is_no_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        place = closed.getsockname()
    with pytest.raises(OSError, match="refused"):
        handshake_with(place)("localhost", PEM)


# -- all entries -----------------------------------------------------------------------------------


def a_call(
    entry: str, bundle: bytes = PEM, *, where: str = GUARD, name: str = "n"
) -> RegisteredCall:
    return RegisteredCall(where, entry, name, is_service=True, bundle=bundle)


class Handshakes:
    """Refuses bundles other than the CA's."""

    def __init__(self) -> None:
        self.made: list[tuple[str, bytes]] = []

    def __call__(self, name: str, bundle: bytes) -> str:
        self.made.append((name, bundle))
        return "" if bundle == PEM else "of another CA"


def test_what_calls_nothing_of_ours_leaves_nothing_to_say() -> None:
    handshakes = Handshakes()
    assert verify([], handshakes) == Verification()
    assert handshakes.made == []


def test_entries_that_trust_the_same_share_a_handshake() -> None:
    handshakes = Handshakes()
    calls = [a_call("bind"), a_call("resize"), a_call("jobs", where=JOBS), a_call("x", name="m")]
    assert verify(calls, handshakes) == Verification()
    assert handshakes.made == [("n", PEM), ("m", PEM)]


def test_a_problem_says_which_registration_which_name_and_why() -> None:
    calls = [
        a_call("bind", b"x"),
        a_call("resize", b"x"),
        a_call("j", b"x", where=JOBS),
    ]
    found = verify(calls, Handshakes())
    why = "the caBundle there does not verify the serving certificate for n: of another CA"
    assert found.problems == (f"{GUARD}, bind and 1 more: {why}", f"{JOBS}, j: {why}")
    assert (found.notes, found.refusing) == ((), 3)


def test_entries_that_trust_another_ca_are_noted_while_others_trust_this_one() -> None:
    """Without the replica the calls that succeed would fail as well."""
    found = verify([a_call("bind"), a_call("j", b"x", where=JOBS)], Handshakes())
    assert found.problems == ()
    (note,) = found.notes
    assert note.startswith(f"{JOBS}, j: the caBundle there does not verify")
    assert found.refusing == 1


def test_only_entries_of_binds_that_trust_by_their_bundle_keep_a_replica_ready() -> None:
    """Others are not asked about binds; and CAs of this machine may not be the API server's."""
    for trusting in (a_call("j", where=JOBS), a_call("bind", b"")):
        handshakes = {(trusting.name, trusting.bundle): "", ("n", b"x"): "of another CA"}
        found = verify([trusting, a_call("resize", b"x")], lambda *how, of=handshakes: of[how])
        assert len(found.problems) == 1


def test_an_entry_without_a_bundle_is_noted_and_makes_nothing_not_ready() -> None:
    found = verify([a_call("bind", b""), a_call("resize")], Handshakes())
    assert found.problems == ()
    (note,) = found.notes
    assert note.startswith(f"{GUARD}, bind: has no caBundle, and the CAs of this machine")
    assert found.refusing == 0


# -- rules that are broken on purpose --------------------------------------------------------------

RULES = {
    "a refusal makes a replica not ready": ("(notes if is_trusted else problems)", "notes"),
    "unless binds trust the certificate": ("(notes if is_trusted else problems)", "problems"),
    "binds, and no other entries": ("call.registration == GUARD and ", ""),
    "by their bundle": ("bool(call.bundle) and ", ""),
    "that verifies it": (" and not refusals[how]", ""),
    "an entry without a bundle is only noted": (
        "        if bundle:\n            ref",
        "        if 1:\n            ref",
    ),
    "each name is called": ("how = call.name, call.bundle", 'how = "n", call.bundle'),
    "by each bundle": ("how = call.name, call.bundle", 'how = call.name, b"x"'),
    "once": ("if how not in refusals:", "if True:"),
    "each registration is named": ("((call.registration, *how)", "((GUARD, *how)"),
    "each entry is counted": ("refusing += len(entries)", "refusing += 1"),
    "nothing but the bundle is trusted": ("_trust(context, bundle)", "context.verify_mode = 0"),
    "of which one CA suffices": ("            failure = err", "            raise"),
    "and which is not empty": ("raise failure or ", "return None and "),
    "a CA is trusted as it is": ("|= ssl.VERIFY_X509_PARTIAL_CHAIN", "|= 0"),
    "the name is compared": ("hostname_checks_common_name = False", "check_hostname = False"),
    "a name of nothing is refused": ("except ValueError:", "except ZeroDivisionError:"),
    "no answer is no refusal": (
        "except ssl.SSLCertVerificationError as err",
        "except OSError as err",
    ),
}
"""Rule → a line of the module, and one in its place that breaks it."""


@pytest.mark.parametrize(("line", "broken"), RULES.values(), ids=RULES)
def test_a_broken_rule_is_noticed(
    line: str, broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check_all(tmp_path)
    source = Path(verification.__file__).read_text()
    assert source.count(line) == 1
    module = ModuleType("broken")
    monkeypatch.setitem(sys.modules, "broken", module)
    exec(source.replace(line, broken), module.__dict__)  # noqa: S102 - our own module
    for name in ("verify", "handshake_with", "Verification"):
        monkeypatch.setitem(globals(), name, getattr(module, name))
    noticed = (AssertionError, AttributeError, OSError, ValueError, pytest.fail.Exception)
    with pytest.raises(noticed):
        _check_all(tmp_path)


def _check_all(directory: Path) -> None:
    pair = written(directory, a_serving_certificate(ca=CA, now=TODAY))
    with listening(lambda: server_context(*pair)) as place:
        for bundle, refusal in BUNDLES.values():
            test_a_bundle_verifies_what_a_ca_of_it_has_signed(place, bundle, refusal)
        for name, refusal in NAMES.items():
            test_the_name_that_is_called_has_to_be_covered(place, name, refusal)
    test_a_ca_that_another_one_signed_is_trusted_by_itself(directory)
    test_a_server_that_does_not_answer_is_no_refusal()
    test_what_calls_nothing_of_ours_leaves_nothing_to_say()
    test_entries_that_trust_the_same_share_a_handshake()
    test_a_problem_says_which_registration_which_name_and_why()
    test_entries_that_trust_another_ca_are_noted_while_others_trust_this_one()
    test_only_entries_of_binds_that_trust_by_their_bundle_keep_a_replica_ready()
    test_an_entry_without_a_bundle_is_noted_and_makes_nothing_not_ready()
