"""Selectors as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.api import CONFIG_MAPS, PODS, BadRequestError
from webhook.kube.selectors import Selector, Term, parse_labels, parse_selector

KEYS = st.sampled_from(["app", "tier", "example.com/a-b", "x", "in", "notin"])
VALUES = st.sampled_from(["", "web", "a.b-c_d", "1"])
LABELS = st.dictionaries(KEYS, VALUES)

TERMS = {
    "a=b": Term("a", frozenset({"b"})),
    "a == b": Term("a", frozenset({"b"})),
    "a!=b": Term("a", frozenset({"b"}), negated=True),
    "a=": Term("a", frozenset({""})),
    "a in (b,c)": Term("a", frozenset({"b", "c"})),
    "a in(b)": Term("a", frozenset({"b"})),
    "a notin ( b )": Term("a", frozenset({"b"}), negated=True),
    "a": Term("a", None),
    "! a": Term("a", None, negated=True),
    "in": Term("in", None),
    "example.com/a_b.c=1": Term("example.com/a_b.c", frozenset({"1"})),
}


@pytest.mark.parametrize(("text", "term"), TERMS.items())
def test_a_requirement_is_read(text: str, term: Term) -> None:
    assert parse_labels(text) == (term,)


@pytest.mark.parametrize(
    "text", [",", "a=b,", "a b", "a=b c", "a in b", "a in (b", "=b", "a!b", "a=b=c", "a in (b d)"]
)
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match="unable to parse requirement"):
        parse_labels(text)


@given(text=st.text(alphabet="ab=!,() in\\n\t.é", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for labels, fields in ((text, ""), ("", text)):
        try:
            selector = parse_selector(PODS, labels, fields)
        except BadRequestError:
            continue
        assert isinstance(selector, Selector)


@given(labels=LABELS, key=KEYS, value=VALUES)
def test_a_requirement_and_its_opposite_never_agree(
    labels: dict[str, str], key: str, value: str
) -> None:
    for text, opposite in (
        (f"{key}={value}", f"{key}!={value}"),
        (f"{key} in ({value})", f"{key} notin ({value})"),
        (key, f"!{key}"),
    ):
        assert _selects(text, labels) is not _selects(opposite, labels)
        assert not _selects(f"{text},{opposite}", labels)


@given(labels=LABELS, key=KEYS, value=VALUES)
def test_equality_is_membership_of_one(labels: dict[str, str], key: str, value: str) -> None:
    assert _selects(f"{key}={value}", labels) is (labels.get(key) == value)
    assert _selects(f"{key} in ({value})", labels) is _selects(f"{key}={value}", labels)


def _selects(text: str, labels: dict[str, str]) -> bool:
    return Selector(parse_labels(text)).matches(labels, lambda field: field)


def test_a_field_value_may_be_escaped() -> None:
    selector = parse_selector(PODS, "", r"metadata.name=a\,b\=c\\d,spec.nodeName=n1")
    values = {"metadata.name": r"a,b=c\d", "spec.nodeName": "n1"}
    assert selector.matches({}, values.__getitem__)


def test_only_pods_serve_the_fields_of_pods() -> None:
    assert not parse_selector(PODS, "", "spec.nodeName=").is_empty
    with pytest.raises(BadRequestError, match=r"field label not supported: spec\.nodeName"):
        parse_selector(CONFIG_MAPS, "", "spec.nodeName=")
