"""`deferred-quota convert`: quotas of 2017, and of other projects, as quotas of today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
import yaml

from webhook.cli.exit_codes import InputError, printable, shortened
from webhook.cli.files.foreign_quotas import convert_foreign_quota
from webhook.cli.files.inputs import manifest_files, read_input
from webhook.cli.printing.output import print_json
from webhook.jsonfields.encoding import InvalidJsonError, NumberText, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.files.documents import Document, SnapshotError, flatten_lists, read_documents
from webhook.kube.files.yaml_scalars import plain_value
from webhook.quota.objects.legacy_priority_lists import convert_class_list, is_resource_quota

_STRING: Final = "tag:yaml.org,2002:str"
_WIDE: Final = 2**31
"""A line is never folded."""
_RESOLVER: Final[Any] = yaml.resolver.Resolver()
"""How readers of YAML 1.1 take plain scalars, sexagesimal numbers and dates included."""


@dataclass(frozen=True, slots=True)
class _Converted:
    """A document as it is printed, and what is to be said of it."""

    value: object
    warnings: tuple[str, ...]
    has_list: bool
    """Whether a quota in it has a list of priority classes."""
    notes: tuple[str, ...] = ()
    """What of quotas of other projects is left out."""


def run(filenames: tuple[str, ...], recursive: bool, output: str) -> None:
    """Convert quotas of 2017 and of other projects."""
    documents = _convert_all(filenames, recursive=recursive)
    # without any list these are quotas of today, all of which mean what they say
    is_proposed = any(each.has_list for each in documents)
    warnings = [text for each in documents for text in each.notes]
    warnings += [text for each in documents if is_proposed for text in each.warnings]
    for warning in shortened(warnings, "like these"):
        click.echo(f"{click.style('warning:', fg='yellow')} {printable(warning)}", err=True)
    if output == "json":
        _print_as_json([each.value for each in documents])
    else:
        click.echo("---\n".join(_yaml_of(each.value) for each in documents), nl=False)


def _print_as_json(values: Sequence[object]) -> None:
    try:
        for value in values:
            encode_json(value)
    except InvalidJsonError as err:
        raise InputError(f"cannot be written as JSON: {err}") from err
    for value in values:
        print_json(value)


def _convert_all(filenames: Sequence[str], *, recursive: bool) -> Sequence[_Converted]:
    """Convert all documents that are not empty.

    Raises:
        InputError: Anything cannot be read or converted; all such things are named.
    """
    found: list[_Converted] = []
    problems: list[str] = []
    for name in manifest_files(filenames, recursive=recursive):
        try:
            documents = read_documents(name, read_input(name))
        except (InputError, SnapshotError) as err:
            problems.append(str(err))
            continue
        found += [_convert(each, problems) for each in documents if each.value is not None]
    if problems:
        raise InputError(problems)
    return found


def _convert(document: Document, problems: list[str]) -> _Converted:
    """Convert the quotas of one document, also those in lists; note what is wrong."""
    converted: dict[str, object] = {}
    warnings: list[str] = []
    notes: list[str] = []
    has_list = False
    try:
        for path, raw in flatten_lists(document):
            try:
                if not is_resource_quota(raw):
                    foreign = convert_foreign_quota(raw, field=path)
                    if foreign is not None:
                        converted[path] = foreign.quota
                        notes += [str(document.error(text, field=at)) for at, text in foreign.notes]
                    continue
                conversion = convert_class_list(raw, field=path)
            except InvalidFieldError as err:
                problems.append(str(document.error(err.detail, field=err.field)))
                continue
            warnings += [
                str(document.error(text, field=field)) for field, text in conversion.warnings
            ]
            has_list = has_list or conversion.has_list
            if conversion.quota is not raw:
                converted[path] = conversion.quota
    except SnapshotError as err:
        problems.append(str(err))
    value = _replaced(document.value, "", converted)
    return _Converted(value, tuple(warnings), has_list, tuple(notes))


def _replaced(value: object, path: str, converted: Mapping[str, object]) -> object:
    """Return a document with its converted objects; whatever is in no list stands for itself."""
    if path in converted:
        return converted[path]
    items = value.get("items") if isinstance(value, Mapping) else None
    if not converted or not isinstance(value, Mapping) or not isinstance(items, list):
        return value
    inner = f"{path}.items" if path else "items"
    return {
        **value,
        "items": [
            _replaced(item, f"{inner}[{index}]", converted) for index, item in enumerate(items)
        ],
    }


# -- YAML ----------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes scalars so that every reader takes them for what they are, and nothing twice by name.

    What a plain scalar means depends on the reader: a string is quoted where any of them could
    take it for something else, and whatever is no string is plain text.
    """

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Write equal parts out again."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar(_STRING, text, style=_style(text))


def _represent_plain(dumper: yaml.SafeDumper, value: object) -> yaml.Node:
    words: Mapping[object, str] = {None: "null", True: "true", False: "false"}
    is_word = value is None or isinstance(value, bool)
    return dumper.represent_scalar(_STRING, words[value] if is_word else str(value))


def _prepare(dumper: Any) -> None:  # PyYAML does not type the tables of a class
    dumper.yaml_implicit_resolvers = {}
    dumper.add_representer(str, _represent_text)
    for kind in (NumberText, int, bool, type(None)):
        dumper.add_representer(kind, _represent_plain)


_prepare(_Dumper)


def _style(text: str) -> str | None:
    if "\n" in text:
        return '"' if text[0].isspace() else "|"
    return "'" if _is_ambiguous(text) else None


def _is_ambiguous(text: str) -> bool:
    """Return whether a plain scalar could be read as anything but this string."""
    try:
        meant = plain_value(text)
    except ValueError:
        return True
    tag: object = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return type(meant) is not str or tag != _STRING


def _yaml_of(value: object) -> str:
    written: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDE
    )
    return written
