"""Runs a PFT playbook once in a process of its own and prints what it came to as one line of JSON.

Takes one JSON argument: home of the embedded server, playbook, URL of the user's database, and workload.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvloop

from noetl.runtime.commands.run import RUN_SLOTS, Watcher, open_run, run_entry
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.store import CredentialStore

CREDENTIAL = "pg_local"


async def run_once(home: str, file: str, url: str, workload: dict[str, Any]) -> dict[str, Any]:
    """Keep the credential the playbook names, run it, and return id, status, seconds and claims."""
    settings = Settings.model_validate({"runtime": {"home": home}})
    async with open_runtime(settings) as runtime:
        keys = KeyRing.load(settings.key_directory / "credentials", os.environ, create=True)
        await CredentialStore(runtime.database, keys).put(runtime.scope, CREDENTIAL, "postgres", {"dsn": url})
    async with open_run(settings) as (runtime, engine):
        text = await asyncio.to_thread(Path(file).read_text)
        registered = await engine.catalog.register(runtime.scope, text, file=file)
        result = await run_entry(runtime, engine, registered.entry, workload, slots=RUN_SLOTS, watcher=Watcher())
    return {
        "execution_id": result.execution_id,
        "status": result.status,
        "seconds": result.seconds,
        "claims": result.claims,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(run_once(**json.loads(sys.argv[1])))))
