"""The limits of connections come from the settings, all of them."""

from __future__ import annotations

from dataclasses import asdict

from noetl.api.connections.limits import ConnectionLimits
from noetl.runtime.server_limits import limits_of
from noetl.runtime.settings.declaration import Settings


def test_every_limit_is_a_setting_with_the_same_default() -> None:
    """INV-194."""
    assert limits_of(Settings()) == ConnectionLimits()
    other = {name: value * 2 for name, value in asdict(ConnectionLimits()).items()}
    chosen = Settings.model_validate({"server": {"limits": other}})
    assert asdict(limits_of(chosen)) == other


def test_a_body_may_be_as_large_as_webhooks_take_it() -> None:
    chosen = {"server": {"limits": {"body_bytes": 10}}, "sources": {"hook_max_bytes": 20}}
    assert limits_of(Settings.model_validate(chosen)).body_bytes == 20
