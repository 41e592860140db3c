"""What the service accounts asked API servers for, beside what they may.

`python -m tests.install.audited_rights DIRECTORY` reads the audit logs that end-to-end tests leave
where `DEFERRED_QUOTA_AUDIT` names a directory. It names each right that was granted and never used,
or used and never granted. What a test calls with such a token is not ours, and left out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from webhook.config import PageSettings, ReclaimMode
from webhook.install import render

_ACCOUNT: Final = re.compile(r"system:serviceaccount:[^:]+:(deferred-quota-[a-z]+)")
_AGENT: Final = "deferred-quota/"
_BINDINGS: Final = frozenset({"ClusterRoleBinding", "RoleBinding"})


class Right(NamedTuple):
    """What a service account may, or asked for."""

    account: str
    group: str
    resource: str
    """With its subresource."""
    verb: str
    name: str = ""
    """The only object that it is about; empty is any."""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.account}: {self.verb} {kind} {self.name}".rstrip()

    @property
    def of_any(self) -> Right:
        """Return the right to the same with every object."""
        return self._replace(name="")


def granted_rights() -> frozenset[Right]:
    """Return the rights of an installation that has everything that takes rights."""
    parts = render(
        page=PageSettings(enabled=True), reclaim=ReclaimMode.ACT, judges_nodes=True, mask="none"
    )
    objects = [cast("Any", each) for each in (*parts.cluster, *parts.features)]
    roles = {
        (each["kind"], each["metadata"]["name"]): each["rules"]
        for each in objects
        if each["kind"] in {"ClusterRole", "Role"}
    }
    return frozenset(
        right
        for each in objects
        if each["kind"] in _BINDINGS
        for subject in each["subjects"]
        for rule in roles[each["roleRef"]["kind"], each["roleRef"]["name"]]
        for right in _rights_of(subject["name"], rule)
    )


def used_rights(logs: Iterable[Path]) -> frozenset[Right]:
    """Return the rights that our processes asked for, by the logs of API servers."""
    return frozenset(
        right
        for log in logs
        for line in log.read_text().splitlines()
        if _AGENT in line and (right := _right_of(line)) is not None
    )


def differences(granted: frozenset[Right], used: frozenset[Right]) -> list[str]:
    """Return a line for each right that is granted and not used, or used and not granted."""
    covering = {one if one in granted else one.of_any for one in used}
    return [
        *(f"granted and never used: {one}" for one in sorted(granted - covering)),
        *(f"used and not granted: {one}" for one in sorted(covering - granted)),
    ]


def main() -> int:
    """Print the differences; return 1 where there are some, 2 where nothing was logged."""
    directory = Path(sys.argv[1])
    granted, used = granted_rights(), used_rights(directory.glob("*.log"))
    if not used:  # else each right would be named
        print(f"{directory}: no call of a service account of ours was logged")
        return 2
    found = differences(granted, used)
    print(*found, f"{len(granted)} rights granted, {len(found)} differences", sep="\n")
    return 1 if found else 0


def _rights_of(account: str, rule: Any) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    yield Right(account, group, resource, verb, name)


def _right_of(line: str) -> Right | None:
    """Return the right that a line is about; None where another client asked."""
    try:
        event = json.loads(line)
    except ValueError:
        return None  # half a line, of an API server that was killed
    account = _ACCOUNT.fullmatch(event["user"]["username"])
    place = event.get("objectRef")
    if account is None or place is None or not event.get("userAgent", "").startswith(_AGENT):
        return None
    resource = place["resource"]
    if place.get("subresource"):
        resource += f"/{place['subresource']}"
    group, name = place.get("apiGroup", ""), place.get("name", "")
    return Right(account[1], group, resource, event["verb"], name)


if __name__ == "__main__":
    sys.exit(main())
