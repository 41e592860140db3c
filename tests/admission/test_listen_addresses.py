"""Addresses to listen on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.serving.sockets import ListenAddress

ADDRESSES: dict[str, tuple[str, ListenAddress]] = {
    "IPv4": ("127.0.0.1:9443", ListenAddress("127.0.0.1", 9443)),
    "IPv6": ("[::1]:0", ListenAddress("::1", 0)),
    "IPv6 with a zone": ("[fe80::1%eth0]:1", ListenAddress("fe80::1%eth0", 1)),
    "a name": ("localhost:80", ListenAddress("localhost", 80)),
    "every address": (":9443", ListenAddress("", 9443)),
    "the last port": (":65535", ListenAddress("", 65535)),
}


@pytest.mark.parametrize(("text", "address"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_addresses_are_read_and_written_alike(text: str, address: ListenAddress) -> None:
    assert ListenAddress.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9443", "localhost", "::1:9443", ":65536", ":-1", ":x", "[::1]", "a:1:2", ":1 "]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        ListenAddress.parse(text)


@given(text=st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        port = ListenAddress.parse(text).port
    except ValueError:
        port = 0
    assert 0 <= port <= 65535
