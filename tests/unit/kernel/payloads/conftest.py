"""A directory in shared memory for tests of a node, gone with the test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.kernel.payloads.shared_memory.shm import memory_directory


@pytest.fixture
def shared() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="noetl-shared-", dir=memory_directory()))
    yield place
    shutil.rmtree(place)
