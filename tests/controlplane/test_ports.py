"""Ports are free, different, and not the kernel's to give away."""

from __future__ import annotations

import contextlib
import random
import socket

import pytest

from tests.controlplane.ports import first_ephemeral, free_ports, is_free, of_run


def test_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    with contextlib.ExitStack() as listening:
        for port in ports:
            listening.enter_context(socket.create_server(("127.0.0.1", port)))


def test_no_port_is_given_twice_although_its_program_is_not_yet_started() -> None:
    first = free_ports(20, chance=random.Random(1))  # noqa: S311
    assert not set(first) & set(free_ports(20, chance=random.Random(1)))  # noqa: S311


def test_a_port_on_which_something_listens_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


RANGES = {
    "below the kernel's range": ("32768\t60999\n", 32768),
    "a range that was moved": ("15000\t60999\n", 15000),
    "a range without room below": ("1024\t65535\n", 32768),
    "no range known": ("", 32768),
}


@pytest.mark.parametrize(("text", "first"), RANGES.values(), ids=RANGES.keys())
def test_ports_lie_below_those_of_outgoing_connections(text: str, first: int) -> None:
    assert first_ephemeral(text) == first


def test_runs_side_by_side_have_ports_of_their_own() -> None:
    ports = range(10_000, 32_768)
    shares = [set(of_run(ports, f"gw{number}")) for number in range(8)]
    assert sum(map(len, shares)) == len(ports)
    assert set().union(*shares) == set(ports)
    assert of_run(ports, "") == ports
