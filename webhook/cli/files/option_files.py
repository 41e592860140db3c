"""Values of a command's options from a YAML file, by their long names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from webhook.cli.exit_codes import InputError
from webhook.cli.files.inputs import read_input
from webhook.kube.files.documents import Document, SnapshotError, read_documents


def read_option_file(path: Path, command: click.Command) -> dict[str, object]:
    """Return the values of a file as click takes them.

    Args:
        path: The file: one object, `fail-on: refuse`; an option that may be repeated has a list.
        command: The command, of which the options are.

    Raises:
        InputError: It cannot be read, or names an option that there is not, or a value that an
            option does not take.
    """
    known = _long_names(command)
    try:
        documents = read_documents(str(path), read_input(str(path)))
        values: dict[str, object] = {}
        for document in documents:
            values.update(_values(document, known))
    except SnapshotError as err:
        raise InputError(str(err)) from err
    return values


def _long_names(command: click.Command) -> Mapping[str, click.Parameter]:
    """Return the options by their long names, without the dashes."""
    return {
        option.removeprefix("--"): param
        for param in command.params
        for option in param.opts
        if option.startswith("--")
    }


def _values(document: Document, known: Mapping[str, click.Parameter]) -> Mapping[str, object]:
    if document.value is None:
        return {}
    if not isinstance(document.value, Mapping):
        raise document.error("must be an object of options")
    found: dict[str, object] = {}
    for name, value in document.value.items():
        param = known.get(name)
        if param is None or param.name is None:
            raise document.error("unknown option", field=name)
        items = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping) or any(isinstance(one, Mapping | list) for one in items):
            raise document.error("must be a value, or a list of values", field=name)
        is_many = isinstance(param, click.Option) and param.multiple
        if isinstance(value, list) and not is_many:
            raise document.error("takes one value, not a list", field=name)
        try:
            for item in items:
                param.type(_plain(item), param)
        except click.BadParameter as err:
            raise document.error(err.message, field=name) from err
        found[param.name] = tuple(map(str, items)) if is_many else _plain(value)
    return found


def _plain(value: object) -> object:
    return value if isinstance(value, bool) else str(value)
