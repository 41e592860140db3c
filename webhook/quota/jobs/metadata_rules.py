"""Rules of the API server for labels and annotations: of a Job, and of its template.

Source: kubernetes v1.36, apimachinery/pkg/apis/meta/v1/validation/validation.go ValidateLabels;
apimachinery/pkg/api/validation/objectmeta.go ValidateAnnotations;
pkg/apis/batch/validation/validation.go validateGeneratedSelector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.jsonfields.fields import FieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.go_format import json_text, quoted
from webhook.quota.objects.label_selectors import read_selector_at
from webhook.quota.objects.names import label_value_errors, qualified_name_errors

_MOST_ANNOTATION_BYTES: Final = 256 * 1024
_MOST_CHARACTERS: Final = 8192
_PREFIX: Final = "batch.kubernetes.io/"


def metadata_errors(metadata: FieldReader, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with labels and annotations, at the path that the API server names.

    Raises:
        InvalidFieldError: They are not objects of strings.
    """
    yield from label_errors(metadata.string_map("labels"), f"{field}.labels")
    annotations = metadata.string_map("annotations")
    for name in sorted(annotations):
        for error in qualified_name_errors(name.lower()):
            yield invalid(f"{field}.annotations", error, name)
    size = sum(_bytes(name) + _bytes(value) for name, value in annotations.items())
    if size > _MOST_ANNOTATION_BYTES:
        detail = f"may not be more than {_MOST_ANNOTATION_BYTES} bytes"
        yield FieldError("FieldValueTooLong", f"{field}.annotations", detail)


def label_errors(labels: Mapping[str, str], field: str) -> Iterator[FieldError]:
    """Yield what is wrong with labels, or with a node selector."""
    for name, value in sorted(labels.items()):
        yield from label_key_errors(name, field)
        yield from label_value_faults(value, field)


def label_key_errors(name: str, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with the key of a label."""
    for error in qualified_name_errors(name):
        yield invalid(field, error, name)


def label_value_faults(value: str, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with the value of a label."""
    for error in label_value_errors(value):
        yield invalid(field, error, value)


def generated_errors(job: FieldReader, uid: str, *, prefixed: bool) -> Iterator[FieldError]:
    """Yield where a Job's selector and the labels of its template are not as they were generated.

    Args:
        job: The Job.
        uid: Its uid, which an update need not give.
        prefixed: Whether the labels with a prefix have to be there, which old Jobs do not have.
    """
    spec, metadata = job.child("spec"), job.child("metadata")
    selector = read_selector_at(spec, "selector")
    if spec.boolean("manualSelector") or selector is None:
        return
    name = metadata.text("name")
    expected = {
        f"{prefix}{label}": value
        for prefix in ("", _PREFIX)[: 1 + prefixed]
        for label, value in (("controller-uid", uid), ("job-name", name))
    }
    labels = spec.child("template").child("metadata").string_map("labels")
    for label, value in expected.items():
        field, detail = f"spec.template.metadata.labels[{label}]", f"must be '{value}'"
        if label not in labels:
            yield FieldError("FieldValueRequired", field, detail)
        elif labels[label] != value:
            yield FieldError("FieldValueInvalid", field, detail, json_text(labels))
    if selector.is_valid and not selector.matches(expected):
        yield FieldError("FieldValueInvalid", "spec.selector", "`selector` not auto-generated")


def has_prefixed_labels(template: FieldReader) -> bool:
    """Return whether a stored template has the generated labels with a prefix."""
    labels = template.child("metadata").string_map("labels")
    return labels.keys() >= {f"{_PREFIX}controller-uid", f"{_PREFIX}job-name"}


def invalid(field: str, detail: str, value: str) -> FieldError:
    """Return the error of a text that is not valid."""
    return FieldError("FieldValueInvalid", field, detail, quoted(value[:_MOST_CHARACTERS]))


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
