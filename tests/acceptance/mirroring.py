"""A mirror of events: in go a NATS server and a prefix of names, and the commands of a test publish to its streams."""

from __future__ import annotations

import pytest


def mirror_events(monkeypatch: pytest.MonkeyPatch, nats_url: str, stream_prefix: str) -> None:
    """Let commands of this test, and processes that it starts from now on, mirror events to these streams."""
    monkeypatch.setenv("NOETL_EVENT_STORE__DISTRIBUTION_BACKEND", "nats-jetstream")
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", nats_url)
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__STREAM_PREFIX", stream_prefix)
