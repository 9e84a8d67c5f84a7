"""Texts besides templates that a server reads: each is read or refused in little time and memory (INV-187)."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from noetl.testing.attacks.evaluations import ACCEPTED, READINGS

_CPU_SECONDS = 20
_BYTES = 2 << 30


def _bound() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))


@pytest.mark.slow
@pytest.mark.parametrize("name", READINGS)
def test_what_is_long_to_read_is_refused_or_read(name: str) -> None:
    """INV-187: within seconds of the processor, however busy the machine is, and with one clear error."""
    done = subprocess.run(
        [sys.executable, "-m", "noetl.testing.attacks.evaluations", name],
        capture_output=True,
        text=True,
        preexec_fn=_bound,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    if name in ACCEPTED:
        assert done.stdout == "accepted\n"
    else:
        assert done.stdout.startswith("refused with "), done.stdout
        assert int(done.stdout.split()[2]) < 600_000
