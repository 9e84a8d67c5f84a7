"""Which processes give their write path to the database, and which go the way that they find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noetl.errors import ConfigError
from noetl.runtime.config import load_settings
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.write_path.choice import applied_way, check_followed, refusal_of

NATS = {
    "NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": "nats-jetstream",
    "NOETL_EVENT_STORE__CONNECTION__URL": "nats://nats:4222",
}


@pytest.mark.parametrize("way", ["ledger", "shadow", "stream"])
def test_a_way_that_was_given_is_applied_by_every_process(way: str, tmp_path: Path) -> None:
    by_variable = load_settings(environ=NATS | {"NOETL_EVENT_STORE__WRITE_PATH": way})
    file = tmp_path / "noetl.yaml"
    file.write_text(f"event_store: {{write_path: {way}}}")
    by_file = load_settings(file, NATS)
    for settings in (by_variable, by_file):
        assert [applied_way(settings, serves=serves) for serves in (False, True)] == [way, way]


def test_a_way_that_nobody_gave_is_applied_by_those_who_serve_alone() -> None:
    for environ in ({}, NATS):
        settings = load_settings(environ=environ)
        assert [applied_way(settings, serves=serves) for serves in (False, True)] == [None, "ledger"]


@pytest.mark.parametrize("backend", ["none", "postgres"])
def test_who_knows_no_stream_says_which_settings_it_lacks(backend: str) -> None:
    settings = load_settings(environ={"NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": backend})
    with pytest.raises(ConfigError, match="this database is in write path stream") as refused:
        check_followed(settings)
    refusal = refusal_of(settings)
    assert refusal is not None
    for problem in (refused.value, refusal()):
        assert f"event_store.distribution_backend is {backend}" in problem.message
        assert "event_store.connection.url is not set" in problem.message
        assert "set event_store.distribution_backend to nats-jetstream" in str(problem.hint)
    assert refusal() is not refusal(), "an error that is raised again and again would keep every traceback"


def settings_of(**connection: Any) -> Settings:
    store = {"distribution_backend": "nats-jetstream", "connection": {"url": "nats://nats:4222", **connection}}
    return Settings.model_validate({"event_store": store})


def test_who_follows_into_the_stream_keeps_what_is_required_of_it() -> None:
    assert refusal_of(settings_of()) is None
    check_followed(settings_of())
    check_followed(settings_of(require_fsync=True, sync_interval_always=True))
    with pytest.raises(ConfigError, match="require_fsync is set while nobody says"):
        check_followed(settings_of(require_fsync=True))
