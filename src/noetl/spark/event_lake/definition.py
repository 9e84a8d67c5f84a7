"""What the event lake is as a dataset: its DAG, columns and marks, and the condition for time travel. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.model.dataset import partition_key
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.source.columns import SPARK_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


DAG: Final = "noetl_lake"
JOB: Final = "events"
DATASET: Final = "noetl_events"
PARTITION_BY: Final = ("tenant", "organization", "day")

EVENT_COLUMNS: Final = SPARK_TYPES
"""The fields of an event with their types: what the lake is compared by."""
LINEAGE_COLUMNS: Final = {
    "batch": "string",
    "source_mark": "string",
    "upcast_from": "int",
    "written_at": "timestamp",
}
"""Where a row comes from: the task that committed it, the mark its batch reached, the schema version it was upcast
from, if it was, and when it was written."""
PLACE_COLUMNS: Final = {"tenant": "string", "organization": "string", "day": "date"}
"""What the paths of files are made of; the day is the one in UTC on which the ledger took the event in."""
COLUMNS: Final = EVENT_COLUMNS | LINEAGE_COLUMNS | PLACE_COLUMNS
_KEPT_STATISTICS: Final = frozenset(
    {"shard", "position", "event_id", "execution_id", "event_type", "event_time", "ingest_time", "day"}
)


def lake_dag(upcasters: str, build: int) -> str:
    """Return the DAG of a lake: another set of upcasters, or another build, makes another generation of it."""
    columns = ", ".join(f"{name}: {kind}" for name, kind in COLUMNS.items())
    return f"""\
name: {DAG}
desc: The event lake; `noetl lake sync` writes it.
jobs:
  - name: {JOB}
    desc: Every event of the organization, as the ledger has it.
    operator: noop
    partition_by: [{", ".join(PARTITION_BY)}]
    update_strategy: append
    unique_key: [shard, position]
    max_attempts: 1
    schema:
      columns: {{{columns}}}
      evolve: add_columns
    config: {{upcasters: "{upcasters}", build: {build}}}
publish: {{{DATASET}: {JOB}}}
"""


def partition_of(scope: Scope, day: str) -> str:
    """Return the partition of a day."""
    values = {"tenant": scope.tenant_id, "organization": scope.organization_id, "day": day}
    return partition_key(PARTITION_BY, values)


def day_of(key: str) -> str:
    """Return the day of a partition."""
    return key.rpartition("day=")[2]


def mark_of(state: dict[str, Any]) -> Mark:
    """Return how far the lake has come, from the state of its job."""
    return Mark.parse(state["mark"]) if state else Mark.zero()


def next_state(state: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return what a commit saves: never what stood before, so that of two commits on the same state one is refused."""
    return state | {"commits": state.get("commits", 0) + 1} | changed


def kept_statistics(stats: dict[str, Any]) -> dict[str, Any]:
    """Return what is worth knowing of a file without opening it: manifests are stored anew with every commit."""
    return {name: found for name, found in stats.items() if name in _KEPT_STATISTICS}


def condition(mark: Mark) -> str:
    """Return the SQL that is true of events up to a mark."""
    cases = " ".join(f"WHEN {shard} THEN {position}" for shard, position in enumerate(mark.positions))
    return f"position <= CASE shard {cases} END"


def rows_upto(events: DataFrame, mark: Mark) -> DataFrame:
    """Return the events up to a mark."""
    return events.filter(condition(mark))
