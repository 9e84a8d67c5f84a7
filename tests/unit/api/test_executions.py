"""Executions over the API: started, watched, listed, cancelled, re-run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from noetl.dispatch.grants import CommandGrant
from noetl.plan.trigger import CommandEnded
from tests.unit.api.conftest import HOME, LOOP, TWO_STEPS, Server
