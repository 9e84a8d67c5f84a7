"""Lets any PySpark program read the ledger as `spark.read.format("noetl")`: Spark finds packages of this name by itself."""

from __future__ import annotations

from noetl.spark.source.data_source import LedgerSource as DefaultSource

__all__ = ["DefaultSource"]
