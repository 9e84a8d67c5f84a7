"""Pipelines whose operator tells its lineage by the SQL it runs, and ways to ask about it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from noetl.language.columns.sql.lineage import query_lineage
from noetl.model.mark import Mark
from noetl.pipelines.datasets.lineage import LineageReader
from noetl.pipelines.datasets.lineage_tree import Direction, Follow, Leaf
from noetl.pipelines.tables.partitions import TableReader
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.worker.in_process import Produced
from noetl.spark.drivers.protocol import Work
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import Made, TestedPipelines, connected, working
from noetl.testing.engines.playbooks import Playbooks


class Telling(Made):
    """Runs a query, and tells where its columns come from."""

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Do one attempt."""
        produced = await super().operate(work, bundle)
        query = work.grant.config.get("query")
        if query is None or work.grant.config.get("silent"):
            return produced
        inputs = {
            one.alias: [column.name for part in one.parts for column in work.manifests[part.manifest.sha256].schema]
            for one in work.grant.inputs
        }
        lineage = query_lineage(query, inputs, produced.tables[0].column_names)
        return msgspec.structs.replace(produced, lineage={0: lineage})


class Told:
    """The lineage of a test's pipelines."""

    def __init__(self, tested: TestedPipelines) -> None:
        self.tested = tested
        runtime = tested.runtime
        self.reader = LineageReader(tested.scope, runtime.database, runtime.payloads, runtime.history)

    async def mark(self) -> Mark:
        """Return the mark of now."""
        return await self.tested.runtime.history.head()

    async def tree(
        self, what: str, direction: Direction = "upstream", mark: Mark | None = None, depth: int = 20
    ) -> Leaf:
        """Return what lies before or behind something."""
        mark = mark or await self.mark()
        subject = await self.reader.subject(what, mark)
        return await Follow(self.reader, await self.reader.graph(mark), direction, depth).tree(subject)


@pytest.fixture
async def tested(playbooks: Playbooks, task_engine: TaskEngine) -> AsyncIterator[TestedPipelines]:
    """Pipelines that tell."""
    home = playbooks.home
    found = connected(task_engine, playbooks.runtime, playbooks.scope, Lake(str(home / "lake")), home / "dag")
    found.made = Telling(found.scope.organization_id, TableReader(found.lake))
    async with working(found):
        yield found


@pytest.fixture
def told(tested: TestedPipelines) -> Told:
    """What they told."""
    return Told(tested)


def ways(leaf: Leaf) -> list[str]:
    """Return a tree as one line per node, indented."""
    name = leaf.dataset or "-"
    own = f"{name}.{leaf.column}" if leaf.column else name
    lines = [own + (f" {leaf.kind}" if leaf.kind else "") + (" …" if leaf.more else "")]
    return lines + [f"  {line}" for one in leaf.next for line in ways(one)]
