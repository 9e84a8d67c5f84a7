"""Every problem of a configuration is told at once, with its place and its fix, and without any secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import ConfigError
from noetl.runtime.config import Problem, load_settings
from noetl.runtime.settings.types import SecretUrl


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(text: str | bytes = "", environ: dict[str, str] | None = None) -> list[Problem]:
    path = Path("noetl.yaml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environ or {})
    found = caught.value.details["problems"]
    assert isinstance(found, list)
    return found


def told(text: str | bytes = "", environ: dict[str, str] | None = None) -> list[str]:
    return [str(one) for one in problems(text, environ)]


def test_all_problems_of_file_and_environment_come_together() -> None:
    """INV-26."""
    text = """\
runtime:
  node_id: ${POD_IP}
databse: {}
database:
  pool_min: 20
  pool_max: lots
event_store:
  distribution_backend: kafka
payload_store:
  backend: s3
  cache:
    tier_1_memory_mb: -1
materializations:
  lake: {source: x}
  views: {backend: columnar-analytics}
"""
    assert told(text, {"NOETL_WORKER__SLOTS": "0"}) == [
        "NOETL_WORKER__SLOTS: worker.slots: must be at least 1, not '0'",
        "noetl.yaml:2:12: runtime.node_id: needs the environment variable POD_IP, which is not set"
        " (set it, or write ${NAME:-default}; a literal ${ is written $${)",
        "noetl.yaml:3:1: databse: is not a setting (did you mean database?)",
        "noetl.yaml:6:13: database.pool_max: must be a whole number, not 'lots'",
        "noetl.yaml:8:25: event_store.distribution_backend: 'kafka' is not available in this version;"
        " use one of none, postgres, nats-jetstream",
        "noetl.yaml:10:12: payload_store.connection.bucket: is needed by the s3 backend"
        " (name the bucket, such as NOETL_PAYLOAD_STORE__CONNECTION__BUCKET=noetl-payloads)",
        "noetl.yaml:12:23: payload_store.cache.tier_1_memory_mb: must be at least 0, not '-1'",
        "noetl.yaml:14:3: materializations.lake.backend: is needed",
        "noetl.yaml:14:18: materializations.lake.source: must be event_store, not 'x'",
        "noetl.yaml:15:20: materializations.views.backend: 'columnar-analytics' is not available in this version;"
        " remove this entry",
    ]


def test_a_problem_holds_its_place_in_parts() -> None:
    assert problems("database:\n  pool_max: x") == [
        Problem("database.pool_max", "must be a whole number, not 'x'", "noetl.yaml", 2, 13, None)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("database: {pool_max: 1.5}", "must be a whole number, not '1.5'"),
        ("payload_store: {threshold_bytes: 262144}", "must be at most 65536, not '262144'"),
        ("database: {idle_in_transaction_seconds: soon}", "must be a number, not 'soon'"),
        ("database: {idle_in_transaction_seconds: nan}", "must be a number, not 'nan'"),
        ("database: {idle_in_transaction_seconds: 0}", "must be more than 0, not '0'"),
        ("payload_store: {encryption_at_rest: maybe}", "must be true or false, not 'maybe'"),
        ("payload_store: {connection: {bucket: ''}}", "must not be empty, not ''"),
        ("runtime: {home: '~nobody-of-that-name/x'}", "names the home directory of a user that does not exist"),
        ("runtime: {tenant_id: a/b}", "start with a letter or digit, not 'a/b'"),
        ("serialization: {compression: lz4}", "must be zstd or none, not 'lz4'"),
        ("event_store: {write_path: stream}", "stream needs a stream outside PostgreSQL"),
        (
            "event_store: {distribution_backend: nats-jetstream}",
            "must be that of a NATS server (such as nats://nats:4222)",
        ),
        (
            "event_store: {distribution_backend: nats-jetstream, write_path: stream, connection: {url: 'nats://n',"
            " require_fsync: true}}",
            "is set, and nobody says that NATS syncs a write before it acknowledges it",
        ),
        ("runtime: {tenant_id: }", "must have a value (remove the line to use the default)"),
        ("runtime: {tenant_id: [a]}", "must be a single value"),
        ("projection_stores: {a: {connection: {hosts: [[x]]}}}", "must be a list of single values"),
        ("projection_stores: {a: {connection: {hosts: {x: y}}}}", "must be a list of single values"),
        (
            "projection_stores: {a: {backend: search-store}}",
            "use one of postgres; the event lake (`noetl lake`) serves analytics, views (`noetl views`) serve derived",
        ),
        (
            "projection_stores: {a: {projections: frame}}",
            "projection_stores.a.connection.dsn: is needed by a store that has projections",
        ),
        (
            "projection_stores: {default: {connection: {dsn: 'postgresql://h/x'}}}",
            "must be database.url: the default store is the ledger's own database",
        ),
        (
            "{database: {url: 'postgresql://h/x'}, projection_stores: {a: {connection: {dsn: 'postgresql://h/x'}}}}",
            "projection_stores.a.connection.dsn: is that of database.url: each store has a database of its own",
        ),
        (
            "projection_stores: {a: {connection: {dsn: 'postgresql://h/x'}}, b: {connection: {dsn: 'postgresql://h/x'}}}",
            "projection_stores.b.connection.dsn: is that of projection store a: each store has a database of its own",
        ),
        ("runtime: 5", "must be a mapping of settings"),
        ("[1, 2]", "must be a mapping of settings"),
        ("? [a]\n: b", "may hold plain keys only (write the settings out)"),
        ("a: &a {}\n<<: *a", "may hold plain keys only (write the settings out)"),
        ("runtime: {tenant_id: '${'}", "holds ${ without a name and a closing }"),
        ("runtime: {colour: 1}", "is not a setting (known: cluster_id, home, metrics_host"),
    ],
)
def test_each_mistake_is_told_in_words(text: str, message: str) -> None:
    assert any(message in one for one in told(text)), told(text)


def test_a_key_given_twice_is_a_problem_at_the_second_place() -> None:
    assert told("runtime:\n  tenant_id: a\n  tenant_id: b") == [
        "noetl.yaml:3:3: runtime.tenant_id: is given twice (remove this one or the one in line 2)"
    ]


def test_broken_yaml_is_told_with_line_and_column() -> None:
    assert told("runtime:\n  tenant_id: a: b") == [
        "noetl.yaml:2:15: is not valid YAML: a value holds a colon followed by a space"
        ' (put the whole value in quotes, such as note: "see: this")'
    ]


def test_a_reference_inside_braces_must_stand_in_quotes() -> None:
    (found,) = problems("runtime: {tenant_id: ${TENANT}}", {"TENANT": "a"})
    assert found.message == "is not valid YAML: { is opened here and not closed"
    assert found.hint == "a value with ${NAME} inside braces must stand in quotes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"runtime: \xff", ": is not UTF-8 text: byte 9 cannot be decoded"),
        ("runtime: \x01", ":1:10: is not valid YAML: a control character (U+0001) stands here (remove it)"),
    ],
)
def test_a_file_that_is_no_text_is_a_problem(text: str | bytes, message: str) -> None:
    assert told(text) == [f"noetl.yaml{message}"]


def test_a_file_that_cannot_be_read_does_not_hide_problems_of_the_environment() -> None:
    found = told("a: [", {"NOETL_WORKER__SLOTS": "x", "NOETL_OWNER_DATABASE_URL": "postgresql://o@h/x"})
    assert found[0] == "NOETL_WORKER__SLOTS: worker.slots: must be a whole number, not 'x'"
    assert found[1].startswith("noetl.yaml:1:5: is not valid YAML")
    assert len(found) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NOETL_DATABASE__ULR", "database.ulr: is not a setting: database has no ulr (did you mean url?)"),
        ("NOETL_DATABSE__URL", "databse.url: is not a setting (did you mean database?)"),
        ("NOETL_PAYLOAD_STORE__CACHE", "payload_store.cache: is a section, not a setting (add __<FIELD>"),
        ("NOETL_PROJECTION_STORES__A", "projection_stores.a: is a section, not a setting"),
        ("NOETL_PROJECTION_STORES____BACKEND", "has an empty part"),
        ("NOETL_DATABSE_URL", "NOETL_DATABSE_URL: is not a setting (did you mean NOETL_DATABASE_URL?)"),
    ],
)
def test_a_misspelt_variable_is_a_problem(name: str, message: str) -> None:
    (found,) = told(environ={name: "1"})
    assert message in found
    assert found.startswith(f"{name}: ")


def test_a_variable_below_a_setting_names_the_setting() -> None:
    (found,) = problems(environ={"NOETL_DATABASE__POOL_MAX__X": "1"})
    assert found.message == "is not a setting: database.pool_max has no x"
    assert found.hint == "use NOETL_DATABASE__POOL_MAX"


def test_a_near_name_that_the_file_refers_to_is_no_mistake() -> None:
    path = Path("noetl.yaml")
    path.write_text("runtime: {tenant_id: '${NOETL_TENANT_IDS}'}")
    assert load_settings(path, {"NOETL_TENANT_IDS": "a"}).runtime.tenant_id == "a"


def test_two_variables_may_not_set_one_setting_differently() -> None:
    (found,) = told(environ={"NOETL_TENANT_ID": "a", "NOETL_RUNTIME__TENANT_ID": "b"})
    assert (
        found
        == "NOETL_TENANT_ID: runtime.tenant_id: is set differently by NOETL_RUNTIME__TENANT_ID (remove one of them)"
    )


URL = "url: 'postgresql://h/x'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("database: {pool_min: 20}", "database.pool_min: must be at most pool_max, which is 10"),
        ("database: {owner_url: 'postgresql://o@h/x'}", "database.owner_url: is given, but database.url is not"),
        ("payload_store: {backend: gcs}", "payload_store.connection.bucket: is needed by the gcs backend"),
        (
            "payload_store: {backend: seaweedfs, connection: {bucket: b}}",
            "payload_store.connection.endpoint: is needed by the seaweedfs backend",
        ),
        ("payload_store: {connection: {endpoint: 'http://h'}}", "payload_store.connection.endpoint: is not encrypted"),
        (
            "payload_store: {connection: {access_key: a}}",
            "payload_store.connection.secret_key: is needed with access_key",
        ),
        (
            "payload_store: {connection: {secret_key: a}}",
            "payload_store.connection.access_key: is needed with secret_key",
        ),
        ("event_store: {retention: {keep_archive_months: 3}}", "has no effect, because nothing is archived"),
        (
            "event_store: {retention: {keep_months: 4, keep_archive_months: 3}}",
            "must be at least keep_months, which is 4 (both count from the event)",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_a_problem(text: str, message: str) -> None:
    (found,) = told(text)
    assert message in found


@pytest.mark.parametrize(
    "text",
    [
        f"database: {{{URL}, owner_url: 'postgresql://o@h/x', pool_min: 10}}",
        "payload_store: {backend: seaweedfs, connection: {bucket: b, endpoint: 'http://h', allow_http: true}}",
        "payload_store: {backend: s3, connection: {bucket: b, access_key: a, secret_key: s}}",
        "event_store: {retention: {keep_months: 3, keep_archive_months: 3}}",
        "event_store: {retention: {keep_months: 3}}",
    ],
)
def test_settings_that_go_together_are_accepted(text: str) -> None:
    path = Path("noetl.yaml")
    path.write_text(text)
    load_settings(path, {})


def test_nothing_is_said_about_clashes_with_a_value_that_is_wrong_itself() -> None:
    (found,) = problems("database:\n  url: ${UNSET}\n  owner_url: postgresql://o@h/x")
    assert found.path == "database.url"


@pytest.mark.parametrize(
    "text",
    [
        "database: {url: 'mysql://u:hunter2@h/x'}",
        "database: {url: 'postgresql://u:hunter2#@h/x'}",
        "database: {url: 'postgresql://u:hunter2@h:port/x'}",
        "database: {url: 'postgresql://u:hun ter2@h/hunter2'}",
        "database: {url: 'postgresql:hunter2'}",
        "projection_stores: {a: {connection: {hosts: ['ftp://u:hunter2@h']}}}",
        "payload_store: {connection: {secret_key: *hunter2}}",
        "payload_store: {connection: {secret_key: !hunter2!x y}}",
        "payload_store: {connection: {secret_key: hunter2, secret_key: hunter2}}",
        "payload_store: {connection: {secret_key: [hunter2]}}",
        "database: {pool_max: '${PASSWORD}'}",
    ],
)
def test_no_problem_tells_a_secret(text: str) -> None:
    """INV-26."""
    path = Path("noetl.yaml")
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {"PASSWORD": "hunter2"})
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.details}"
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/x", "postgresql://u:***@h/x"),
        ("postgresql://u@h/x", "postgresql://u@h/x"),
        ("postgresql://u:p@q@h/x", "postgresql://u:***@h/x"),
        ("postgresql:///x?user=u&password=p&sslmode=require", "postgresql:///x?user=u&password=***&sslmode=require"),
    ],
)
def test_a_url_prints_with_its_password_masked(url: str, shown: str) -> None:
    secret = SecretUrl(url)
    assert str(secret) == shown
    assert repr(secret) == f"SecretUrl('{shown}')"
    assert secret.get_secret_value() == url


def test_settings_print_without_secrets() -> None:
    environ = {
        "NOETL_DATABASE_URL": "postgresql://u:hunter2@h/x",
        "NOETL_PAYLOAD_STORE__CONNECTION__ACCESS_KEY": "a",
        "NOETL_PAYLOAD_STORE__CONNECTION__SECRET_KEY": "hunter2",
    }
    settings = load_settings(environ=environ)
    assert "hunter2" not in f"{settings} {settings!r} {settings.model_dump_json()}"
    assert settings.payload_store.connection.secret_key is not None
    assert settings.payload_store.connection.secret_key.get_secret_value() == "hunter2"
