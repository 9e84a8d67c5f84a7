"""What a role says goes out at once, and nowhere without complaint once nobody reads it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from noetl.cli.terminal.messages import tell


@pytest.mark.parametrize(("err", "name"), [(False, "stdout"), (True, "stderr")])
def test_a_reader_that_went_away_is_no_failure_and_leaves_nothing_that_fails_later(
    err: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, name, stream)
        tell("heard", err=err)
        assert os.read(reading, 100) == b"heard\n"
        os.close(reading)
        tell("lost", err=err)
        tell("lost as well", err=err)
        stream.flush()


def test_output_that_was_closed_altogether_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    tell("lost")


def test_a_disk_that_is_full_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        tell("lost")
        stream.flush()
