"""A Spark session of a test's own process, without NoETL's drivers, for what is computed in one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from noetl.spark.session.java import find_java


@contextmanager
def plain_session(home: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Give a session on two local cores with its files below a folder, and stop it afterwards."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault("JAVA_HOME", str(find_java(home).home))
    usual = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**usual, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
