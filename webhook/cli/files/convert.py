"""`deferred-quota convert`: quotas of 2017, and of other projects, as quotas of today."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from webhook.cli.exit_codes import InputError, printable, shortened
from webhook.cli.files.foreign_quotas import convert_foreign_quota
from webhook.cli.files.inputs import manifest_files, read_input
from webhook.cli.printing.output import print_json
from webhook.jsonfields.encoding import InvalidJsonError, encode_json
from webhook.jsonfields.fields import InvalidFieldError, InvalidFieldsError
from webhook.kube.files.documents import Document, SnapshotError, flatten_lists, read_documents
from webhook.kube.files.json_places import json_spans
from webhook.kube.files.rewriting import Rewrite, is_same, rewritten
from webhook.kube.files.yaml_writer import yaml_lines
from webhook.quota.objects.legacy_priority_lists import convert_class_list, is_resource_quota

_BOM: Final = "\ufeff"
_BEFORE_CONTENT: Final = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\n|\r))*")


@dataclass(frozen=True, slots=True)
class _Converted:
    """A document, and what is to be said of it."""

    value: object
    warnings: tuple[str, ...]
    has_list: bool
    """Whether a quota in it has a list of priority classes."""
    notes: tuple[str, ...] = ()
    """What of quotas of other projects is left out."""
    rewrite: Rewrite | None = None
    """What it becomes; None where it stays as it is."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file and what its documents become."""

    text: str
    documents: tuple[_Converted, ...]
    """Empty ones too."""

    def converted(self) -> str:
        """Return the text with the documents that change."""
        numbered = enumerate((each.rewrite for each in self.documents), 1)
        rewrites = {number: rewrite for number, rewrite in numbered if rewrite is not None}
        text = self.text.removeprefix(_BOM)
        return self.text[: len(self.text) - len(text)] + rewritten(text, rewrites)


def run(filenames: tuple[str, ...], recursive: bool, output: str) -> None:
    """Convert quotas of 2017 and of other projects."""
    files, problems = _convert_all(filenames, recursive=recursive)
    documents = [each for file in files for each in file.documents if each.value is not None]
    # without any list these are quotas of today, all of which mean what they say
    is_proposed = any(each.has_list for each in documents)
    warnings = [text for each in documents for text in each.notes]
    warnings += [text for each in documents if is_proposed for text in each.warnings]
    for warning in shortened(warnings, "like these"):
        click.echo(f"{click.style('warning:', fg='yellow')} {printable(warning)}", err=True)
    if problems:  # and nothing is printed of what could be converted
        raise InputError(problems)
    try:
        if output == "json":
            _print_as_json([each.value for each in documents])
        else:
            text = _stream(files)
            click.echo(text.encode("utf-8"), nl=False)
    except InvalidJsonError as err:
        raise InputError(f"cannot be written as JSON: {err}") from err


def _print_as_json(values: Sequence[object]) -> None:
    for value in values:
        encode_json(value)
    for value in values:
        print_json(value)


def _stream(files: Sequence[_File]) -> str:
    """Return the documents of some files as those of one; a single file stays as it is."""
    if len(files) == 1:
        return files[0].converted()
    parts: list[str] = []
    for file in files:
        part = _yaml_text(file)
        if parts:
            parts.append("" if parts[-1].endswith(("\n", "\r")) else "\n")
            parts.append(_marker(part))
        parts += [part] if part else []
    return "".join(parts)


def _yaml_text(file: _File) -> str:
    """Return a file as YAML that others may follow; anew where its own text means something else.

    That is JSON with escapes that YAML does not know, or a block of text without a line end, which
    is part of the block.
    """
    text = file.converted().removeprefix(_BOM)
    spans = json_spans(text)
    if not spans and (not text or text.endswith(("\n", "\r"))):
        return text
    if spans:
        text = "\n---\n".join(text[start:end] for start, end in spans)
    values = [each.value for each in file.documents if each.value is not None]
    # behind a marker even JSON is read as YAML
    if _means(f"---\n{text}\n" if spans else f"{text}\n", values):
        return text
    encode_json(values)
    return "\n---\n".join("\n".join(yaml_lines(value)) for value in values)


def _means(text: str, values: list[object]) -> bool:
    try:
        documents = read_documents("", text.encode("utf-8"))
    except SnapshotError:
        return False
    return is_same([each.value for each in documents if each.value is not None], values)


def _marker(text: str) -> str:
    """Return what ends the document before a text."""
    if re.match(r"---(\s|$)", text):
        return ""
    found = _BEFORE_CONTENT.match(text)
    begins_itself = re.compile(r"---(\s|$)|%").match(text, found.end() if found else 0)
    return "...\n" if begins_itself else "---\n"


def _convert_all(
    filenames: Sequence[str], *, recursive: bool
) -> tuple[Sequence[_File], Sequence[str]]:
    """Convert all documents; return also what cannot be read or converted.

    Raises:
        InputError: There are no files, or not those.
    """
    files: list[_File] = []
    problems: list[str] = []
    for name in manifest_files(filenames, recursive=recursive):
        try:
            data = read_input(name)
            documents = read_documents(name, data)
        except (InputError, SnapshotError) as err:
            problems.append(str(err))
            continue
        converted = tuple(_convert(each, problems) for each in documents)
        files.append(_File(data.decode("utf-8"), converted))
    return files, problems


def _convert(document: Document, problems: list[str]) -> _Converted:
    """Convert the quotas of one document, also those in lists; note what is wrong."""
    converted: dict[str, object] = {}
    moved: dict[str, str] = {}
    warnings: list[str] = []
    notes: list[str] = []
    has_list = False
    unread: list[SnapshotError] = []
    try:
        for path, raw in flatten_lists(document, unread):
            try:
                if not is_resource_quota(raw):
                    foreign = convert_foreign_quota(raw, field=path)
                    if foreign is not None:
                        converted[path] = foreign.quota
                        moved |= foreign.moved
                        notes += [str(document.error(text, field=at)) for at, text in foreign.notes]
                    continue
                conversion = convert_class_list(raw, field=path)
            except InvalidFieldError as err:
                every = err.errors if isinstance(err, InvalidFieldsError) else (err,)
                problems += [str(document.error(one.detail, field=one.field)) for one in every]
                continue
            warnings += [
                str(document.error(text, field=field)) for field, text in conversion.warnings
            ]
            has_list = has_list or conversion.has_list
            if conversion.quota is not raw:
                converted[path] = conversion.quota
                moved |= conversion.moved
    except SnapshotError as err:
        unread.append(err)
    problems += map(str, unread)
    value = _replaced(document.value, "", converted)
    rewrite = Rewrite(value, moved) if converted else None
    return _Converted(value, tuple(warnings), has_list, tuple(notes), rewrite)


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
