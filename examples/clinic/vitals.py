"""Vital signs as the API tells them, made into readings."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

HIGHEST = 1000
"""A device that reports more than this is broken."""


def clean(vitals_raw: DataFrame) -> DataFrame:
    """Return one row per reading of a device that works."""
    return vitals_raw.where(f.col("value") < HIGHEST).select(
        f.col("id").alias("reading_id"), f.col("patientId").alias("patient_id"), f.col("value").alias("reading")
    )
