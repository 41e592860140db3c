"""The users of a cluster: kubeconfigs and clients with certificates or tokens."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.controlplane.pki import (
    Pki,
    kubeconfig_of_certificate,
    kubeconfig_of_token,
    write_private,
)
from tests.controlplane.rest import Rest

ADMIN: Final = "admin"
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {ADMIN: ("system:masters",)}


class Users:
    """Makes credentials of users, as files.

    Args:
        url: Where the API server is.
        pki: The CA that the API server trusts for users.
        directory: Where files go.
    """

    def __init__(self, url: str, pki: Pki, directory: Path) -> None:
        self._url, self._pki, self._directory = url, pki, directory
        directory.mkdir(parents=True, exist_ok=True)
        self._kubeconfigs: dict[tuple[str, tuple[str, ...]], Path] = {}
        self._rests: list[Rest] = []

    def kubeconfig(self, user: str, groups: Sequence[str] | None) -> Path:
        """Give a kubeconfig with a client certificate, the same for the same user and groups."""
        wanted = _groups(user, groups)
        if (user, wanted) not in self._kubeconfigs:
            client = self._pki.issue_client(user, wanted)
            text = kubeconfig_of_certificate(self._url, self._pki.ca.certificate, user, client)
            path = self._directory / f"{file_name(user, wanted)}.yaml"
            write_private(path, text)
            self._kubeconfigs[user, wanted] = path
        return self._kubeconfigs[user, wanted]

    def kubeconfig_of_token(self, user: str, token: str) -> Path:
        """Write a kubeconfig with a token."""
        path = self._directory / f"{file_name(user)}.yaml"
        text = kubeconfig_of_token(self._url, self._pki.ca.certificate, user, token)
        write_private(path, text)
        return path

    def rest(self, user: str, groups: Sequence[str] | None) -> Rest:
        """Give the REST paths, called with a client certificate."""
        wanted = _groups(user, groups)
        client = self._pki.issue_client(user, wanted)
        pair = self._directory / f"{file_name(user, wanted)}.pem"
        write_private(pair, (client.certificate + client.key).decode())
        context = ssl.create_default_context(cadata=self._pki.ca.certificate.decode())
        context.load_cert_chain(pair)
        self._rests.append(Rest(self._url, context))
        return self._rests[-1]

    def rest_of_token(self, token: str) -> Rest:
        """Give the REST paths, called with a token."""
        context = ssl.create_default_context(cadata=self._pki.ca.certificate.decode())
        self._rests.append(Rest(self._url, context, token))
        return self._rests[-1]

    def close(self) -> None:
        """Close the connections of all that called the server."""
        for rest in self._rests:
            rest.close()


def file_name(user: str, groups: Sequence[str] = ()) -> str:
    """Give a name for a user's files; without colons, which separate the files of KUBECONFIG."""
    if user == ADMIN:
        return user
    digest = hashlib.sha256("\0".join((user, *groups)).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9.]+", "-", user) + f"-{digest}"


def _groups(user: str, groups: Sequence[str] | None) -> tuple[str, ...]:
    return _GROUPS.get(user, ()) if groups is None else tuple(groups)
