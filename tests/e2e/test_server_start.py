"""A server that can start says where it listens; one that cannot says why."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.admission.reviews import a_review
from tests.e2e.harness import eventually, make_certificates, running_server, spawn
from webhook.tls.bootstrap import CertificateDirectory


def failed_start(
    directory: Path, parts: str = "tests.e2e.parts:plain", **settings: object
) -> tuple[int, list[dict[str, Any]]]:
    """Start a server that should fail; give its exit code and the lines of its log."""
    process, log = spawn(directory, {"parts": parts, "drain_seconds": 0, **settings})
    code = process.wait(20)
    return code, [json.loads(line) for line in log.read_text().splitlines()]


def reason(lines: list[dict[str, Any]]) -> str:
    (line,) = [line for line in lines if line["message"] == "not started"]
    detail: str = line["detail"]
    return detail


def test_a_key_of_another_certificate_is_refused_with_both_files(tmp_path: Path) -> None:
    files = CertificateDirectory(make_certificates(tmp_path / "certs"))
    other = CertificateDirectory(make_certificates(tmp_path / "other"))
    files.key.write_bytes(other.key.read_bytes())
    code, lines = failed_start(tmp_path, certificates=str(files.path))
    assert code == 2
    assert reason(lines) == (
        f"{files.key}: does not belong to the certificate in {files.certificate}"
    )


def test_missing_certificates_are_refused(tmp_path: Path) -> None:
    code, lines = failed_start(tmp_path, certificates=str(tmp_path))
    assert (code, reason(lines)) == (2, f"{tmp_path}/tls.crt: No such file or directory")


@pytest.mark.parametrize(
    ("listener", "option"), [("webhook", "--listen"), ("ops", "--ops (probes and metrics)")]
)
def test_a_port_in_use_is_named(tmp_path: Path, listener: str, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, lines = failed_start(tmp_path, **{listener: address})
    assert code == 2
    assert reason(lines) == f"{option}: cannot listen on {address}: Address already in use"


def test_an_address_that_is_not_ours_is_named(tmp_path: Path) -> None:
    code, lines = failed_start(tmp_path, webhook="192.0.2.1:0")
    assert code == 2
    assert reason(lines) == (
        "--listen: cannot listen on 192.0.2.1:0: Cannot assign requested address"
    )


def test_a_name_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    code, lines = failed_start(tmp_path, webhook="no such host:0")
    assert code == 2
    assert reason(lines).startswith("--listen: cannot listen on no such host:0: ")


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    code, lines = failed_start(tmp_path, threads=8, max_connections=8)
    assert code == 2
    assert "fewer than the connections" in reason(lines)


def test_parts_that_cannot_be_built_end_the_server(tmp_path: Path) -> None:
    code, lines = failed_start(tmp_path, "tests.e2e.parts:broken")
    assert code == 5
    (line,) = [line for line in lines if line["message"] == "the worker cannot be built"]
    assert line["traceback"].endswith("ValueError: cannot be built")


def test_a_listener_without_an_application_ends_the_server(tmp_path: Path) -> None:
    code, lines = failed_start(tmp_path, extra={"api": "127.0.0.1:0"})
    assert code == 5
    (line,) = [line for line in lines if line["message"] == "the worker cannot be built"]
    assert line["traceback"].endswith("listeners and applications differ: api")


def test_the_announcement_says_where_everything_is(tmp_path: Path) -> None:
    with running_server(
        tmp_path, "tests.e2e.parts:with_api", extra={"api": "127.0.0.1:0"}
    ) as server:
        told = server.announcement
        assert told["pid"] == server.process.pid
        assert told["webhook"]["url"] == f"https://127.0.0.1:{server.port}"
        assert told["ops"]["url"] == f"http://127.0.0.1:{told['ops']['port']}"
        assert set(told["listeners"]) == {"api"}
        (line,) = server.log_lines("listening")
        assert {key: line[key] for key in told} == told


def test_a_further_application_streams_on_its_own_port(tmp_path: Path) -> None:
    with running_server(
        tmp_path, "tests.e2e.parts:with_api", extra={"api": "127.0.0.1:0"}
    ) as server:
        place = server.announcement["listeners"]["api"]
        connection = http.client.HTTPConnection("127.0.0.1", place["port"], timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", "/api/v1/pods")
            response = connection.getresponse()
            assert response.readline() == b"path /api/v1/pods\n"  # before the end is there
            assert response.read() == b"end\n"


def test_all_addresses_are_listened_on_when_none_is_given(tmp_path: Path) -> None:
    with running_server(tmp_path, webhook=":0") as server:
        assert server.announcement["webhook"]["url"] == f"https://localhost:{server.port}"
        assert server.post(a_review()).status == 200


def test_a_worker_that_dies_is_replaced_on_the_same_ports(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        (first,) = server.workers()
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: server.workers() not in ([], [first]), seconds=10)
        assert server.post(a_review()).status == 200
        assert server.ops("/readyz").status == 200


def test_nothing_is_written_outside_of_what_was_asked_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    surroundings = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    with running_server(tmp_path, environment=surroundings):
        assert list(home.iterdir()) == []
