"""All fact datasets, each after those it reads, and the DAG that publishes them. Values only."""

from __future__ import annotations

import hashlib
from typing import Final

from noetl.spark.event_lake.facts.attempts import ATTEMPTS
from noetl.spark.event_lake.facts.audit import AUDIT
from noetl.spark.event_lake.facts.costs import COSTS
from noetl.spark.event_lake.facts.executions import EXECUTIONS, METRICS
from noetl.spark.event_lake.facts.fact import DAY, Fact
from noetl.spark.event_lake.facts.parsed_events import parsed_events
from noetl.spark.event_lake.facts.steps import FRAMES, STEPS
from noetl.spark.event_lake.facts.tasks import DATASETS, TASKS

FACTS: Final[tuple[Fact, ...]] = (EXECUTIONS, FRAMES, TASKS, ATTEMPTS, STEPS, DATASETS, METRICS, COSTS, AUDIT)
BY_NAME: Final = {fact.name: fact for fact in FACTS}


DAG: Final = "noetl_facts"


def facts_dag() -> str:
    """Return the DAG of the facts: whatever decides the rows of one makes another generation of it."""
    jobs = "".join(_job(fact) for fact in FACTS)
    published = "".join(f"  {fact.name}: {fact.name}\n" for fact in FACTS)
    return f"name: {DAG}\ndesc: Facts over the event lake; `noetl lake sync` writes them.\njobs:\n{jobs}publish:\n{published}"


def _job(fact: Fact) -> str:
    columns = ", ".join(f"{column.name}: {column.type}" for column in fact.columns)
    return f"""\
  - name: {fact.name}
    desc: {fact.sentence!r}
    operator: noop
    partition_by: [{DAY}]
    update_strategy: replace
    max_attempts: 1
    schema:
      columns: {{{columns}}}
      evolve: add_columns
    config: {{made_by: "{_made_by(fact)}"}}
"""


def _made_by(fact: Fact) -> str:
    """Digest all SQL that decides the rows of a dataset."""
    texts, left = {}, [fact]
    while left:
        one = left.pop()
        if one.name not in texts:
            texts[one.name] = one.select
            left += [other for name, other in BY_NAME.items() if name in one.query]
    told = "\n".join([parsed_events("events"), *(texts[name] for name in sorted(texts))])
    return hashlib.sha256(told.encode()).hexdigest()[:16]
