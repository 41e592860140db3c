"""Lead registrations that are there to another webhook, or another CA, without a gap.

1. `trust`: what is asked now stays, and both CAs are trusted there.
2. `verify`, when the new webhook runs: the API server itself has to reach it, with the new CA
   alone.
3. `redirect`: all entries, in one write for each configuration. Both CAs are still trusted; the
   former one goes when the registrations are applied after that.

Whatever ends it between two writes leaves entries that call a webhook that answers, as long as the
one before goes on; and the same again finds what is left to do by what stands there.

Entries are changed as a whole, by JSON Patch: with server-side apply a field that another manager
set, too, would stay beside the new ones.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from webhook.install.apply import Applier, InstallApi, current, describe, kind_of_object, patch_once
from webhook.install.endpoint_probe import CannotProbeError, Namespaces, probing, remove_probe
from webhook.install.kustomizations import InstallError, entries_of
from webhook.install.readiness import wait_out
from webhook.jsonfields.fields import mapping
from webhook.kube.api import ConflictError, InvalidError, Object
from webhook.kube.metadata import object_name
from webhook.operations.retry import Report, RetryPolicy
from webhook.state.well_known import BIND_ENTRY
from webhook.tls.bundles import certificate_set, joined

_ATTEMPTS: Final = 5
_PATH: Final = "/mutate"
_RUN_AGAIN: Final = "run this again to go on from here"

_Client: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry that is there: its index, its `clientConfig`, and the one it is to have."""

    index: int
    name: str
    now: _Client
    wanted: _Client

    @property
    def is_redirected(self) -> bool:
        """Whether the API server is to call another place, or to stop trusting a CA."""
        before, after = (certificate_set(_bundle(each)) for each in (self.now, self.wanted))
        is_wider = before == after or (bool(before) and before <= after)
        return _place(self.now) != _place(self.wanted) or not is_wider

    @property
    def both(self) -> _Client:
        """The `clientConfig` that is wanted, which trusts what was trusted before, too."""
        before, after = _bundle(self.now), _bundle(self.wanted)
        if not before or not after:
            return self.wanted  # without a bundle, what the API server trusts anyway
        return _with_bundle(self.wanted, joined(after, before))


class Redirection:
    """The registrations that are there, on their way to what is wanted.

    Args:
        applier: Its API server and its dry run are taken; it counts what is changed.
        report: Takes a line about each change.
        registrations: What is wanted; the bundle may still be unknown.
    """

    def __init__(
        self, api: InstallApi, applier: Applier, report: Report, registrations: Sequence[Object]
    ) -> None:
        self._api = api
        self._applier = applier
        self._report = report
        self._left = [each for each in registrations if current(api, each) is not None]
        self._redirected: list[Object] = []
        known = [entry for each in self._left for entry in self._entries(each)]
        guards = [each for each in known if each.name == BIND_ENTRY] or known[:1]
        self._before, self._after = (
            (_called(guards[0].now), _called(guards[0].wanted)) if guards else ("", "")
        )
        self._is_under_way = any(_place(each.now) != _place(each.wanted) for each in known)

    def trust(self, bundle: bytes) -> None:
        """Let what is there trust a bundle besides what it trusts now.

        Entries without a bundle stay as they are: with one, they would trust nothing else.

        Raises:
            ApiError: The API server refused it.
        """

        def wider(found: Object) -> Iterator[tuple[int, _Client]]:
            for index, entry in enumerate(entries_of(found)):
                client = mapping(entry.get("clientConfig"), "clientConfig")
                before = _bundle(client)
                if before and not certificate_set(bundle) <= certificate_set(before):
                    yield index, _with_bundle(client, joined(before, bundle))

        for registration in self._left if bundle else ():
            if self._patch(registration, wider):
                self._is_under_way = True
                verb = "would trust" if self._applier.dry_run else "trusts"
                self._report(f"{describe(registration)}: {verb} the CA of {self._after}, too")

    def verify(
        self, registrations: Sequence[Object], namespaces: Namespaces, patience: RetryPolicy
    ) -> None:
        """Wait until the API server reaches the webhook where the registrations will send it.

        There is nothing to wait for where no namespace has opted in, and where what is asked now
        does not answer either.

        Raises:
            InstallError: It does not in time.
            ApiError: The API server does not answer.
        """
        changing = [
            entry
            for registration in registrations
            for entry in self._entries(registration)
            if entry.is_redirected
        ]
        if not changing or not namespaces():
            remove_probe(self._api)  # of a run that was killed
            return
        self._is_under_way = True
        # the bind is what stops when nothing answers
        chosen = next((one for one in changing if one.name == BIND_ENTRY), changing[0])
        after = _called(chosen.wanted)
        self._report(f"{after}: waiting until the API server reaches it")
        try:
            with probing(self._api, probed_client(chosen.wanted), namespaces) as probe:
                obstacle = probe.settled_obstacle(patience)
            if obstacle and self._answers_now(chosen, namespaces, patience):
                with probing(self._api, probed_client(chosen.wanted), namespaces) as probe:
                    wait_out(after, probe.obstacle, patience)
            elif obstacle:
                self._report(f"{after}: does not answer, as what was asked before: {obstacle}")
        except CannotProbeError as err:
            raise InstallError(
                f"{after}: whether the API server reaches it cannot be seen: {err}; --no-wait goes"
                " on without"
            ) from err

    def redirect(self, registrations: Sequence[Object]) -> bool:
        """Send the API server to the new webhook; return whether anything was to be changed.

        Raises:
            ApiError: The API server refused it.
        """

        def elsewhere(registration: Object) -> Callable[[Object], Iterable[tuple[int, _Client]]]:
            return lambda found: [
                (each.index, each.both)
                for each in _entries(found, registration)
                if each.is_redirected
            ]

        is_changed = False
        for registration in registrations:
            if current(self._api, registration) is None:
                continue
            if self._patch(registration, elsewhere(registration)):
                is_changed = True
                if not self._applier.dry_run:
                    self._applier.changes += 1  # what is applied after this may find it as it is
                verb = "would ask" if self._applier.dry_run else "asks"
                self._report(f"{describe(registration)}: {verb} {self._after}")
            self._redirected.append(registration)
            self._left = [each for each in self._left if describe(each) != describe(registration)]
        return is_changed

    def unfinished(self) -> str:
        """Return what stands when an installation breaks off; empty where nothing moves."""
        if self._applier.dry_run or not self._is_under_way:
            return ""
        if not self._left:
            return f"not finished: the API server asks {self._after}; {_RUN_AGAIN}"
        if not self._redirected:
            return (
                f"not finished: the API server asks {self._before}, as before, and trusts what it"
                f" trusted: what worked goes on; {_RUN_AGAIN}"
            )
        return (
            f"not finished: the API server asks {self._after} by"
            f" {', '.join(map(describe, self._redirected))}, and {self._before} by"
            f" {', '.join(map(describe, self._left))}: both have to go on; {_RUN_AGAIN}"
        )

    # -- inside ----------------------------------------------------------------------------

    def _entries(self, registration: Object) -> list[_Entry]:
        found = current(self._api, registration)
        return [] if found is None else list(_entries(found, registration))

    def _answers_now(self, entry: _Entry, namespaces: Namespaces, patience: RetryPolicy) -> bool:
        with probing(self._api, probed_client(entry.now), namespaces) as probe:
            return not probe.settled_obstacle(patience)

    def _patch(
        self, registration: Object, changes: Callable[[Object], Iterable[tuple[int, _Client]]]
    ) -> bool:
        """Change entries of a registration as it is; return whether there was anything to do."""
        kind = kind_of_object(registration)
        name = object_name(registration)
        for attempt in range(_ATTEMPTS):
            found = current(self._api, registration)
            wanted = [] if found is None else list(changes(found))
            if found is None or not wanted:
                return attempt > 0  # a change that was answered by an error may be stored
            version = mapping(found.get("metadata"), "metadata")["resourceVersion"]
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            patch: list[dict[str, object]] = [test]
            for index, client in wanted:
                place = f"/webhooks/{index}/clientConfig"
                patch.append({"op": "replace", "path": place, "value": dict(client)})
            try:
                patch_once(self._api, kind, name, patch, dry_run=self._applier.dry_run)
            except (InvalidError, ConflictError):
                if attempt == _ATTEMPTS - 1:
                    raise
                continue  # another was faster
            return True
        return False


def _entries(found: Object, registration: Object) -> Iterator[_Entry]:
    """Return those entries that are there and go on to be."""
    wanted = {
        str(entry.get("name")): mapping(entry.get("clientConfig"), "clientConfig")
        for entry in entries_of(registration)
    }
    for index, entry in enumerate(entries_of(found)):
        name = str(entry.get("name"))
        if name in wanted:
            client = mapping(entry.get("clientConfig"), "clientConfig")
            yield _Entry(index, name, client, wanted[name])


def _place(client: _Client) -> tuple[object, ...]:
    service = mapping(client.get("service"), "clientConfig.service")
    if not service:
        return (client.get("url"),)
    port = service.get("port", 443)
    return service.get("namespace"), service.get("name"), service.get("path"), port


def _called(client: _Client) -> str:
    """Name the webhook of an entry for a person."""
    service = mapping(client.get("service"), "clientConfig.service")
    if service:
        return f"the cluster (Service {service.get('namespace')}/{service.get('name')})"
    url = urlsplit(str(client.get("url", "")))
    return f"{url.scheme}://{url.netloc}"


def probed_client(client: _Client) -> _Client:
    """Return the `clientConfig` of the same webhook at the path where changes are asked about."""
    service = mapping(client.get("service"), "clientConfig.service")
    if service:
        return {**client, "service": {**service, "path": _PATH}}
    url = urlsplit(str(client.get("url", "")))
    return {**client, "url": url._replace(path=url.path.rpartition("/")[0] + _PATH).geturl()}


def _bundle(client: _Client) -> bytes:
    """Return what is trusted, as far as it can be read; nothing is what is trusted anyway."""
    try:
        return base64.b64decode(str(client.get("caBundle") or ""), validate=True)
    except binascii.Error:
        return b""


def _with_bundle(client: _Client, bundle: bytes) -> _Client:
    return {**client, "caBundle": base64.b64encode(bundle).decode("ascii")}
