"""Kubeconfig files: which context, cluster and user are meant, and what stands in them.

Messages name the file and the field, and never a value: those are secrets.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from webhook.kube.rest.identity import AccessError, Pem


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping in a kubeconfig, and where it stands."""

    file: Path
    """The file; relative paths in it are relative to its directory."""
    place: str
    """YAML path of the mapping, for messages."""
    values: Mapping[str, object] = field(repr=False)

    def refuse(self, name: str, detail: str) -> NoReturn:
        """Return what is wrong with a field."""
        place = f"{self.place}.{name}" if self.place else name
        raise AccessError(f"{self.file}: {place}: {detail}")

    def text(self, name: str) -> str:
        """Return a text; empty if it is not there."""
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.refuse(name, "must be text; put it in quotes")
        return value

    def required(self, name: str) -> str:
        """Return a text that has to be there."""
        return self.text(name) or self.refuse(name, "is missing")

    def flag(self, name: str) -> bool:
        """Return a truth value; False if it is not there."""
        value = self.values.get(name) or False
        if not isinstance(value, bool):
            self.refuse(name, "must be true or false")
        return value

    def section(self, name: str) -> Section:
        """Return a mapping inside; empty if it is not there."""
        value = self.values.get(name) or {}
        if not isinstance(value, Mapping):
            self.refuse(name, "must be a mapping")
        return Section(self.file, f"{self.place}.{name}" if self.place else name, value)

    def texts(self, name: str) -> Sequence[str]:
        """Return a list of texts; empty if it is not there."""
        value = self.values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self.refuse(name, "must be a list of texts")
        return value

    def path(self, name: str) -> Path | None:
        """Return the path of a file that has to exist; None if none is named."""
        text = self.text(name)
        if not text:
            return None
        path = self.file.parent / Path(text).expanduser()
        if not path.is_file():
            self.refuse(name, f"there is no file {path}")
        return path

    def pem(self, name: str) -> Pem | None:
        """Return what `name` gives as a file and `name`-data in base64; the data counts more."""
        encoded = self.text(f"{name}-data")
        if not encoded:
            path = self.path(name)
            return None if path is None else Pem(path)
        try:
            return Pem(data=base64.b64decode(encoded, validate=True))
        except binascii.Error:
            self.refuse(f"{name}-data", "is not base64")

    def entry(self, name: str, wanted: str, inner: str) -> Section | None:
        """Return the mapping `inner` of the entry of a list that has the name `wanted`."""
        entries = self.values.get(name) or []
        if not isinstance(entries, list):
            self.refuse(name, "must be a list")
        for each in entries:
            if isinstance(each, Mapping) and str(each.get("name")) == wanted:
                return Section(self.file, f"{name}[{wanted}]", each).section(inner)
        return None


@dataclass(frozen=True, slots=True)
class SelectedContext:
    """The context that is used, the cluster that it names, and its user, if it names one."""

    context: str
    cluster: Section
    user: Section | None
    namespace: str = ""
    """Namespace that commands work in which name none; empty if it has none."""

    @property
    def source(self) -> str:
        """Return where all this is from, for messages."""
        return f"context {self.context!r} of {self.cluster.file}"


def read_kubeconfig(paths: Sequence[Path], context: str | None = None) -> SelectedContext:
    """Read kubeconfig files; of entries with the same name, the first file's counts.

    Args:
        paths: The files, all of which exist.
        context: Which context; None is the current one of the first file that names one.

    Raises:
        AccessError: A file cannot be read, or something that is needed is not in it.
    """
    files = [_read(path) for path in paths]
    wanted = context or next(filter(None, (each.text("current-context") for each in files)), "")
    if not wanted:
        raise AccessError(f"{_listed(paths)}: current-context: is missing; name a context")
    chosen = _find(files, "contexts", wanted, "context")
    if chosen is None:
        raise AccessError(f"{_listed(paths)}: there is no context {wanted!r}{_offered(files)}")
    cluster = _find(files, "clusters", chosen.required("cluster"), "cluster")
    if cluster is None:
        chosen.refuse("cluster", f"there is no cluster {chosen.text('cluster')!r}")
    user_name = chosen.text("user")
    user = _find(files, "users", user_name, "user") if user_name else None
    if user_name and user is None:
        chosen.refuse("user", f"there is no user {user_name!r}")
    return SelectedContext(wanted, cluster, user, chosen.text("namespace"))


def _read(path: Path) -> Section:
    import yaml  # noqa: PLC0415 - nothing else of the client needs it

    try:
        values = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except OSError as err:
        raise AccessError(f"{path}: {err.strerror}") from err
    except yaml.MarkedYAMLError as err:
        # the line would tell, but it may be that of a token
        line = f" in line {err.problem_mark.line + 1}" if err.problem_mark else ""
        raise AccessError(f"{path}: is no YAML: {err.problem}{line}") from None
    except yaml.YAMLError as err:
        raise AccessError(f"{path}: is no YAML") from err
    if not isinstance(values, Mapping):
        raise AccessError(f"{path}: is no kubeconfig: it must be a mapping")
    return Section(path.absolute(), "", values)


def _find(files: Sequence[Section], name: str, wanted: str, inner: str) -> Section | None:
    return next(filter(None, (each.entry(name, wanted, inner) for each in files)), None)


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


_SHOWN: Final = 20


def _offered(files: Sequence[Section]) -> str:
    """Return the contexts that there are, for the error about a mistyped one."""
    names = [
        str(entry.get("name"))
        for entries in (each.values.get("contexts") for each in files)
        if isinstance(entries, list)
        for entry in entries
        if isinstance(entry, Mapping)
    ]
    return f"; there are {', '.join(sorted(names)[:_SHOWN])}" if names else ""
