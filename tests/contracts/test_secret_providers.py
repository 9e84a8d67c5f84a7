"""What every secret provider promises: environment, files, AWS (moto's server, by HTTP) and Vault (by HTTP).

The Vault here is a stand-in: a small server that speaks the key-value API, versions 1 and 2, as Vault documents it.
Google Cloud and Azure have no server that can be run here; only what happens without their clients is tested.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from moto.server import ThreadedMotoServer

from noetl.errors import ConfigError, Denied, InputError, NotFound, Unavailable, Unsupported
from noetl.services.credentials.providers.aws import AwsSecrets
from noetl.services.credentials.providers.azure import AzureSecrets, vault_url
from noetl.services.credentials.providers.gcp import GcpSecrets, resource_name
from noetl.services.credentials.providers.local import EnvironmentSecrets, FileSecrets
from noetl.services.credentials.providers.port import FetchOptions, SecretProvider
from noetl.services.credentials.providers.registry import Providers
from noetl.services.credentials.providers.vault import VaultSecrets

CANARY = "canary-6f1b"
NOBODY = "http://127.0.0.1:1"


class Given:
    """A provider with a way to put secrets into it."""

    def __init__(self, provider: SecretProvider, put: Any, options: FetchOptions | None = None) -> None:
        self.provider = provider
        self.put = put
        self.options = options or FetchOptions()


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    """An AWS of the tests' own."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def aws_identity(url: str) -> dict[str, str]:
    return {"access_key_id": "a", "secret_access_key": CANARY, "region": "eu-west-1", "secretsmanager_endpoint": url}


class Vault:
    """A stand-in for Vault's key-value engines: `secret` is of version 2, `old` of version 1."""

    def __init__(self) -> None:
        self.secrets: dict[str, list[dict[str, Any]]] = {}
        self.status = 200
        self.url = ""

    def put(self, name: str, value: str) -> None:
        """Add a version of a secret; Vault keeps fields alone, so text goes into `value`."""
        fields = json.loads(value) if value.startswith("{") else {"value": value}
        self.secrets.setdefault(name, []).append(fields)

    async def read(self, request: web.Request) -> web.Response:
        """Answer as Vault does."""
        if request.headers.get("X-Vault-Token") != CANARY:
            return web.json_response({"errors": ["permission denied"]}, status=403)
        if self.status != 200:
            return web.json_response({"errors": [f"seen {CANARY}"]}, status=self.status)
        versions = self.secrets.get(request.match_info["name"], [])
        wanted = int(request.query.get("version", 0)) or len(versions)
        if not 0 < wanted <= len(versions):
            return web.json_response({"errors": []}, status=404)
        fields = versions[wanted - 1]
        if request.path.startswith("/v1/old/"):
            return web.json_response({"data": fields})
        return web.json_response({"data": {"data": fields, "metadata": {"version": wanted}}})


@pytest.fixture
async def vault() -> AsyncIterator[Vault]:
    """A Vault that answers on loopback."""
    stand_in = Vault()
    application = web.Application()
    application.router.add_get("/v1/secret/data/{name:.*}", stand_in.read)
    application.router.add_get("/v1/old/{name:.*}", stand_in.read)
    async with TestServer(application) as running:
        stand_in.url = str(running.make_url("")).rstrip("/")
        yield stand_in


@pytest.fixture(params=["environment", "file", "aws", "vault"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Given:
    """Each provider in turn."""
    if request.param == "environment":
        environ: dict[str, str] = {}
        return Given(EnvironmentSecrets(environ, ["*"]), environ.__setitem__)
    if request.param == "file":
        return Given(FileSecrets(tmp_path), lambda name, value: (tmp_path / name).write_text(value))
    if request.param == "vault":
        vault: Vault = request.getfixturevalue("vault")
        return Given(VaultSecrets({"VAULT_ADDR": vault.url, "VAULT_TOKEN": CANARY}), vault.put)
    url = request.getfixturevalue("moto_url")
    client = boto3.client(
        "secretsmanager", "eu-west-1", endpoint_url=url, aws_access_key_id="a", aws_secret_access_key="b"
    )

    def put(name: str, value: str) -> None:
        client.create_secret(Name=name, SecretString=value)
        request.addfinalizer(lambda: client.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True))

    return Given(AwsSecrets(), put, FetchOptions(identity=aws_identity(url)))


async def test_the_fields_of_a_json_object_are_the_secrets_fields(given: Given) -> None:
    await asyncio.to_thread(given.put, "db", json.dumps({"user": "ann", "password": CANARY, "port": 5432}))
    found = await given.provider.fetch("db", given.options)
    assert found == {"user": "ann", "password": CANARY, "port": "5432"}


@pytest.mark.parametrize("text", [CANARY, "ünï\ncode", "123"])
async def test_plain_text_is_one_field(given: Given, text: str) -> None:
    await asyncio.to_thread(given.put, "api", text)
    assert await given.provider.fetch("api", given.options) == {"value": text}


async def test_a_secret_that_is_not_there_is_named(given: Given) -> None:
    await asyncio.to_thread(given.put, "db", CANARY)
    with pytest.raises(NotFound, match="'nothing'") as refused:
        await given.provider.fetch("nothing", given.options)
    assert CANARY not in f"{refused.value!r} {refused.value.__cause__!r}"


async def test_many_fetches_go_on_at_the_same_time(given: Given) -> None:
    await asyncio.to_thread(given.put, "db", CANARY)
    found = await asyncio.gather(*(given.provider.fetch("db", given.options) for _ in range(5)))
    assert found == [{"value": CANARY}] * 5


class TestEnvironment:
    @pytest.mark.parametrize("name", ["HOME", "NOETL_SECRET_KEY", "XSECRET_A"])
    async def test_only_what_the_operator_allows_is_read(self, name: str) -> None:
        with pytest.raises(Denied):
            await EnvironmentSecrets({name: CANARY}).fetch(name, FetchOptions())

    async def test_the_master_key_is_not_read_even_if_everything_is_allowed(self) -> None:
        with pytest.raises(Denied):
            await EnvironmentSecrets({"NOETL_SECRET_KEY": CANARY}, ["*"]).fetch("NOETL_SECRET_KEY", FetchOptions())


class TestFiles:
    async def test_a_mounted_secret_has_a_field_for_each_file(self, tmp_path: Path) -> None:
        """As Kubernetes mounts one: links to a directory that is exchanged as a whole."""
        mount = tmp_path / "mounts" / "db"
        data = mount / "..2026_01_01"
        data.mkdir(parents=True)
        (data / "password").write_text(CANARY + "\n")
        (mount / "..data").symlink_to("..2026_01_01")
        (mount / "password").symlink_to("..data/password")
        assert await FileSecrets(tmp_path / "mounts").fetch("db", FetchOptions()) == {"password": CANARY}

    @pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "link", "db/../../outside", ".", "dir"])
    async def test_nothing_outside_of_the_directory_is_read(self, tmp_path: Path, name: str) -> None:
        root = tmp_path / "root"
        (root / "dir").mkdir(parents=True)
        (tmp_path / "outside").write_text(CANARY)
        (root / "link").symlink_to("../outside")
        (root / "dir" / "key").symlink_to("../../outside")
        with pytest.raises(Denied):
            await FileSecrets(root).fetch(name, FetchOptions())

    @pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * (1 << 20) + b"y"], ids=["binary", "large"])
    async def test_what_is_no_secret_text_is_refused(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError):
            await FileSecrets(tmp_path).fetch("a", FetchOptions())


class TestVault:
    def provider(self, vault: Vault, token: str = CANARY) -> VaultSecrets:
        return VaultSecrets({"VAULT_ADDR": vault.url, "VAULT_TOKEN": token})

    async def test_an_older_version_can_be_read(self, vault: Vault) -> None:
        vault.put("a", "first")
        vault.put("a", "second")
        assert await self.provider(vault).fetch("a", FetchOptions(version="1")) == {"value": "first"}

    async def test_the_old_engine_is_read_too(self, vault: Vault) -> None:
        vault.put("team/a", CANARY)
        options = FetchOptions(more={"mount": "old", "kv_version": 1})
        assert await self.provider(vault).fetch("team/a", options) == {"value": CANARY}

    async def test_a_wrong_token_is_denied(self, vault: Vault) -> None:
        with pytest.raises(Denied, match="'a'"):
            await self.provider(vault, "wrong").fetch("a", FetchOptions())

    @pytest.mark.parametrize(("status", "error"), [(500, Unavailable), (503, Unavailable), (400, InputError)])
    async def test_what_the_server_says_is_not_repeated(
        self, vault: Vault, status: int, error: type[Exception]
    ) -> None:
        vault.status = status
        with pytest.raises(error) as refused:
            await self.provider(vault).fetch("a", FetchOptions())
        assert CANARY not in f"{refused.value!r} {refused.value.__cause__!r}"

    async def test_a_server_that_is_away_is_unavailable(self) -> None:
        with pytest.raises(Unavailable):
            await VaultSecrets({"VAULT_ADDR": NOBODY, "VAULT_TOKEN": CANARY}).fetch("a", FetchOptions())

    async def test_the_processs_token_is_not_sent_to_a_credentials_server(self, vault: Vault) -> None:
        own = VaultSecrets({"VAULT_ADDR": NOBODY, "VAULT_TOKEN": CANARY})
        with pytest.raises(InputError, match="has no token"):
            await own.fetch("a", FetchOptions(identity={"url": vault.url}))
        vault.put("a", "theirs")
        identity = {"url": vault.url, "token": CANARY}
        assert await own.fetch("a", FetchOptions(identity=identity)) == {"value": "theirs"}

    async def test_without_an_address_the_fix_is_named(self) -> None:
        with pytest.raises(ConfigError) as refused:
            await VaultSecrets({}).fetch("a", FetchOptions())
        assert "VAULT_ADDR" in str(refused.value.hint)


class TestAws:
    async def test_a_binary_secret_comes_in_base64_and_versions_by_stage(self, moto_url: str) -> None:
        def prepare() -> None:
            client = boto3.client(
                "secretsmanager", "eu-west-1", endpoint_url=moto_url, aws_access_key_id="a", aws_secret_access_key="b"
            )
            client.create_secret(Name="binary", SecretBinary=b"\xff\x00")
            client.create_secret(Name="staged", SecretString="first")
            client.put_secret_value(SecretId="staged", SecretString="second")

        await asyncio.to_thread(prepare)
        identity = aws_identity(moto_url)
        assert await AwsSecrets().fetch("binary", FetchOptions(identity=identity)) == {"value": "/wA="}
        previous = FetchOptions(identity=identity, version="AWSPREVIOUS")
        assert await AwsSecrets().fetch("staged", previous) == {"value": "first"}
        elsewhere = FetchOptions(identity=identity, region="us-east-1")
        with pytest.raises(NotFound):
            await AwsSecrets().fetch("staged", elsewhere)

    async def test_without_an_identity_it_is_denied(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        with pytest.raises(Denied, match="no AWS identity"):
            await AwsSecrets().fetch("a", FetchOptions(region="eu-west-1"))

    async def test_a_server_that_is_away_is_unavailable(self) -> None:
        with pytest.raises(Unavailable):
            await AwsSecrets().fetch("a", FetchOptions(identity=aws_identity(NOBODY)))

    async def test_an_incomplete_credential_says_what_it_lacks(self) -> None:
        with pytest.raises(InputError, match="has no secret_access_key"):
            await AwsSecrets().fetch("a", FetchOptions(identity={"access_key_id": "a"}))


CLIENTS = {
    "hvac": (VaultSecrets({"VAULT_ADDR": NOBODY, "VAULT_TOKEN": "t"}), "vault"),
    "boto3": (AwsSecrets(), "aws"),
    "google.cloud.secretmanager": (GcpSecrets(), "gcp"),
    "azure.keyvault.secrets": (AzureSecrets(), "azure"),
}


@pytest.mark.parametrize(
    ("module", "provider", "extra"), [(name, *rest) for name, rest in CLIENTS.items()], ids=CLIENTS
)
async def test_a_client_that_is_not_installed_is_named_with_the_fix(
    module: str, provider: SecretProvider, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (module.partition(".")[0], module):
        monkeypatch.setitem(sys.modules, part, None)
    with pytest.raises(Unsupported) as refused:
        await provider.fetch("a", FetchOptions(more={"vault": "v"}, identity={"project_id": "p"}))
    assert refused.value.hint == f"pip install 'noetl[{extra}]'"


def test_names_of_google_secrets_are_completed() -> None:
    assert resource_name("projects/p/secrets/s/versions/3", FetchOptions()) == "projects/p/secrets/s/versions/3"
    assert resource_name("projects/p/secrets/s", FetchOptions(version="2")) == "projects/p/secrets/s/versions/2"
    found = resource_name("s", FetchOptions(more={"project": "p"}, region="eu"))
    assert found == "projects/p/locations/eu/secrets/s/versions/latest"
    with pytest.raises(ConfigError):
        resource_name("s", FetchOptions())


def test_names_of_azure_vaults_are_completed_and_need_tls() -> None:
    assert vault_url("s", FetchOptions(more={"vault": "mine"})) == "https://mine.vault.azure.net"
    for more in ({}, {"vault": "http://mine.example"}):
        with pytest.raises(ConfigError):
            vault_url("s", FetchOptions(more=more))


async def test_a_provider_that_is_not_there_is_told_with_those_there_are() -> None:
    with pytest.raises(InputError, match="'none' is no provider"):
        await Providers({}).fetch("none", "a", FetchOptions())
