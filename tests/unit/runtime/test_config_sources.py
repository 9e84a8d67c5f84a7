"""Where settings come from: defaults, a file, the environment."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from noetl.errors import ConfigError
from noetl.runtime.config import Problem, load, load_settings
from noetl.runtime.settings.declaration import Settings


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "noetl.yaml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path | None = None, environ: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environ or {})
    found = caught.value.details["problems"]
    assert isinstance(found, list)
    assert str(caught.value).splitlines() == [str(one) for one in found]
    return found


def test_without_file_and_environment_all_defaults_hold() -> None:
    settings = load_settings(environ={})
    assert settings == Settings()
    assert settings.runtime.node_id == socket.gethostname()
    assert (settings.runtime.tenant_id, settings.runtime.organization_id) == ("default", "default")
    assert settings.payload_store.threshold_bytes == 64 * 1024
    assert settings.event_store.write_path == "ledger"
    assert settings.database.idle_in_transaction_seconds == 5
    assert settings.frame_policy_defaults.fanout.parallelism == 8


def test_the_usual_file_in_the_working_directory_is_read() -> None:
    written("runtime: {cluster_id: blue}")
    assert load_settings(environ={}).runtime.cluster_id == "blue"


def test_the_file_named_in_the_environment_wins_over_the_usual_one() -> None:
    written("runtime: {cluster_id: blue}")
    other = written("runtime: {cluster_id: green}", "other.yaml")
    loaded = load(environ={"NOETL_CONFIG": str(other)})
    assert loaded.settings.runtime.cluster_id == "green"
    assert loaded.file == other


def test_a_given_path_wins_over_the_file_named_in_the_environment() -> None:
    mine = written("runtime: {cluster_id: mine}", "mine.yaml")
    assert load_settings(mine, {"NOETL_CONFIG": "absent.yaml"}).runtime.cluster_id == "mine"


def test_the_environment_wins_over_the_file() -> None:
    written("payload_store: {connection: {bucket: from-file}}\nruntime: {tenant_id: from-file}")
    settings = load_settings(environ={"NOETL_PAYLOAD_STORE__CONNECTION__BUCKET": "b", "NOETL_TENANT_ID": "t"})
    assert (settings.payload_store.connection.bucket, settings.runtime.tenant_id) == ("b", "t")


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("NOETL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NOETL_CLUSTER_ID", "process")
    assert load_settings().runtime.cluster_id == "process"


@pytest.mark.parametrize(
    ("name", "section", "field", "value"),
    [
        ("NOETL_TENANT_ID", "runtime", "tenant_id", "t"),
        ("NOETL_ORGANIZATION_ID", "runtime", "organization_id", "o"),
        ("NOETL_CLUSTER_ID", "runtime", "cluster_id", "c"),
        ("NOETL_NODE_ID", "runtime", "node_id", "fd00::1"),
        ("NOETL_SHARD_ID", "runtime", "shard_id", "3"),
        ("NOETL_HOME", "runtime", "home", "elsewhere"),
        ("NOETL_DATABASE_URL", "database", "url", "postgresql:///noetl?host=/run"),
    ],
)
def test_short_variables_set_their_setting(name: str, section: str, field: str, value: str) -> None:
    loaded = load(environ={name: value})
    found = getattr(getattr(loaded.settings, section), field)
    assert (found.get_secret_value() if field == "url" else str(found)) == value
    assert str(loaded.origins[f"{section}.{field}"]) == name


def test_numbers_and_booleans_stay_text_where_text_is_wanted() -> None:
    settings = load_settings(written("runtime: {tenant_id: 007, cluster_id: yes, organization_id: 1_000}"), {})
    runtime = settings.runtime
    assert (runtime.tenant_id, runtime.cluster_id, runtime.organization_id) == ("007", "yes", "1_000")


def test_references_are_expanded_in_text() -> None:
    path = written(
        "database: {url: 'postgresql://u:${PASSWORD}@${HOST:-db}/x'}\nruntime: {cluster_id: '${EMPTY:-blue}'}"
    )
    loaded = load(path, {"PASSWORD": "s3cret", "EMPTY": ""})
    assert loaded.settings.database.url is not None
    assert loaded.settings.database.url.get_secret_value() == "postgresql://u:s3cret@db/x"
    assert loaded.settings.runtime.cluster_id == "blue"
    assert str(loaded.origins["database.url"]) == "noetl.yaml:1:17 with ${PASSWORD} with ${HOST}"


def test_a_doubled_dollar_is_a_literal_reference() -> None:
    path = written("payload_store: {connection: {prefix: 'a$${b}'}}")
    assert load_settings(path, {}).payload_store.connection.prefix == "a${b}"


def test_a_value_of_empty_references_counts_as_not_given() -> None:
    path = written("runtime:\n  shard_id: ${SHARD:-}\n  tenant_id: ${TENANT}")
    assert load_settings(path, {"TENANT": ""}) == Settings()


def test_empty_variables_and_foreign_variables_are_passed_over() -> None:
    environ = {"NOETL_DATABASE_URL": "", "NOETL_PORT": "tcp://10.0.0.1:80", "PATH": "/bin", "NOETL_FAULT": "x=kill"}
    assert load_settings(environ=environ) == Settings()


def test_null_in_a_variable_clears_what_may_be_null() -> None:
    path = written("event_store: {retention: {keep_months: 3}}")
    settings = load_settings(path, {"NOETL_EVENT_STORE__RETENTION__KEEP_MONTHS": "null"})
    assert settings.event_store.retention.keep_months is None


def test_the_same_value_under_both_names_of_a_setting_is_no_problem() -> None:
    settings = load_settings(environ={"NOETL_TENANT_ID": "t", "NOETL_RUNTIME__TENANT_ID": "t"})
    assert settings.runtime.tenant_id == "t"


def test_empty_files_and_empty_sections_are_allowed() -> None:
    assert load_settings(written(""), {}) == Settings()
    assert load_settings(written("\ufeffdatabase:\nruntime: {}\n"), {}) == Settings()


def test_anchors_may_be_used_and_used_again() -> None:
    path = written("runtime: {tenant_id: &x a, organization_id: *x, cluster_id: &x b, node_id: *x}")
    runtime = load_settings(path, {}).runtime
    assert (runtime.organization_id, runtime.node_id) == ("a", "b")


def test_projection_stores_keep_a_default_beside_the_named_ones() -> None:
    path = written("projection_stores:\n  reports:\n  other: {connection: {hosts: ['http://a', 'http://b']}}")
    environ = {"NOETL_PROJECTION_STORES__THIRD__CONNECTION__HOSTS": "https://c, https://d"}
    stores = load_settings(path, environ).projection_stores
    assert sorted(stores) == ["default", "other", "reports", "third"]
    assert [host.get_secret_value() for host in stores["other"].connection.hosts] == ["http://a", "http://b"]
    assert [host.get_secret_value() for host in stores["third"].connection.hosts] == ["https://c", "https://d"]


def test_a_list_of_one_may_be_written_as_a_single_value() -> None:
    path = written("projection_stores: {other: {connection: {hosts: 'http://a'}}}")
    hosts = load_settings(path, {}).projection_stores["other"].connection.hosts
    assert [host.get_secret_value() for host in hosts] == ["http://a"]


def test_directories_stand_in_the_home_directory_unless_set() -> None:
    settings = load_settings(environ={"NOETL_HOME": "state"})
    assert settings.payload_directory == Path("state/payloads")
    assert settings.key_directory == Path("state/keys")
    assert settings.cache_directory == Path("state/cache")
    environ = {
        "NOETL_PAYLOAD_STORE__CONNECTION__PATH": "/p",
        "NOETL_PAYLOAD_STORE__KEY_DIRECTORY": "/k",
        "NOETL_PAYLOAD_STORE__CACHE__TIER_2_DISK_PATH": "~/c",
    }
    settings = load_settings(environ=environ)
    assert (settings.payload_directory, settings.key_directory) == (Path("/p"), Path("/k"))
    assert settings.cache_directory == Path.home() / "c"


def test_settings_cannot_be_changed_or_extended() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.database.pool_max = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Settings.model_validate({"databse": {}})


def test_a_file_that_was_named_must_exist() -> None:
    (found,) = problems(environ={"NOETL_CONFIG": "absent.yaml"})
    assert (found.source, found.message) == ("absent.yaml", "cannot be read: No such file or directory")


def test_a_file_with_every_section_is_read() -> None:
    path = written("""\
runtime:
  tenant_id: ${NOETL_TENANT_ID}
  organization_id: ${NOETL_ORGANIZATION_ID:-retail}
  node_id: ${POD_IP}
  cluster_id: blue
  shard_id: ${SHARD}
  scheduler:
    locality_preference: node  # node | zone | region | any
    max_inflight_frames_per_worker: 6
database:
  url: postgresql://noetl:secret@pg:5432/noetl
event_store:
  canonical_backend: postgres
  distribution_backend: none
  connection:
    url: nats://nats.nats.svc.cluster.local:4222
    stream_prefix: noetl.events
  replay: {snapshot_interval_events: 500, checksum_algorithm: blake3}
  retention: {keep_months: 12, keep_archive_months: 84}
serialization:
  envelope_format: canonical-json
  tabular_payload_format: arrow-ipc-stream
  schema_registry: {backend: file}
  compression: none
  timezone: UTC
payload_store:
  backend: s3
  connection: {endpoint: "https://storage.example", bucket: noetl-payloads}
  threshold_bytes: 32768
  content_addressing: sha256
  encryption_at_rest: true
  cache: {tier_1_memory_mb: 64, tier_15_node_budget_mb: 0, tier_15_grace_seconds: 5, tier_2_disk_gb: 1}
  gc: {strategy: ttl, ttl_days: 30, grace_hours: 1}
projection_stores:
  default:
    backend: postgres
    connection: {dsn: "postgresql://noetl:secret@pg:5432/noetl"}
materializations:
snapshots: {backend: postgres}
frame_policy_defaults:
  loop: {size: 10, duration_ms: 100, memory_bytes: 1024, parallelism: 2}
  fanout: {size: 2}
""")
    environ = {"NOETL_TENANT_ID": "acme", "POD_IP": "10.0.0.7", "SHARD": "15"}
    settings = load_settings(path, environ)
    runtime = settings.runtime
    assert (runtime.tenant_id, runtime.organization_id) == ("acme", "retail")
    assert (runtime.node_id, runtime.shard_id) == ("10.0.0.7", "15")
    assert runtime.scheduler.max_inflight_frames_per_worker == 6
    assert settings.event_store.replay.snapshot_interval_events == 500
    assert settings.event_store.retention.keep_archive_months == 84
    assert settings.payload_store.threshold_bytes == 32768
    assert settings.payload_store.encryption_at_rest is True
    assert settings.payload_store.gc.strategy == "ttl"
    assert str(settings.projection_stores["default"].connection.dsn) == "postgresql://noetl:***@pg:5432/noetl"
    assert settings.frame_policy_defaults.fanout.size == 2
    assert settings.frame_policy_defaults.fanout.parallelism == 8
