"""Alerts on short leases: what the killed processes and the test itself run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from noetl.engine.dispatch.polling import Backoff
from noetl.runtime.assembly.alerts import evaluate_alerts, sender_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime

LEASE_SECONDS = 1.0
CHANNELS = ("first", "second")


def rules(url: str) -> str:
    """Return a rule that tells two channels of failed runs."""
    channels = "".join(f'  {name}: {{kind: webhook, url: "{url}", allow_private: true}}\n' for name in CHANNELS)
    rule = f"  - {{name: failed, on: run_failed, channels: [{', '.join(CHANNELS)}]}}\n"
    return f"kind: Alerts\nname: ops\nchannels:\n{channels}rules:\n{rule}"


@asynccontextmanager
async def opened(url: str, home: Path) -> AsyncIterator[Runtime]:
    """Give a runtime whose senders hold messages for a short time."""
    settings = Settings.model_validate(
        {
            "runtime": {"home": str(home)},
            "database": {"url": url},
            "alerts": {"lease_seconds": LEASE_SECONDS, "every_seconds": 0.05},
        }
    )
    async with open_runtime(settings) as runtime:
        yield runtime


async def work(runtime: Runtime) -> None:
    """Evaluate every rule and send what is due, once."""
    await evaluate_alerts(runtime)
    await sender_of(runtime, backoff=Backoff(0.0, 0.0)).drain()
