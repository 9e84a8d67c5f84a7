"""A facility with a thousand patients in the write path `shadow`: exact totals, and the materializer would write the same."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples.pft.mock_api import serve
from examples.pft.records import expected
from tests.faults.projectors.patients import PLAYBOOK, saved_records

pytestmark = [pytest.mark.service, pytest.mark.slow]

PATIENTS = 1000
PATIENCE = 900


async def noetl(environ: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run a command as a user does and return its exit code, output and errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "noetl", *arguments, env=os.environ | environ,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        shown, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, shown.decode(), errors.decode()


async def test_a_thousand_patients_leave_no_divergence(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-128."""
    environ = {
        "NOETL_DATABASE_URL": owner_url,
        "NOETL_HOME": str(tmp_path),
        "NOETL_EVENT_STORE__WRITE_PATH": "shadow",
        "NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": "nats-jetstream",
        "NOETL_EVENT_STORE__CONNECTION__URL": nats_url,
        "NOETL_EVENT_STORE__CONNECTION__STREAM_PREFIX": stream_prefix,
    }
    totals = expected(1, PATIENTS, "s3")
    async with serve() as api_url:
        payload = {
            "api_url": api_url, "pg": {"dsn": owner_url}, "num_facilities": 1, "patients_per_facility": PATIENTS,
            "expected": totals.as_workload(),
        }  # fmt: skip
        code, shown, errors = await noetl(environ, "run", str(PLAYBOOK), "--payload", json.dumps(payload), "--json")
    assert code == 0, shown + errors
    assert await saved_records(owner_url) == totals.as_workload()

    code, shown, errors = await noetl(environ, "stream", "divergence", "--json")
    found = json.loads(shown)
    assert (code, found["verdict"], errors) == (0, "proven", "")
    assert found["compared"] == found["written"] == sum(one["head"] for one in found["shards"]) > PATIENTS // 2
    assert sum(one["missing"] + one["different"] for one in found["shards"]) == 0
    code, shown, errors = await noetl(environ, "verify", "--all")
    assert code == 0, shown + errors
