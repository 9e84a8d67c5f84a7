"""Half a minute of random trouble over a whole installation, in every write path: nothing is lost, doubled or left undone."""

from __future__ import annotations

import pytest

from noetl.testing.chaos.__main__ import run
from noetl.testing.chaos.installation import WritePath

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 30.0


@pytest.mark.parametrize(("seed", "way"), [(101, "ledger"), (102, "shadow"), (103, "stream")])
async def test_everything_that_was_acknowledged_stands_after_random_trouble(seed: int, way: WritePath) -> None:
    told: list[str] = []
    report = await run(seed, SECONDS, way, told.append, spark=False)
    assert report["incidents"] > 2
    assert report["facts_acknowledged"] > 50
    assert report["holds"], "\n".join(told)
