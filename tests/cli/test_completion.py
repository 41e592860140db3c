"""Completion in shells: scripts that the shells read, and names out of a cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from webhook.cli import ExitCode, cli, completion
from webhook.cli.completion import SHELLS, kubectl_main
from webhook.jsonfields.encoding import encode_json

PROGRAM = "deferred-quota"
NAMES = {
    "/api/v1/namespaces": ("team-a", "team-b", "other"),
    "/api/v1/namespaces/team-a/pods": ("web-1", "web-2", "db"),
    "/apis/batch/v1/namespaces/default/jobs": ("train",),
}


class _Api(BaseHTTPRequestHandler):
    """Lists of names, as an API server gives them; of one kind there are no tables."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = NAMES.get(path, ())
        answer: dict[str, object]
        if "as=Table" in self.headers["Accept"] and "jobs" not in path:
            assert "includeObject=None" in self.path
            rows = [{"cells": [name, "1/1", "Running"]} for name in found]
            answer = {"kind": "Table", "columnDefinitions": [], "rows": rows}
        else:
            items = [{"metadata": {"name": name, "uid": name}} for name in found]
            answer = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
        body = encode_json(answer)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    start_now(monkeypatch, limit_seconds=30)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield write_kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    server.server_close()


def start_now(monkeypatch: pytest.MonkeyPatch, *, limit_seconds: float, ago: float = 0) -> None:
    monkeypatch.setattr(completion, "STARTED", time.monotonic() - ago)
    monkeypatch.setattr(completion, "LIMIT_SECONDS", limit_seconds)


def write_kubeconfig(directory: Path, url: str, user: str = "{}") -> Path:
    path = directory / "kubeconfig"
    path.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {user}}}]
""",
        encoding="utf-8",
    )
    return path


def completions(line: str, kubeconfig: Path | None = None, *, kind: str = "plain") -> list[str]:
    """Return what is offered behind a line, as bash asks for it."""
    words = line.split(" ")
    result = CliRunner().invoke(
        cli,
        [],
        prog_name=PROGRAM,
        env={
            "_DEFERRED_QUOTA_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "KUBECONFIG": str(kubeconfig or "/nowhere"),
        },
    )
    assert result.stderr == ""
    offered = [one.partition(",") for one in result.stdout.splitlines() if one]
    assert {one[0] for one in offered} <= {kind}
    return [one[2] for one in offered]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == ExitCode.OK
    assert "_DEFERRED_QUOTA_COMPLETE" in done.stdout
    if shutil.which(shell):
        parsed = subprocess.run([shell, "-n"], input=done.stdout, text=True, check=False)
        assert parsed.returncode == 0


def test_another_shell_is_refused() -> None:
    done = CliRunner().invoke(cli, ["completion", "tcsh"])
    assert done.exit_code == ExitCode.BAD_INPUT


def test_commands_and_options_are_completed_without_a_cluster() -> None:
    assert completions(f"{PROGRAM} exp") == ["explain"]
    assert completions(f"{PROGRAM} explain dep") == ["deployment"]
    assert completions(f"{PROGRAM} explain pod/") == []
    assert "--watch" in completions(f"{PROGRAM} top --w")


def test_names_are_those_of_the_cluster(kubeconfig: Path) -> None:
    assert completions(f"{PROGRAM} enable te", kubeconfig) == ["team-a", "team-b"]
    assert completions(f"{PROGRAM} top -n o", kubeconfig) == ["other"]
    assert completions(f"{PROGRAM} usage -n o", kubeconfig) == ["other"]
    assert completions(f"{PROGRAM} explain -n team-a pod w", kubeconfig) == ["web-1", "web-2"]
    assert completions(f"{PROGRAM} explain -n team-a pod/w", kubeconfig) == [
        "pod/web-1",
        "pod/web-2",
    ]
    assert completions(f"{PROGRAM} explain -n team-a po/d", kubeconfig) == ["po/db"]
    assert completions(f"{PROGRAM} explain Jobs/", kubeconfig) == ["Jobs/train"]
    assert completions(f"{PROGRAM} explain gadget/", kubeconfig) == []
    assert completions(f"{PROGRAM} job resize ", kubeconfig) == ["train"]
    assert completions(f"{PROGRAM} elastic plan -n team-a d", kubeconfig) == ["db"]
    text = kubeconfig.read_text(encoding="utf-8")
    kubeconfig.write_text(text.replace("user: u}", "user: u, namespace: team-a}"), "utf-8")
    assert completions(f"{PROGRAM} explain pod d", kubeconfig) == ["db"]


@pytest.mark.parametrize(
    ("url", "user"),
    [
        ("http://127.0.0.1:1", "{}"),
        (
            "https://127.0.0.1:1",
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sleep, args: ['60']}}",
        ),
    ],
)
def test_nothing_is_offered_where_no_cluster_answers(tmp_path: Path, url: str, user: str) -> None:
    assert completions(f"{PROGRAM} enable te", write_kubeconfig(tmp_path, url, user)) == []
    assert completions(f"{PROGRAM} enable te") == []


def test_the_cluster_has_what_the_start_of_the_program_left(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_now(monkeypatch, limit_seconds=60, ago=30)
    assert completions(f"{PROGRAM} enable te", kubeconfig) == ["team-a", "team-b"]
    start_now(monkeypatch, limit_seconds=60, ago=61)
    monkeypatch.setattr(_Api, "do_GET", lambda _self: time.sleep(1))
    assert completions(f"{PROGRAM} enable te", kubeconfig) == []


def test_kubectl_asks_by_a_program_of_its_own(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Path(sys.executable).with_name("kubectl_complete-deferred_quota").exists()
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-deferred_quota", "enable", "team"])
    kubectl_main()
    printed = capsys.readouterr()
    assert (printed.out.splitlines(), printed.err) == (["team-a", "team-b", ":4"], "")


def test_files_are_left_to_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("check -f", "usage -f", "explain pod web-1 --snapshot"):
        # bash is told the kind of completion, and finds the files itself
        assert completions(f"{PROGRAM} {command} dep", kind="file") == ["dep"]
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-deferred_quota", "check", "-f", "dep"])
    kubectl_main()
    assert capsys.readouterr().out.splitlines() == [":0"]
