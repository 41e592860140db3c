"""Commands that would remove an issue."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Final

from webhook.jsonfields.encoding import encode_json
from webhook.operations.check.values import Entry
from webhook.quota.charging.denials import name_quota
from webhook.quota.checking.values import Issue, Rule
from webhook.quota.objects.names import SHARED_PREFIX

_AMOUNT: Final = "AMOUNT"
"""Stands in a command for what only the author of a manifest knows."""


def fix_of(issue: Issue, entry: Entry) -> str:
    """Return a command that would remove an issue; empty where there is none."""
    write = _FIXES.get(issue.rule)
    return "" if write is None else write(issue, entry)


def _raise_quota(issue: Issue, entry: Entry) -> str:
    if not issue.shortages or name_quota(issue.quota).is_elastic:
        return ""  # what charges an elastic quota is written again, and which to raise is not known
    hard = {one.resource: str(one.used + one.requested) for one in issue.shortages}
    patch = encode_json({"spec": {"hard": hard}}).decode()
    if issue.quota.startswith(SHARED_PREFIX):
        named = ["clusterdeferredquota", issue.quota.removeprefix(SHARED_PREFIX)]
    else:
        named = ["resourcequota", issue.quota, "-n", entry.object.namespace]
    return _command("kubectl", "patch", *named, "--type=merge", "-p", patch)


def _state_resources(issue: Issue, entry: Entry) -> str:
    limits = [key.removeprefix("limits.") for key in issue.unstated if key.startswith("limits.")]
    requests = [
        key.removeprefix("requests.") for key in issue.unstated if not key.startswith("limits.")
    ]
    options = [
        f"--{side}={','.join(f'{name}={_AMOUNT}' for name in dict.fromkeys(names))}"
        for side, names in (("requests", requests), ("limits", limits))
        if names
    ]
    file = entry.document.file
    return _command("kubectl", "set", "resources", "--local", "-f", file, "-o", "yaml", *options)


def _show_limits(_: Issue, entry: Entry) -> str:
    return _command("kubectl", "describe", "limitranges", "-n", entry.object.namespace)


def _make_namespace(_: Issue, entry: Entry) -> str:
    return _command("kubectl", "create", "namespace", entry.object.namespace)


def _list_priorities(_issue: Issue, _entry: Entry) -> str:
    return "kubectl get priorityclasses"


def _list_runtimes(_issue: Issue, _entry: Entry) -> str:
    return "kubectl get runtimeclasses"


def _command(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


_FIXES: Final[Mapping[Rule, Callable[[Issue, Entry], str]]] = {
    Rule.NAMESPACE: _make_namespace,
    Rule.PRIORITY_CLASS: _list_priorities,
    Rule.RUNTIME_CLASS: _list_runtimes,
    Rule.LIMIT_RANGE: _show_limits,
    Rule.MUST_SPECIFY: _state_resources,
    Rule.OBJECT_QUOTA: _raise_quota,
    Rule.QUOTA_EXCEEDED: _raise_quota,
    Rule.NEVER_FITS: _raise_quota,
    Rule.QUOTA_WAIT: _raise_quota,
    Rule.ROLLOUT: _raise_quota,
}
