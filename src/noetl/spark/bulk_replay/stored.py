"""The stored rows of one shard, summed: rows of `noetl.projection` go in as Arrow, sums and the checkpoint come out.

A row is summed by its text as it stands. Where that differs from what a fold writes, or from the row's own checksum,
the sums tell that there is something to look into, and whoever compares looks at the rows themselves.
"""

from __future__ import annotations

from typing import Final

from noetl.model.shard import SHARD_COUNT
from noetl.model.stream import Scope
from noetl.project.folds.checksum import text_number
from noetl.project.folds.sums import Sums
from noetl.spark.source.connecting import given, transaction
from noetl.spark.source.options import SourceOptions

# One statement, so one moment: the rows are those that the checkpoint speaks of. Rows of a shard there is not, which no
# projector wrote, are counted with the first.
_ROWS: Final = f"""
SELECT c.position AS checkpoint, p.tenant_id, p.organization_id, p.projection, p.row_id, p.execution_id,
       p.shard::integer AS shard, p.first_position, p.last_position, p.fold_version, p.checksum, p.state::text AS state
FROM noetl.projection_checkpoint AS c LEFT JOIN noetl.projection AS p
  ON (p.shard = c.shard OR (c.shard = 0 AND p.shard NOT BETWEEN 0 AND {SHARD_COUNT - 1}))
 AND p.tenant_id = {given(0, "text")} AND p.organization_id = {given(1, "text")}
WHERE c.shard = {given(2, "smallint")}
"""  # noqa: S608 - values are bound


def stored_sums(options: SourceOptions, scope: Scope, shard: int) -> tuple[int, Sums, int]:
    """Return the checkpoint of a shard, the sums of its stored rows, and how many are not what their checksum says."""
    sums, unsound, checkpoint = Sums(), 0, 0
    with transaction(options) as reading:
        for batch in reading.batches(_ROWS, (scope.tenant_id, scope.organization_id, shard)):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                checkpoint = row[0]
                if row[4] is not None and not _summed(sums, *row[1:]):
                    unsound += 1
    return checkpoint, sums, unsound


def _summed(
    sums: Sums, tenant_id: str, organization_id: str, projection: str, row_id: str, execution_id: int, shard: int,
    first: int, last: int, version: int, checksum: str, state: str,
) -> bool:  # fmt: skip
    number = text_number((tenant_id, organization_id, projection, row_id), version, state.encode())
    sums.count(projection, row_id, number, (execution_id, shard, first, last))
    return f"{number:064x}" == checksum
