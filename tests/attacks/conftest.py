"""Servers of the API with and without tokens, and commands as a user types them."""

from __future__ import annotations

from tests.acceptance.conftest import noetl
from tests.integration.api.conftest import bearers, engine, guarded, payloads, readers, serve, server

__all__ = ["bearers", "engine", "guarded", "noetl", "payloads", "readers", "serve", "server"]
