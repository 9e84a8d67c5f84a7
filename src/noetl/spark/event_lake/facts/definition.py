"""What the facts are as datasets: one DAG with a job for each, published under its own name. Values only."""

from __future__ import annotations

import hashlib
from typing import Final

from noetl.spark.event_lake.facts.catalogue import BY_NAME, FACTS
from noetl.spark.event_lake.facts.fact import DAY, Fact
from noetl.spark.event_lake.facts.parsing import parsed_events

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
