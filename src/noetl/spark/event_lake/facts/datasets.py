"""The fact of datasets' names: one row for each time a dataset was registered under a name."""

from __future__ import annotations

from typing import Final

from noetl.spark.event_lake.facts.fact import OWNER, Fact, columns

DATASETS: Final = Fact(
    name="noetl_datasets",
    sentence="One row for each time a dataset was registered, or given another name.",
    columns=columns(
        *OWNER,
        "dataset_uuid string: The dataset.",
        "name string: The name it was given.",
        "published boolean: Whether readers may ask for it by that name.",
        "dag string: The DAG.",
        "job string: The job that makes it.",
        "output int: Which of the job's outputs it is, from 0.",
        "registered_at timestamp: When it was given the name; the latest one counts.",
        "day date: The day (UTC) of that, or of the deploy it was part of.",
    ),
    query="""
    SELECT *, m_dataset_uuid AS dataset_uuid, m_name AS name, coalesce(m_published, false) AS published, m_dag AS dag,
        m_job AS job, m_output AS output, ingest_time AS registered_at
    FROM e WHERE event_type = 'dataset.registered'
    """,
)
