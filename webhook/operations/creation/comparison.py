"""Differences of an object of a cluster from the one that an installation wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from webhook.jsonfields.fields import child


def differences(wanted: object, found: object, path: str = "") -> Iterator[str]:
    """Yield the paths at which a found value is not the wanted one.

    Fields that only the found one has are no difference where it is an object: the API server
    fills some in. Lists have to have the same items in the same order.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, value in wanted.items():
            yield from differences(value, found.get(name), child(path, str(name)))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (value, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(value, other, f"{path}[{index}]")
    elif wanted != found and not (_is_empty(wanted) and _is_empty(found)):
        yield path


def _is_empty(value: object) -> bool:
    """Return whether a value is left out when it is stored."""
    return value is None or value in ([], {}, "")
