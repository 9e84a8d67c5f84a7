"""`noetl credentials` as a user runs it: secrets go in by every way and never come out."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from noetl.cli import main
from noetl.services.credentials.keyring import VARIABLE

pytestmark = pytest.mark.service

CANARY = "canary-6f1b"
KEY, NEW_KEY = (base64.b64encode(bytes(range(start, start + 32))).decode() for start in (0, 1))
POSTGRES = {"db_host": "h", "db_port": 5432, "db_user": "u", "db_password": CANARY, "db_name": "n"}
FILE = {"name": "pg_local", "type": "postgres", "data": POSTGRES, "description": "the shop", "tags": ["a", "b"]}

Command = Callable[..., tuple[int, str]]
"""Runs a subcommand and gives its exit code and all it printed."""


@pytest.fixture
def credentials(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`noetl credentials` in a folder of its own, with a master key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_DATABASE_URL", owner_url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setitem(
        main.COMMANDS, "credentials", ("noetl.cli.services.credentials:credentials", "Keep credentials.")
    )

    def command(*arguments: str, stdin: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code: object
        try:
            code = main.run(["credentials", *arguments])
        except SystemExit as leaving:
            code = leaving.code
        assert isinstance(code, int)
        return code, "".join(capsys.readouterr())

    return command


def printed(answer: tuple[int, str]) -> object:
    """Return what a successful command printed as JSON."""
    code, text = answer
    assert code == 0, text
    return json.loads(text)


def test_a_users_file_is_kept_listed_shown_and_removed(credentials: Command, tmp_path: Path) -> None:
    (tmp_path / "cred.json").write_text(json.dumps(FILE))
    outputs = [
        credentials("put", "--file", "cred.json"),
        credentials("list"),
        credentials("list", "--type", "postgres", "--json"),
        credentials("show", "pg_local"),
        credentials("show", "pg_local", "--json"),
        credentials("put", "--file", "cred.json", "--json"),
    ]
    assert [code for code, _ in outputs] == [0] * len(outputs)
    assert CANARY not in "".join(text for _, text in outputs)
    assert "the shop" in outputs[1][1]
    assert "data.db_password" in outputs[3][1]
    assert "***" in outputs[3][1]
    shown = json.loads(outputs[4][1])
    assert (shown["type"], shown["fields"], shown["tags"]) == ("postgres", sorted(POSTGRES), ["a", "b"])
    assert printed(credentials("remove", "pg_local", "--json")) == {"name": "pg_local", "removed": True}
    assert printed(credentials("list", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("put", "x", "--type", "bearer", "--data", json.dumps({"token": CANARY})), ""),
        (("put", "x", "--type", "bearer", "--data", "-"), json.dumps({"token": CANARY})),
        (("put", "x", "--type", "bearer", "--set", f"token={CANARY}"), ""),
        (("put", "x", "--file", "-"), json.dumps({"name": "y", "type": "bearer", "data": {"token": CANARY}})),
    ],
    ids=["data", "data from stdin", "set", "file from stdin"],
)
def test_data_are_given_in_four_ways(credentials: Command, arguments: tuple[str, ...], stdin: str) -> None:
    code, text = credentials(*arguments, stdin=stdin)
    assert (code, CANARY in text) == (0, False)
    [kept] = printed(credentials("list", "--json"))  # type: ignore[misc]
    assert (kept["name"], kept["fields"]) == ("x", ["token"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("put", "x", "--type", "bearer"), "one of --data, --file and --set"),
        (("put", "x", "--type", "bearer", "--data", f'{{"token": {CANARY}'), "--data is not JSON: line 1, column 11"),
        (("put", "x", "--type", "basic", "--set", f"password={CANARY}"), "username is missing"),
        (("put", "x", "--set", f"token={CANARY}"), "no type"),
        (("put", "--type", "bearer", "--set", f"token={CANARY}"), "no name"),
        (("put", "x", "--type", "bearer", "--set", CANARY), "FIELD=VALUE"),
        (("put", "x", "--file", "nowhere.json"), "nowhere.json cannot be read"),
    ],
)
def test_wrong_input_is_explained_without_being_repeated(
    credentials: Command, arguments: tuple[str, ...], said: str
) -> None:
    code, text = credentials(*arguments)
    assert code == 2
    assert said in text
    assert CANARY not in text


def test_what_is_not_there_is_exit_one(credentials: Command) -> None:
    for verb in ("show", "remove"):
        code, text = credentials(verb, "nothing")
        assert code == 1
        assert "there is no credential 'nothing'" in text


def test_without_a_master_key_nothing_is_kept_and_none_is_invented(
    credentials: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE)
    code, text = credentials("put", "x", "--type", "bearer", "--set", f"token={CANARY}")
    assert code == 2
    assert f"hint: set {VARIABLE}" in text
    assert not (tmp_path / ".noetl" / "keys" / "credentials").exists()


def test_rotation_with_the_variable_says_which_key_is_not_needed(
    credentials: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials("put", "x", "--type", "bearer", "--set", f"token={CANARY}")
    monkeypatch.setenv(VARIABLE, f"{NEW_KEY},{KEY}")
    code, text = credentials("rotate")
    assert code == 0
    assert "1 credentials and 0 keychain entries went over to key" in text
    assert "is not needed any more" in text
    monkeypatch.setenv(VARIABLE, NEW_KEY)
    assert printed(credentials("rotate", "--json"))["credentials"] == 0  # type: ignore[index]


def test_rotation_with_key_files_makes_a_key_and_reports_what_does_not_open(
    credentials: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    credentials("put", "stray", "--type", "bearer", "--set", f"token={CANARY}")
    monkeypatch.delenv(VARIABLE)
    directory = tmp_path / ".noetl" / "keys" / "credentials"
    directory.mkdir(parents=True)
    (directory / "000001.key").write_text(NEW_KEY)
    (directory / "000001.key").chmod(0o600)
    credentials("put", "mine", "--type", "bearer", "--set", f"token={CANARY}")
    code, text = credentials("rotate")
    assert code == 1
    assert "Not readable, so left as it is: default/default: stray" in text
    assert [path.name for path in directory.iterdir()] == ["000002.key"]


def test_a_token_is_printed_once_listed_without_it_and_revoked(
    credentials: Command, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    made = printed(credentials("token", "create", "--name", "ci", "--role", "writer", "--expires", "90", "--json"))
    assert isinstance(made, dict)
    code, text = credentials("token", "create", "--name", "laptop", "--role", "reader")
    assert code == 0
    assert "never expires" in text
    [plain] = [word for word in text.split() if word.startswith("noetl_")]
    code, listed = credentials("token", "list")
    assert code == 0
    assert made["token_id"] in listed
    as_json = credentials("token", "list", "--json")
    assert [one["state"] for one in printed(as_json)] == ["live", "live"]  # type: ignore[attr-defined]
    with psycopg.connect(owner_url.replace("noetl_owner@", "noetl_admin@")) as admin:
        kept = str(admin.execute("SELECT t::text FROM noetl.api_token AS t").fetchall())
    for token in (made["token"], plain):
        assert token.startswith("noetl_")
        assert token not in listed + as_json[1] + kept
    assert credentials("token", "revoke", made["token_id"]) == (0, f"Token {made['token_id']} (ci) is revoked.\n")
    states = {one["name"]: one["state"] for one in printed(credentials("token", "list", "--json"))}  # type: ignore[attr-defined]
    assert states == {"ci": "revoked", "laptop": "live"}


def test_a_token_of_an_unknown_role_or_id_is_refused(credentials: Command) -> None:
    assert credentials("token", "create", "--name", "ci", "--role", "root")[0] == 2
    assert credentials("token", "revoke", "no-uuid")[0] == 2
    assert credentials("token", "revoke", "1b4e28ba-2fa1-4d2e-883f-0016d3cca427")[0] == 1


@pytest.mark.parametrize("path", [(), ("put",), ("rotate",), ("token",), ("token", "create")])
def test_every_command_has_help(credentials: Command, path: tuple[str, ...]) -> None:
    code, text = credentials(*path, "--help")
    assert code == 0
    assert "Usage:" in text
