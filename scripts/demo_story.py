"""The story that scripts/demo plays: what goes wrong at creation goes right at the bind.

It starts `deferred-quota serve --embedded`: an API server in memory that calls the webhook over
HTTPS, as a real one does. Every request below goes to that API server, and everything that is
printed after `→` is what it answered. The story says what each answer has to be; the first that
differs ends it with an error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BIND_HOOK = 'admission webhook "bind.deferredquota.io" denied the request: '
WAIT_SECONDS = 60
WIDTH = 96


class StoryError(Exception):
    """An answer that is not the one the story tells."""


@dataclass(frozen=True)
class Reply:
    """What the API server answered."""

    code: int
    body: Mapping[str, Any]
    warnings: tuple[str, ...]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


@dataclass(frozen=True)
class Cluster:
    """The embedded API server."""

    url: str

    def send(self, method: str, path: str, body: object = None, *, patch: bool = False) -> Reply:
        kind = "application/merge-patch+json" if patch else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, method=method, headers={"Content-Type": kind}
        )
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
                return _reply(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as err:
            return _reply(err.code, err.read(), err.headers)

    def ledger(self, namespace: str) -> Mapping[str, Any]:
        path = f"/apis/deferredquota.io/v1alpha1/namespaces/{namespace}/quotaledgers/ledger"
        return self.send("GET", path).body


def _reply(code: int, data: bytes, headers: Any) -> Reply:
    warnings = tuple(text.split('"')[1] for text in headers.get_all("Warning") or () if '"' in text)
    return Reply(code, json.loads(data or b"{}"), warnings)


class Story:
    """Prints what happens and checks that it is what was told."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.chapter_number = 0
        self.checks = 0

    def chapter(self, title: str, text: str) -> None:
        self.chapter_number += 1
        print(f"\n{self.chapter_number}. {title}")
        print(textwrap.indent(textwrap.fill(" ".join(text.split()), WIDTH - 3), "   "))

    def ask(
        self,
        what: str,
        method: str,
        path: str,
        body: object = None,
        *,
        patch: bool = False,
        code: int,
        message: str = "",
        warning: str = "",
    ) -> None:
        """Send a request, print the answer, and compare it."""
        reply = self.cluster.send(method, path, body, patch=patch)
        print(f"\n   {what}")
        print(f"     → {reply.code} {'accepted' if reply.code < 300 else reply.body.get('reason')}")
        for text in [reply.message] if reply.code >= 300 else list(reply.warnings):
            print(textwrap.indent(textwrap.fill(text, WIDTH - 7), "       "))
        self._check(f"{what}: code", code, reply.code)
        if message:
            self._check(f"{what}: message", message, reply.message)
        if warning and warning not in reply.warnings:
            raise StoryError(f"{what}: no warning {warning!r} among {reply.warnings}")

    def table(self, namespace: str, expected: Mapping[str, Sequence[str]]) -> None:
        """Print the quotas of a namespace; `expected`: quota → used, reserved, pending, hard."""
        wanted = {name: tuple(row) for name, row in expected.items()}
        give_up = time.monotonic() + WAIT_SECONDS
        while (rows := self._rows(namespace)) != wanted and time.monotonic() < give_up:
            time.sleep(0.02)
        print("\n" + _row("QUOTA", "RESOURCE", "USED", "RESERVED", "PENDING", "HARD"))
        for name, amounts in rows.items():
            print(_row(name, "requests.cpu", *amounts))
        self._check(f"quotas of {namespace}", wanted, rows)

    def _rows(self, namespace: str) -> dict[str, tuple[str, ...]]:
        status = self.cluster.ledger(namespace).get("status", {})
        return {
            quota["name"]: tuple(
                quota.get(part, {}).get("requests.cpu", "0")
                for part in ("used", "reserved", "pending", "hard")
            )
            for quota in status.get("quotas", [])
        }

    def _check(self, what: str, expected: object, found: object) -> None:
        self.checks += 1
        if expected != found:
            raise StoryError(f"{what}\n  expected: {expected}\n  found:    {found}")


def _row(quota: str, resource: str, *amounts: str) -> str:
    return f"     {quota:<12}{resource:<15}" + "".join(f"{amount:>10}" for amount in amounts)


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(name: str, cpu: str, **spec: object) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def binding(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }


def job(name: str, cpu: str, *, suspend: bool) -> dict[str, object]:
    template = {"spec": {**_spec(cpu), "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": suspend, "template": template},
    }


def _spec(cpu: str) -> dict[str, Any]:
    spec = pod("x", cpu)["spec"]
    assert isinstance(spec, dict)
    return spec


def exceeded(quota: str, requested: str, used: str, limited: str) -> str:
    return (
        f"exceeded quota: {quota}, requested: requests.cpu={requested}, "
        f"used: requests.cpu={used}, limited: requests.cpu={limited}"
    )


def tell(story: Story) -> None:
    waiting_pods(story)
    the_bind_is_the_guard(story)
    other_ways_in(story)
    room_is_used_again(story)
    priority_classes(story)
    suspended_jobs(story)
    dry_runs(story)


def waiting_pods(story: Story) -> None:
    story.chapter(
        "Pods that wait take nothing",
        """Namespace team-a has an ordinary ResourceQuota: 2 cpu. Stock Kubernetes would refuse
        the first of these three pods at creation. Here they are admitted, wait as Pending, and use
        none of the quota; what they ask for is shown, and that they can never fit is said.""",
    )
    for name in ("big-1", "big-2", "big-3"):
        story.ask(
            f"create pod {name}, requests.cpu=5",
            "POST",
            pods("team-a"),
            pod(name, "5"),
            code=201,
            warning="can never fit quota compute: requested requests.cpu=5, limited requests.cpu=2",
        )
    story.table("team-a", {"compute": ("0", "0", "15", "2")})


def the_bind_is_the_guard(story: Story) -> None:
    story.chapter(
        "The bind is where quota is charged",
        """Three pods of 1 cpu are created and a scheduler binds them. Two fit. The third is
        refused in the API server's own words, and stays Pending.""",
    )
    for name in ("web-1", "web-2", "web-3"):
        story.ask(
            f"create pod {name}, requests.cpu=1", "POST", pods("team-a"), pod(name, "1"), code=201
        )
    for name in ("web-1", "web-2"):
        story.ask(
            f"bind {name} to node-1",
            "POST",
            f"{pods('team-a')}/{name}/binding",
            binding(name),
            code=201,
        )
    story.ask(
        "bind web-3 to node-1",
        "POST",
        f"{pods('team-a')}/web-3/binding",
        binding("web-3"),
        code=403,
        message=BIND_HOOK + exceeded("compute", "1", "2", "2"),
    )
    story.table("team-a", {"compute": ("2", "0", "16", "2")})


def other_ways_in(story: Story) -> None:
    story.chapter(
        "There is no other way in",
        """A pod that is created with a node, the older bindings resource, and a running pod that
        grows in place: all are charged in the same ledger, and refused by it.""",
    )
    hook = 'admission webhook "assigned.deferredquota.io" denied the request: '
    story.ask(
        "create pod pinned with nodeName: node-1, requests.cpu=1",
        "POST",
        pods("team-a"),
        pod("pinned", "1", nodeName="node-1"),
        code=403,
        message=hook + exceeded("compute", "1", "2", "2"),
    )
    story.ask(
        "bind web-3 through the legacy resource bindings",
        "POST",
        "/api/v1/namespaces/team-a/bindings",
        binding("web-3"),
        code=403,
        message=BIND_HOOK + exceeded("compute", "1", "2", "2"),
    )
    hook = 'admission webhook "resize.deferredquota.io" denied the request: '
    story.ask(
        "resize web-1 from 1 cpu to 2",
        "PATCH",
        f"{pods('team-a')}/web-1/resize",
        {"spec": {"containers": _spec("2")["containers"]}},
        patch=True,
        code=403,
        message=hook + exceeded("compute", "1", "2", "2"),
    )
    story.table("team-a", {"compute": ("2", "0", "16", "2")})


def room_is_used_again(story: Story) -> None:
    story.chapter(
        "Quota that comes free is used at once",
        """web-1 finishes. Its share is given back as soon as that is seen, and web-3 is bound.""",
    )
    story.ask(
        "web-1 ends: phase Succeeded",
        "PATCH",
        f"{pods('team-a')}/web-1/status",
        {"status": {"phase": "Succeeded"}},
        patch=True,
        code=200,
    )
    story.table("team-a", {"compute": ("1", "0", "16", "2")})
    story.ask(
        "bind web-3 to node-1",
        "POST",
        f"{pods('team-a')}/web-3/binding",
        binding("web-3"),
        code=201,
    )
    story.table("team-a", {"compute": ("2", "0", "15", "2")})


def priority_classes(story: Story) -> None:
    story.chapter(
        "A quota for one priority class",
        """Namespace team-b limits pods of class gold to 1 cpu, by a scopeSelector. The second
        gold pod has to wait; a pod without a class is not the quota's business.""",
    )
    made = {"gold-1": "gold", "gold-2": "gold", "plain": ""}
    for name, priority in made.items():
        spec = {"priorityClassName": priority} if priority else {}
        suffix = f", priorityClassName={priority}" if priority else ""
        story.ask(
            f"create pod {name}, requests.cpu=1{suffix}",
            "POST",
            pods("team-b"),
            pod(name, "1", **spec),
            code=201,
        )
    refusal = BIND_HOOK + exceeded("gold-only", "1", "1", "1")
    for name, code, message in (
        ("gold-1", 201, ""),
        ("gold-2", 403, refusal),
        ("plain", 201, ""),
    ):
        story.ask(
            f"bind {name} to node-1",
            "POST",
            f"{pods('team-b')}/{name}/binding",
            binding(name),
            code=code,
            message=message,
        )
    story.table("team-b", {"gold-only": ("1", "0", "1", "1")})


def suspended_jobs(story: Story) -> None:
    story.chapter(
        "Suspended Jobs can be resized, running ones say why not",
        """Kubernetes 1.36 lets the resources of a suspended Job change. Of a running Job it
        refuses that with a print of the whole template; here the answer is a sentence.""",
    )
    jobs = "/apis/batch/v1/namespaces/team-b/jobs"
    change = {"spec": {"template": {"spec": {"containers": _spec("500m")["containers"]}}}}
    for name, suspend in (("nightly", True), ("running", False)):
        story.ask(
            f"create job {name}, suspend: {str(suspend).lower()}, requests.cpu=4",
            "POST",
            jobs,
            job(name, "4", suspend=suspend),
            code=201,
        )
    story.ask("resize nightly to 500m", "PATCH", f"{jobs}/nightly", change, patch=True, code=200)
    story.ask(
        "resize running to 500m",
        "PATCH",
        f"{jobs}/running",
        change,
        patch=True,
        code=422,
        message=(
            'admission webhook "jobs.deferredquota.io" denied the request:'
            " spec.template.spec.containers[0].resources.requests.cpu: field is immutable: from 4"
            " to 500m: the Job is not suspended; suspend it first and wait until its pods are gone:"
            " kubectl patch job running -n team-b --type=merge"
            ' -p \'{"spec":{"suspend":true}}\''
        ),
    )


def dry_runs(story: Story) -> None:
    story.chapter(
        "A dry run decides and charges nothing",
        """The same bind, with dryRun=All, in the full namespace and for a pod that would fit.""",
    )
    story.ask(
        "create pod small, requests.cpu=1",
        "POST",
        pods("team-a"),
        pod("small", "1"),
        code=201,
    )
    story.ask(
        "dry run: bind small to node-1",
        "POST",
        f"{pods('team-a')}/small/binding?dryRun=All",
        binding("small"),
        code=403,
        message=BIND_HOOK + exceeded("compute", "1", "2", "2"),
    )
    story.ask(
        "web-2 ends: phase Succeeded",
        "PATCH",
        f"{pods('team-a')}/web-2/status",
        {"status": {"phase": "Succeeded"}},
        patch=True,
        code=200,
    )
    story.table("team-a", {"compute": ("1", "0", "16", "2")})
    story.ask(
        "dry run: bind small to node-1",
        "POST",
        f"{pods('team-a')}/small/binding?dryRun=All",
        binding("small"),
        code=201,
    )
    story.table("team-a", {"compute": ("1", "0", "16", "2")})


@contextmanager
def served() -> Iterator[Cluster]:
    """Start the server with an embedded cluster on free ports, and stop it afterwards."""
    with tempfile.TemporaryDirectory(prefix="deferred-quota-") as scratch:
        announce, log = Path(scratch, "announce.json"), Path(scratch, "server.log")
        command = [
            sys.executable, "-m", "webhook", "serve",
            "--embedded", str(HERE / "demo_cluster.yaml"),
            "--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--embedded-api", "127.0.0.1:0",
            "--announce", str(announce),
        ]  # fmt: skip
        with log.open("wb") as output:
            server = subprocess.Popen(command, stderr=output, env=os.environ | {"HOME": scratch})
        try:
            yield Cluster(_wait_until_ready(server, announce, log))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(WAIT_SECONDS)


def _wait_until_ready(server: subprocess.Popen[bytes], announce: Path, log: Path) -> str:
    give_up = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < give_up and server.poll() is None:
        if announce.exists():
            told = json.loads(announce.read_bytes())
            if _is_ready(told["ops"]["url"]):
                print(f"The webhook serves {told['webhook']['url']}; its API server is embedded.")
                return str(told["listeners"]["api"]["url"])
        time.sleep(0.02)
    raise StoryError(f"the server did not become ready:\n{log.read_text()}")


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> int:
    argparse.ArgumentParser(prog="scripts/demo", description="Play the story.").parse_args()
    began = time.monotonic()
    try:
        with served() as cluster:
            story = Story(cluster)
            tell(story)
    except StoryError as err:
        print(f"\ndemo: {err}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        return 130
    print(f"\nAll {story.checks} answers were as told, in {time.monotonic() - began:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
