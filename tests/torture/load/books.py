"""What the load believes of its pods; the truth is in etcd."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from tests.torture.load.shapes import Space


@dataclass(slots=True)
class Known:
    """A pod that the load has made.

    Attributes:
        since: When it was made or asked to go.
        quality: Its class of service, which no resize may change.
    """

    name: str
    uid: str
    since: float = 0.0
    quality: str = ""


@dataclass
class Books:
    """What the load knows of one namespace; `lock` guards all of it."""

    space: Space
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[Known] = field(default_factory=list)
    assigned: list[Known] = field(default_factory=list)
    leaving: list[Known] = field(default_factory=list)
    made: int = 0

    def take(self, pods: list[Known], rng: random.Random) -> Known | None:
        """Take any of the pods into one's hands."""
        with self.lock:
            return pods.pop(rng.randrange(len(pods))) if pods else None

    def put(self, pods: list[Known], pod: Known) -> None:
        """Give a pod back."""
        with self.lock:
            pods.append(pod)

    def peek(self, pods: list[Known], rng: random.Random) -> Known | None:
        """Look at one that may be in other hands a moment later."""
        with self.lock:
            return pods[rng.randrange(len(pods))] if pods else None

    def next_name(self) -> str:
        """Give a name that was not used."""
        with self.lock:
            self.made += 1
            return f"p{self.made}"

    @property
    def size(self) -> int:
        """How many pods there are."""
        return len(self.waiting) + len(self.assigned) + len(self.leaving)
