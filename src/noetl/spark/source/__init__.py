"""The ledger as a data source of Spark: events as typed columns, in batches and as a stream. Reads only.

Scope is never left to a filter: tenant and organization are options that must be given, and the database holds to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # So that filters of a query reach PostgreSQL where the option push_filters asks for it.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Options whose names say url are hidden in plans; so is a URL that got into one some other way.
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|credential",
    "spark.sql.redaction.string.regex": "(?i)postgres(ql)?://[^\\s,\\]\\)\"']+",
}
"""What sessions that read the ledger are set to."""


def register(session: SparkSession) -> None:
    """Make `format("noetl")` known in a session of ours, with its secrets kept."""
    from noetl.spark.source.data_source import LedgerSource

    session.dataSource.register(LedgerSource)
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
