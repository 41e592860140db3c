"""What wears: watches that are cut, certificates that are renewed, a configuration that changes."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.e2e.harness import WANTED
from tests.soak.sampling import sample
from tests.soak.slopes import Sample
from tests.torture.world import Incident, World
from webhook.atomic_file import write_file
from webhook.tls.bootstrap import CertificateDirectory
from webhook.tls.files import CERTIFICATE_MODE, KEY_MODE
from webhook.tls.issue import Issued, issue_serving

_OLD_SECONDS: Final = 5.0
"""Connections of at least this age are cut: watches, and those that are kept."""


@dataclass
class Wear:
    """The driver of a run.

    Args:
        world: What is worn.
        directory: Where the product has its certificates and its configuration.
        seconds: How long the run is.
        every: Seconds between two changes.
        sample_every: Seconds between two samples.
    """

    world: World
    directory: Path
    seconds: float
    every: float = 10.0
    sample_every: float = 5.0
    incidents: list[Incident] = field(default_factory=list)
    samples: defaultdict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _began: float = 0.0

    def start(self) -> None:
        """Begin."""
        self._began = time.monotonic()
        self._threads = [
            threading.Thread(target=self._over_and_over, args=(act, pause), daemon=True)
            for act, pause in ((self._change, self.every), (self._sample, self.sample_every))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End what is under way.

        Raises:
            RuntimeError: A change or a sample failed.
        """
        self.world.stopping.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise RuntimeError(self.errors[0])

    @property
    def done(self) -> int:
        """How many changes there were."""
        return len(self.incidents)

    @property
    def is_enough(self) -> bool:
        """Whether the time is over, or something failed."""
        return bool(self.errors) or time.monotonic() - self._began >= self.seconds

    def _over_and_over(self, act: Callable[[int], None], pause: float) -> None:
        try:
            for number in itertools.count():
                if self.world.stopping.is_set():
                    return
                act(number)
                self.world.wait(pause)
        except Exception as err:  # noqa: BLE001 - outermost frame of a thread: `stop` raises it
            self.errors.append(repr(err))

    def _sample(self, _number: int) -> None:
        for member in self.world.stack.members:
            self.samples[member.name].append(sample(member.process.pid))

    def _change(self, number: int) -> None:
        kind, act = _KINDS[number % len(_KINDS)]
        incident = Incident(kind=kind, began=time.monotonic())
        act(self, number)
        incident.ended = time.monotonic()
        self.incidents.append(incident)

    def cut_watches(self, number: int) -> None:
        """Cut the connections of one process to the API server."""
        members = self.world.stack.members
        member = members[number // len(_KINDS) % len(members)]
        self.world.links.cut(member.name, older=_OLD_SECONDS)

    def renew_certificate(self, _number: int) -> None:
        """Serve a new certificate of the same CA."""
        files = CertificateDirectory(self.directory / "certs")
        ca = Issued(files.ca_certificate.read_bytes(), files.ca_key.read_bytes())
        issued = issue_serving(
            ca, dns_names=WANTED.dns_names, ip_addresses=WANTED.ip_addresses, now=datetime.now(UTC)
        )
        write_file(files.key, issued.key, mode=KEY_MODE)
        write_file(files.certificate, issued.certificate, mode=CERTIFICATE_MODE)

    def change_configuration(self, number: int) -> None:
        """Change a setting that all processes read again."""
        file = self.directory / "config.yaml"
        configuration = json.loads(file.read_text())
        configuration["limits"]["logAllowedEvery"] = 1000 + number
        part = file.with_suffix(".part")
        part.write_text(json.dumps(configuration))
        part.replace(file)


_KINDS: Final[tuple[tuple[str, Callable[[Wear, int], None]], ...]] = (
    ("watches are cut", Wear.cut_watches),
    ("a certificate is renewed", Wear.renew_certificate),
    ("the configuration changes", Wear.change_configuration),
)
