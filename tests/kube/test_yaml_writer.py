"""Plain values as YAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.jsonfields.encoding import NumberText
from webhook.kube.files.documents import read_documents
from webhook.kube.files.yaml_writer import yaml_lines

_TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        *("yes", "No", "on", "null", "~", "", " ", "=", "<<", "1e3", "0x1F", "0o7", "1_000"),
        *("1:30", "2017-09-01", ".5", "-", "- a", "? a", ": a", "a: b", "a #b", "#a", "&a", "*a"),
        *("!a", "%a", "@a", "`a", "|", ">", "{}", "[]", "'", '"', "a\nb", "a\n\n", "\n", " a\nb"),
        *("a\r\nb", "\ta", "a\t", "...", "---", "--- a", ".inf", ".nan", "0b1", "+1", "a\u2028b"),
    ]
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([NumberText("1.50"), NumberText("1E30"), NumberText("-0.5e-7")])
    | _TEXTS.filter(lambda text: text.isprintable() or text.isascii()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_TEXTS.filter(lambda text: text.isprintable()), inner, max_size=3)
    ),
    max_leaves=8,
)


def typed(value: object) -> object:
    """A form of a value that tells a number from its text, and true from 1."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value).__name__, value


@given(value=_VALUES)
def test_any_value_is_written_as_it_was_read(value: object) -> None:
    text = "\n".join(yaml_lines({"value": value}))
    (document,) = read_documents("written", text.encode("utf-8", "surrogatepass"))
    assert typed(document.value) == typed({"value": value})


@pytest.mark.parametrize("text", ["yes", "0o17", "12:30", "2017-09-01", "", "a\nb\n", "=", "1e3"])
def test_strings_stay_strings_for_a_reader_of_another_dialect(text: str) -> None:
    assert yaml.safe_load("\n".join(yaml_lines({"text": text}))) == {"text": text}
