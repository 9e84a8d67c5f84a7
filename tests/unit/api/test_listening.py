"""How many connections a process may have at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASKED = """
import resource, sys
from noetl.api.connections.listening import allow_many_connections
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow_many_connections()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard"), [(64, 1_000), (1_000, 1_000)], ids=["fewer", "as many already"])
def test_a_process_may_open_as_many_files_as_the_system_lets_it(soft: int, hard: int) -> None:
    asked = [sys.executable, "-c", ASKED, str(soft), str(hard)]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(hard), str(hard)]
