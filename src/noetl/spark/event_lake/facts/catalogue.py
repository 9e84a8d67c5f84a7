"""All fact datasets, each after those it reads."""

from __future__ import annotations

from typing import Final

from noetl.spark.event_lake.facts.attempts import ATTEMPTS
from noetl.spark.event_lake.facts.audit import AUDIT
from noetl.spark.event_lake.facts.costs import COSTS
from noetl.spark.event_lake.facts.datasets import DATASETS
from noetl.spark.event_lake.facts.executions import EXECUTIONS
from noetl.spark.event_lake.facts.fact import Fact
from noetl.spark.event_lake.facts.frames import FRAMES
from noetl.spark.event_lake.facts.metrics import METRICS
from noetl.spark.event_lake.facts.steps import STEPS
from noetl.spark.event_lake.facts.tasks import TASKS

FACTS: Final[tuple[Fact, ...]] = (EXECUTIONS, FRAMES, TASKS, ATTEMPTS, STEPS, DATASETS, METRICS, COSTS, AUDIT)
BY_NAME: Final = {fact.name: fact for fact in FACTS}
