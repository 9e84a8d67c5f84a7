"""Addresses that requests on a user's behalf may reach, and those they may not."""

from __future__ import annotations

import re
from ipaddress import ip_address

import pytest

from noetl.kernel.outgoing.guard import ANYWHERE, AddressRefused, HostNotFound, Reach
from noetl.services.credentials.providers.aws import _HOSTS as AWS_HOSTS
from noetl.services.credentials.providers.azure import vault_url
from noetl.services.credentials.providers.gcp import _client
from noetl.services.credentials.providers.port import FetchOptions

SHUT, PRIVATELY = Reach(), Reach(private=True)
PRIVATE = (
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "::1", "fd00::1",
    "::ffff:10.0.0.1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "198.18.0.1", "192.0.2.1",
    "fec0::1", "::ffff:0:10.0.0.1",
)  # fmt: skip
NEVER = (
    "169.254.169.254", "169.254.0.1", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "::ffff:0:169.254.169.254",
)  # fmt: skip
PUBLIC = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14")


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_for_channels_that_ask_for_them(address: str) -> None:
    """INV-80."""
    assert SHUT.problem_of(ip_address(address)) is not None
    assert PRIVATELY.problem_of(ip_address(address)) is None


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_for_no_channel(address: str) -> None:
    """INV-80."""
    assert PRIVATELY.problem_of(ip_address(address)) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_for_all(address: str) -> None:
    assert SHUT.problem_of(ip_address(address)) is None


HOSTS = ("localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "::1", "::ffff:127.0.0.1", "::7f00:1")


@pytest.mark.parametrize("host", HOSTS)
async def test_a_host_is_judged_by_what_it_stands_for_however_it_is_written(host: str) -> None:
    """INV-80, INV-192."""
    with pytest.raises(AddressRefused, match="on this machine or in a private network") as problem:
        await SHUT.resolved(host, 80)
    assert problem.value.hint is not None
    assert "outgoing.allowed" in problem.value.hint
    assert await PRIVATELY.resolved(host, 80)
    assert SHUT.problem_of(ip_address("169.254.169.254")) is not None


async def test_a_host_that_cannot_be_found_is_tried_again_later() -> None:
    with pytest.raises(HostNotFound, match=r"the host nowhere\.invalid cannot be found") as problem:
        await PRIVATELY.resolved("nowhere.invalid", 80)
    assert problem.value.disposition == "transient"


def test_what_an_administrator_allows_may_be_reached_and_nothing_beside_it() -> None:
    """INV-192."""
    reach = Reach(allowed=("vault.internal", "*.trusted.internal", "10.1.0.0/16", "fd00:1::/32"))
    assert reach.addresses("vault.internal", 8200, ["10.9.9.9"])
    assert reach.addresses("a.trusted.internal", 443, ["192.168.0.1"])
    assert reach.addresses("anything", 443, ["10.1.2.3"])
    assert reach.addresses("anything", 443, ["fd00:1::5"])
    for host, address in (("trusted.internal.evil", "10.9.9.9"), ("xvault.internal", "10.9.9.9"), ("x", "10.2.0.1")):
        with pytest.raises(AddressRefused):
            reach.addresses(host, 443, [address])


def test_one_forbidden_address_of_a_host_refuses_all_of_them() -> None:
    """INV-192: a client may take any of them."""
    with pytest.raises(AddressRefused):
        SHUT.addresses("mixed", 443, ["93.184.215.14", "127.0.0.1"])


def test_ports_of_other_protocols_are_not_spoken_to() -> None:
    """INV-192."""
    for port in (22, 25, 6379, 5432):
        with pytest.raises(AddressRefused, match="another protocol"):
            SHUT.addresses("public", port, ["93.184.215.14"])
    assert ANYWHERE.addresses("public", 25, ["127.0.0.1"])


HOSTS_OF_A_CLOUD = re.compile(r"(?:[a-z0-9-]+\.)+googleapis\.com")
NOT_OF_THE_CLOUD = (
    "http://169.254.169.254\\.googleapis.com/x", "https://169.254.169.254\\.googleapis.com/x",
    "https://169.254.169.254\\@oauth2.googleapis.com/", "https://oauth2.googleapis.com@169.254.169.254/",
    "https://169.254.169.254#.googleapis.com", "https://169.254.169.254/.googleapis.com",
    "https://169.254.169.254?.googleapis.com", "http://oauth2.googleapis.com/token", "https://googleapis.com.evil.test/",
    "https://evilgoogleapis.com/", "https://oauth2.googleapis.com\t.evil.test/", "https://[::1]/.googleapis.com",
    "https://oauth2.googleapis.com/\\..", "file:///oauth2.googleapis.com", "oauth2.googleapis.com", "",
    "https://oauth2.googleapis.com%2f.evil.test/", "https://oauth2\N{FULLWIDTH FULL STOP}googleapis.com/",
)  # fmt: skip


@pytest.mark.parametrize("url", NOT_OF_THE_CLOUD)
def test_a_client_that_looks_hosts_up_by_itself_is_held_to_the_hosts_of_its_cloud(url: str) -> None:
    """INV-192: only a URL that everybody reads alike is taken."""
    with pytest.raises(AddressRefused):
        SHUT.refuse_others(url, HOSTS_OF_A_CLOUD, "Google's hosts")


def test_the_hosts_of_a_cloud_and_what_an_administrator_names_are_let_through() -> None:
    """INV-192."""
    SHUT.refuse_others("https://oauth2.googleapis.com/token", HOSTS_OF_A_CLOUD, "Google's hosts")
    Reach(allowed=("vault.internal",)).refuse_others("http://vault.internal:8200/a?b=c", HOSTS_OF_A_CLOUD, "hosts")
    ANYWHERE.refuse_others("http://localhost\\x", HOSTS_OF_A_CLOUD, "hosts")


@pytest.mark.parametrize(
    ("endpoint", "is_one"),
    [
        ("https://secretsmanager.eu-central-1.amazonaws.com", True),
        ("https://secretsmanager-fips.us-east-1.amazonaws.com/", True),
        ("https://secretsmanager.cn-north-1.amazonaws.com.cn", True),
        ("http://secretsmanager.eu-central-1.amazonaws.com", False),
        ("https://ip-10-0-0-1.ec2.internal.amazonaws.com", False),
        ("https://ec2-1-2-3-4.compute-1.amazonaws.com", False),
        ("https://bucket.s3.amazonaws.com", False),
        ("https://169.254.169.254\\.secretsmanager.eu-central-1.amazonaws.com", False),
    ],
)
def test_secrets_of_aws_come_from_secrets_manager_alone(endpoint: str, is_one: bool) -> None:
    """INV-192: below Amazon's domain are machines of anybody."""
    if is_one:
        SHUT.refuse_others(endpoint, AWS_HOSTS, "AWS")
    else:
        with pytest.raises(AddressRefused):
            SHUT.refuse_others(endpoint, AWS_HOSTS, "AWS")


@pytest.mark.parametrize(
    "vault", ["https://1.2.3.4\\.vault.azure.net", "https://a.b.vault.azure.net", "https://vault.azure.net.evil.test"]
)
def test_a_vault_of_azure_is_one(vault: str) -> None:
    """INV-192."""
    with pytest.raises(AddressRefused):
        vault_url("a", FetchOptions(reach=SHUT, more={"vault": vault}))
    assert vault_url("a", FetchOptions(reach=SHUT, more={"vault": "https://mine.vault.azure.net"}))


def test_a_service_account_does_not_choose_where_its_token_comes_from() -> None:
    """INV-192: refused before anything is asked for."""
    pytest.importorskip("google.cloud.secretmanager")
    identity = {"token_uri": "http://169.254.169.254\\.googleapis.com/x"}
    with pytest.raises(AddressRefused):
        _client(FetchOptions(reach=SHUT, identity=identity))
