"""`scripts/torture`: the product on a real control plane, under load and faults.

Exits with 1 on any over-commit and on any difference between ledgers and pods in the end, with 3
when the run itself went wrong so that it proves nothing; the seed to repeat it is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import secrets
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from tests.controlplane.pki import write_private
from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import RestError
from tests.torture.ending import Ending, wait_for_peace
from tests.torture.faults.driver import FaultDriver
from tests.torture.links import Links
from tests.torture.load.churn import Churn
from tests.torture.load.load import Load
from tests.torture.load.shapes import PREFIX, churned_space, spaces
from tests.torture.observer.clusters import ClusterJudge
from tests.torture.observer.etcd import current_revision
from tests.torture.observer.gating import GateJudge
from tests.torture.observer.recorder import Recording
from tests.torture.observer.replay import Judge
from tests.torture.observer.strict import StrictJudge, held
from tests.torture.report import Report
from tests.torture.setting import lay_out, wait_until_counted, wait_until_enforced
from tests.torture.stack import WEBHOOKS, Stack
from tests.torture.version import Version
from tests.torture.world import Incident, World

_JSON_IN_ETCD: Final = "--storage-media-type=application/json"
_SAY_SECONDS: Final = 15.0
_TOUCH_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """How much, for how long."""

    minutes: float = 20.0
    binds: int = 50_000
    faults: int = 100
    namespaces: int = 6
    webhooks: int = 3
    controllers: int = 2
    binders: int = 32
    churners: int = 12
    terminating_pods: str = "Release"
    seed: int = 0
    is_guarded: bool = True
    binds_per_second: float = 0.0
    """How many binds are tried at most; 0 for as many as can be."""
    unpaced_minutes: float = 0.0
    """For how long from the start as many as can be are tried whatever the rate."""
    templates: int = 0
    """How many kinds of pods there are; 0 for as many as there are pods."""
    threads: int = 64
    """How many requests a webhook answers at the same time."""
    most_minutes: float = 0.0
    """How long the load may last at most; 0 for twice the minutes."""

    @property
    def holds(self) -> bool:
        """Whether pods past their grace period are charged until they are gone."""
        return self.terminating_pods == "Hold"


class Driver(Protocol):
    """What is done to the product while it is loaded."""

    @property
    def incidents(self) -> Sequence[Incident]:
        """What was done."""

    @property
    def done(self) -> int:
        """How much of it is over."""

    @property
    def is_enough(self) -> bool:
        """Whether the load may end."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Begin nothing more, and wait until all is mended."""


DriverMaker: TypeAlias = Callable[[World, Options], Driver]


def faults(world: World, options: Options) -> Driver:
    """Return what breaks things."""
    return FaultDriver(world, options.seed, options.faults, options.minutes * 60)


def torture(
    options: Options,
    directory: Path,
    say: Callable[[str], None],
    *,
    driver: DriverMaker = faults,
    version: Version | None = None,
) -> Report:
    """Do it all, and report.

    Args:
        options: How much, for how long.
        directory: For everything that is written; the history is left in `history.jsonl`.
        say: Called with what is done.
        driver: Makes what is done to the product.
        version: What is installed first; by default this checkout.
    """
    report = Report(options=asdict(options))
    with (
        ControlPlane.start(
            directory / "plane", scheduler=False, apiserver_flags=(_JSON_IN_ETCD,), say=say
        ) as plane,
        Links() as links,
    ):
        say("the control plane runs")
        world = _build(options, plane, links, directory, version)
        try:
            _run(options, world, driver(world, options), directory, report, say)
        finally:
            world.stack.stop()
    return report


def _build(
    options: Options, plane: ControlPlane, links: Links, directory: Path, version: Version | None
) -> World:
    nodes = plane.add_nodes(4, cpu="4000", memory="16Ti", pods=20000)
    places = [*spaces(options.namespaces), churned_space()]
    stack = Stack.start(
        plane,
        links,
        directory / "product",
        webhooks=options.webhooks,
        controllers=options.controllers,
        spaces=places,
        seed=options.seed,
        terminating_pods=options.terminating_pods,
        is_guarded=options.is_guarded,
        threads=options.threads,
        version=version,
    )
    plane.start_scheduler(stack.scheduler_configuration(directory / "product"))
    return World(plane, stack, links, places, nodes)


def _run(
    options: Options,
    world: World,
    driver: Driver,
    directory: Path,
    report: Report,
    say: Callable[[str], None],
) -> None:
    plane = world.plane
    recording = Recording.start(
        plane.etcd_url,
        prefix=PREFIX,
        revision=current_revision(plane.etcd_url) + 1,
        directory=directory,
    )
    try:
        wait_until_enforced(plane, is_guarded=options.is_guarded)
        lay_out(plane, world.spaces)
        wait_until_counted(plane, world.spaces)
        say("the product runs, and its ledgers count all quotas")
        context = admin_context(plane)
        load = Load(
            plane.url,
            context,
            [space for space in world.spaces if not space.is_churned],
            world.nodes,
            binders=options.binders,
            seed=options.seed,
            binds_per_second=options.binds_per_second,
            unpaced_seconds=options.unpaced_minutes * 60,
            templates=options.templates,
        )
        churn = Churn(
            plane.url,
            context,
            churned_space(),
            world.nodes,
            threads=options.churners,
            seed=options.seed,
        )
        began = time.monotonic()
        for each in (load, churn, driver):
            each.start()
        _wait(options, load, driver, _followed(recording, plane, world.spaces[0].path), say)
        for each in (load, churn, driver):
            each.stop()
        report.seconds = time.monotonic() - began
        say("the load is over")
        report.errors += _ended_by_themselves(world)
        _mend(world)
        churn.clear()
        ending = _come_to_rest(plane, world, holds=options.holds)
        time.sleep(1.0)  # what the recorder has not written yet
        recording.check()
    finally:
        recording.stop()
    _conclude(report, recording, load, churn, driver, ending, began)


def _come_to_rest(plane: ControlPlane, world: World, *, holds: bool) -> Ending:
    """Wait for peace, and then for the lists with which the recorded history has to end.

    The scheduler goes on binding what waits, as quota comes free; from the first peace on it stands
    still, so that nothing changes between these lists and the end of the history.
    """
    peace = wait_for_peace(plane, world.spaces, holds=holds)
    plane.scheduler.pause()
    time.sleep(1.0)  # what it has asked for is answered
    ending = wait_for_peace(plane, world.spaces, holds=holds)
    if ending.seconds is not None:
        ending.seconds = peace.seconds
    return ending


def _wait(
    options: Options,
    load: Load,
    driver: Driver,
    check: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Wait for the time and the binds, at most twice the time or what the options say."""
    most = options.most_minutes or 2 * options.minutes
    began = time.monotonic()
    said = began
    while True:
        time.sleep(0.5)
        check()
        now = time.monotonic()
        passed = (now - began) / 60
        if now - said >= _SAY_SECONDS:
            said = now
            say(f"{passed:5.1f} min: binds {load.tally.outcomes()}, faults {driver.done}")
        enough = load.tally.tried >= options.binds and driver.is_enough
        if (passed >= options.minutes and enough) or passed >= most:
            return


def _followed(recording: Recording, plane: ControlPlane, path: str) -> Callable[[], None]:
    """Return what checks the recording, and sees to it that namespaces have a history too.

    Etcd forgets after some minutes. A watch that has seen nothing for so long, as nobody has
    changed a namespace, could not go on when it is begun again.
    """
    touched = 0.0

    def check() -> None:
        nonlocal touched
        recording.check()
        if time.monotonic() - touched >= _TOUCH_SECONDS:
            touched = time.monotonic()
            annotations = {"example.com/touched": f"{touched:.0f}"}
            with contextlib.suppress(OSError, http.client.HTTPException, RestError):
                plane.rest.patch(path, {"metadata": {"annotations": annotations}})

    return check


def _ended_by_themselves(world: World) -> list[str]:
    """Name the processes that do not run although every fault is mended."""
    return [
        f"{member.name} has ended by itself with {member.process.exit_code}"
        for member in world.stack.members
        if not member.process.is_running
    ]


def _mend(world: World) -> None:
    for process in world.plane.processes:
        process.resume()
        if not process.is_running:
            process.start()
    for name in [WEBHOOKS, *(member.name for member in world.stack.members)]:
        world.links.set(name, delay=0.0, refuse=False, hold=False)
    world.stack.mend()


def _conclude(
    report: Report,
    recording: Recording,
    load: Load,
    churn: Churn,
    driver: Driver,
    ending: Ending,
    began: float,
) -> None:
    facts = recording.facts()
    judge = Judge(requests=load.tally.requests, began=began)
    gates, clusters = GateJudge(), ClusterJudge()
    holds = report.options["terminating_pods"] == "Hold"
    strict = StrictJudge({churned_space().name}, holds=holds)
    for fact in facts:
        charged = held(fact) if holds else fact
        judge.feed(charged)
        clusters.feed(charged)
        gates.feed(fact)
        strict.feed(fact)
    report.judged(judge, facts)
    report.judged_gates(gates)
    report.judged_clusters(clusters)
    report.judged_churn(strict, churn.tally)
    report.loaded(load.tally)
    report.healed(driver.incidents, load.tally, [books.space.name for books in load.books])
    report.quiet_seconds = ending.seconds
    report.differences = [str(each) for each in ending.differences]
    report.errors += [*load.errors, *churn.errors]
    report.errors += ending.disagreements(judge)


def admin_context(plane: ControlPlane) -> ssl.SSLContext:
    """Make a TLS context of one who may do everything."""
    client = plane.pki.issue_client("torture", ("system:masters",))
    pair = plane.directory / "pki" / "torture.pem"
    write_private(pair, (client.certificate + client.key).decode())
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    context.load_cert_chain(pair)
    return context


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    given = _parser().parse_args(arguments)
    options = _options(given)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}] {line}", file=sys.stderr, flush=True)

    say(f"seed {options.seed}")
    with contextlib.ExitStack() as stack:
        if given.keep is None:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="torture-"))
            directory = Path(made)
        else:
            directory = given.keep
            directory.mkdir(parents=True, exist_ok=True)
        report = torture(options, directory, say)
    if given.report is not None:
        given.report.write_text(json.dumps(report.as_json(), indent=1))
    print(report.text())
    if given.self_check:
        print("self-check:", "the observer noticed" if report.over_commits else "NOTHING NOTICED")
        return 0 if report.over_commits else 1
    if report.over_commits or report.uncovered or report.misgated or report.differences:
        return 1
    return 3 if report.problems else 0


def _options(given: argparse.Namespace) -> Options:
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    sizes = {name: getattr(given, name) for name in ("namespaces", "webhooks", "controllers")}
    if given.self_check:
        minutes, binds, faults = 0.25, 300, 0
    elif given.short:
        minutes, binds, faults = 1.0, 1000, 14
    else:
        minutes, binds, faults = 20.0, 50_000, 100
    return Options(
        minutes=minutes if given.minutes is None else given.minutes,
        binds=binds if given.binds is None else given.binds,
        faults=faults if given.faults is None else given.faults,
        binders=given.binders,
        churners=given.churners,
        terminating_pods=given.terminating_pods or ("Release", "Hold")[seed % 2],
        seed=seed,
        is_guarded=not given.self_check,
        **sizes,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__)
    parser.add_argument("--minutes", type=float, help="at least so long; at most twice that")
    parser.add_argument("--binds", type=int, help="at least so many, in twice the time at most")
    parser.add_argument("--faults", type=int, help="so many faults, spread over the minutes")
    parser.add_argument("--namespaces", type=int, default=6)
    parser.add_argument("--webhooks", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=2)
    parser.add_argument("--binders", type=int, default=32, help="threads that bind")
    parser.add_argument("--churners", type=int, default=12, help="threads of the churn")
    parser.add_argument(
        "--terminating-pods",
        choices=("Release", "Hold"),
        help="what is configured; default: Release with an even seed, Hold with an odd one",
    )
    parser.add_argument("--seed", type=int, help="of all chance; default: a new one")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and history here")
    parser.add_argument("--short", action="store_true", help="a minute of load, some faults")
    parser.add_argument(
        "--self-check",
        action="store_true",
        help="leave the guard of binds out: passes if the observer notices the over-commits",
    )
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RestError as err:
        sys.exit(f"the API server refused: {err}")
