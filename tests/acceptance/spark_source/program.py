"""A PySpark program as anyone might write it: it registers nothing and knows the format by its name.

Reads what it is to do as JSON from its input and prints what it found as JSON.
"""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("shard", "position", "event_id", "execution_id", "event_type", "meta", "event_time")


def main() -> None:
    told = json.load(sys.stdin)
    builder = SparkSession.builder.master(told["master"]).appName("somebody's own")
    for name, value in told["settings"].items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    found: dict[str, Any] = {"batch": rows(events(session, told)), "stream": streamed(session, told)}
    if told["all"]:
        found |= asked(session, told)
        found["printed"] = documented(told)
    found["files"] = [path.read_text() for path in Path(told["directory"], "log").rglob("*") if path.is_file()]
    session.stop()
    found["files"] += [path.read_text() for path in Path(told["directory"], "log").rglob("*") if path.is_file()]
    json.dump(found, sys.stdout)


def events(session: SparkSession, told: dict[str, Any], **more: str) -> DataFrame:
    return session.read.format("noetl").options(**told["options"], **more).load()


def rows(frame: DataFrame) -> list[list[Any]]:
    found = frame.selectExpr(*COLUMNS[:-1], "unix_micros(event_time) AS event_time").collect()
    return sorted([*row] for row in found)


def streamed(session: SparkSession, told: dict[str, Any]) -> list[list[Any]]:
    """Read the ledger in three queries of one checkpoint: up to a mark, on to now, and once more."""
    seen: list[list[Any]] = []
    sizes: list[int] = []

    def take(frame: DataFrame, _: int) -> None:
        taken = rows(frame)
        sizes.append(len(taken))
        seen.extend(taken)

    for more in ({"upto": told["half"]}, {}, {}):
        stream = session.readStream.format("noetl").options(**told["options"], batch_events="40", **more).load()
        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(Path(told["directory"], "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert max(sizes) <= 40, sizes
    assert len(sizes) > 2, sizes
    return sorted(seen)


def asked(session: SparkSession, told: dict[str, Any]) -> dict[str, Any]:
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    one = events(session, told)
    parts = [one.where(f"event_type {sign} 'frame.committed'") for sign in ("=", "<>")]
    found: dict[str, Any] = {"twice": rows(parts[0].union(parts[1]))}
    pushed = events(session, told, push_filters="true")
    chosen = pushed.where("event_type = 'frame.committed' AND position > 3 AND meta IS NOT NULL")
    found["chosen"] = rows(chosen)
    counted = chosen.select("event_id")
    counted.collect()
    plan = counted._jdf.queryExecution().executedPlan()
    leaves = plan.collectLeaves()
    scanned = [leaves.apply(at) for at in range(leaves.size())]
    found["scanned"] = [leaf.metrics().apply("numOutputRows").value() for leaf in scanned]
    found["plan"] = counted._jdf.queryExecution().toString()
    few = session.read.format("noetl").schema("event_id bigint, meta string").options(**told["options"]).load()
    found["few"] = sorted([*row] for row in few.collect())
    found["foreign"] = events(session, told, execution=told["foreign"]).count()
    found["errors"] = [
        refused(lambda: session.read.format("noetl").option("url", told["options"]["url"]).load()),
        refused(lambda: events(session, told, excution="5")),
        refused(lambda: session.read.format("noetl").schema("meta int").options(**told["options"]).load().collect()),
        refused(lambda: events(session, {"options": told["options"] | {"url": told["nowhere"]}}).collect()),
    ]
    return found


def documented(told: dict[str, Any]) -> list[str]:
    """Run the programs of the page about this source, in the session that is there, and return what they print."""
    printed = []
    for text in re.findall(r"<<'PROGRAM'\n(.*?)^PROGRAM$", Path(told["page"]).read_text(), re.DOTALL | re.MULTILINE):
        with redirect_stdout(io.StringIO()) as output:
            exec(compile(text, "docs/spark-source.md", "exec"), {})
        printed.append(output.getvalue())
    return printed


def refused(call: Any) -> str:
    try:
        call()
    except Exception as problem:
        return str(problem)
    raise AssertionError("this should have been refused")


if __name__ == "__main__":
    main()
