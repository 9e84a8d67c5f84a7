"""The program of a bulk replay in a driver: what is asked goes in, one answer per shard comes out.

One task per shard, the longest first, so that the last to end is a short one. Rows are never shuffled between tasks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import Unavailable
from noetl.spark.bulk_replay.progress import Listener
from noetl.spark.bulk_replay.shard import ANSWERS, fold_shards
from noetl.spark.bulk_replay.work import Asked, BulkWork
from noetl.spark.drivers.ongoing_work import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from noetl.spark.drivers.programs import Call

_LOCAL = "127.0.0.1"


def replay(session: SparkSession, call: Call) -> dict[str, Any]:
    """Fold every shard that is asked for; return the answers, and tell on the way how many positions are behind us."""
    asked = msgspec.msgpack.decode(call.arguments["asked"], type=Asked)
    if not asked.parts:
        return {"answers": []}
    host = _LOCAL if is_connect(session) else session.sparkContext.getConf().get("spark.driver.host") or _LOCAL
    with Listener(host, lambda reached: call.ask({"reached": reached})) as listener:
        work = BulkWork(asked=asked, reach=call.reach, lake=call.lake, progress=listener.address)
        parts = session.range(0, len(asked.parts), 1, len(asked.parts))
        rows = parts.mapInArrow(partial(fold_shards, work), ANSWERS).collect()
    answers = [bytes(row.answer) for row in rows]
    if len(answers) != len(asked.parts):
        raise Unavailable(f"of {len(asked.parts)} shards {len(answers)} answered")
    return {"answers": answers}
