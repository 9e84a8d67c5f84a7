"""Addresses that channels may reach, and those they may not."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from noetl.alerts.channels.addresses import problem_of, reachable
from noetl.alerts.channels.port import SendFailed

PRIVATE = (
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "::1", "fd00::1",
    "::ffff:10.0.0.1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "198.18.0.1", "192.0.2.1",
)  # fmt: skip
NEVER = (
    "169.254.169.254", "169.254.0.1", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::",
)  # fmt: skip
PUBLIC = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14")


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_for_channels_that_ask_for_them(address: str) -> None:
    """INV-80."""
    assert problem_of(ip_address(address), allow_private=False) is not None
    assert problem_of(ip_address(address), allow_private=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_for_no_channel(address: str) -> None:
    """INV-80."""
    assert problem_of(ip_address(address), allow_private=True) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_for_all(address: str) -> None:
    assert problem_of(ip_address(address), allow_private=False) is None


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]".strip("[]")])
async def test_a_host_is_judged_by_what_it_stands_for_however_it_is_written(host: str) -> None:
    """INV-80."""
    with pytest.raises(SendFailed, match="on this machine or in a private network") as problem:
        await reachable(host, 80, allow_private=False)
    assert problem.value.permanent
    assert all(one.is_loopback for one in await reachable(host, 80, allow_private=True))


async def test_a_host_that_cannot_be_found_is_tried_again_later() -> None:
    with pytest.raises(SendFailed, match=r"the host nowhere\.invalid cannot be found") as problem:
        await reachable("nowhere.invalid", 80, allow_private=True)
    assert not problem.value.permanent
