"""What became of a pod, in a form that the API server's own check and ours can be compared in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.e2e.cluster.objects import Answer
from webhook.quota.amounts.quantity import Quantity

_OURS: Final = re.compile(r'^admission webhook "\w+\.deferredquota\.io" denied the request: (.*)$')
_NATIVE: Final = re.compile(r'^pods "[^"]*" is forbidden: ((?:exceeded|failed) quota: .*)$')
_QUOTA: Final = re.compile(r"^\w+ quota: ([^,:]+)[,:]")
_SECTION: Final = re.compile(r"(requested|used|limited): ([^ ]+?)(?=, \w+: |$)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a pod: the code, and the words without the prefix of who said them."""

    code: int
    words: str = ""

    @property
    def is_about_quota(self) -> bool:
        """Whether quota decided, not the shape of the pod."""
        return self.code < 300 or self.code == 403

    @property
    def quota(self) -> str:
        """The quota that a refusal names."""
        found = _QUOTA.match(self.words)
        return found.group(1) if found else ""

    def by_value(self, sections: Sequence[str]) -> Verdict:
        """Write the amounts of some sections of the words in one notation."""

        def rewritten(section: re.Match[str]) -> str:
            if section[1] not in sections:
                return section[0]
            pairs = [pair.split("=") for pair in section[2].split(",")]
            amounts = ",".join(f"{key}={Quantity.parse(text).nano}n" for key, text in pairs)
            return f"{section[1]}: {amounts}"

        return Verdict(self.code, _SECTION.sub(rewritten, self.words)) if self.quota else self


def native(answer: Answer) -> Verdict:
    """Read an answer of the API server's own check."""
    return _verdict(answer, _NATIVE)


def ours(answer: Answer) -> Verdict:
    """Read an answer that rests on our check."""
    return _verdict(answer, _OURS)


def _verdict(answer: Answer, form: re.Pattern[str]) -> Verdict:
    found = form.match(answer.message)
    return Verdict(answer.code, found.group(1) if found else answer.message)
