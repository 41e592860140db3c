"""Random values of the core for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList

DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
BINARY_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
RESOURCE_NAMES = (
    "cpu",
    "memory",
    "pods",
    "requests.cpu",
    "limits.memory",
    "hugepages-2Mi",
    "requests.nvidia.com/gpu",
)


def quantity_texts() -> st.SearchStrategy[str]:
    """Texts that are quantities, in every format and with every freedom of spelling."""
    digits = st.text("0123456789", max_size=24)
    number = st.one_of(
        st.text("0123456789", min_size=1, max_size=24),
        st.builds("{}.{}".format, digits, digits).filter(lambda text: text != "."),
    )
    exponents = st.builds(
        "{}{}{}".format,
        st.sampled_from("eE"),
        st.sampled_from(["", "+", "-"]),
        st.integers(0, 40),
    )
    suffixes = st.one_of(st.sampled_from(DECIMAL_SUFFIXES + BINARY_SUFFIXES), exponents)
    return st.builds("{}{}{}".format, st.sampled_from(["", "+", "-"]), number, suffixes)


def near_quantity_texts() -> st.SearchStrategy[str]:
    """Texts of the letters that quantities are made of; most are none."""
    return st.text("0123456789.+-eEinumkKMGTP _", max_size=12)


def quantities() -> st.SearchStrategy[Quantity]:
    """Quantities of either sign; some remember their text."""
    return quantity_texts().map(Quantity.parse)


def resource_lists() -> st.SearchStrategy[ResourceList]:
    """Resource lists over a few names, so that two of them often share some."""
    return st.dictionaries(st.sampled_from(RESOURCE_NAMES), quantities(), max_size=4)
