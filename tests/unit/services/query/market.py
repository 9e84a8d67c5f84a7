"""A small market after TPC-H: eight tables whose rows follow from their numbers, as Arrow tables and as files of a lake."""

from __future__ import annotations

import hashlib
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from noetl.model.dataset import Field, FileEntry
from noetl.pipelines.tables.column_types import fields_of

FIRST = date(1993, 1, 1)
SHIP_MODES = ("MAIL", "SHIP", "AIR", "RAIL")
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")


def market() -> dict[str, pa.Table]:
    """Return the tables."""
    items = range(600)
    return {
        "region": pa.table({"r_regionkey": list(range(5)), "r_name": list(REGIONS)}),
        "nation": pa.table(
            {
                "n_nationkey": list(range(25)),
                "n_name": ["BRAZIL" if one == 2 else f"NATION {one}" for one in range(25)],
                "n_regionkey": [one % 5 for one in range(25)],
            }
        ),
        "supplier": pa.table(
            {
                "s_suppkey": list(range(10)),
                "s_name": [f"Supplier#{one}" for one in range(10)],
                "s_nationkey": [one * 7 % 25 for one in range(10)],
            }
        ),
        "part": pa.table(
            {
                "p_partkey": list(range(20)),
                "p_brand": [f"Brand#{40 + one % 6}" for one in range(20)],
                "p_type": ["PROMO BRASS" if one % 3 else "LARGE STEEL" for one in range(20)],
                "p_size": [(15, 49, 14, 23)[one % 4] for one in range(20)],
                "p_retailprice": [100.0 + one for one in range(20)],
            }
        ),
        "partsupp": pa.table(
            {
                "ps_partkey": [one // 2 for one in range(40)],
                "ps_suppkey": [one % 10 for one in range(40)],
                "ps_supplycost": [float(one * 13 % 50 + 1) for one in range(40)],
                "ps_availqty": [one * 3 + 1 for one in range(40)],
            }
        ),
        "customer": pa.table(
            {
                "c_custkey": list(range(30)),
                "c_name": [f"Customer#{one:03}" for one in range(30)],
                "c_nationkey": [one * 7 % 25 for one in range(30)],
                "c_mktsegment": ["BUILDING" if one % 2 else "MACHINERY" for one in range(30)],
                "c_phone": [f"{13 + one % 20}-555-{one:04}" for one in range(30)],
                "c_acctbal": [one * 10.5 - 40 for one in range(30)],
                "c_comment": [None if one % 4 else "special requests" for one in range(30)],
            }
        ),
        "orders": pa.table(
            {
                "o_orderkey": list(range(150)),
                "o_custkey": [one % 25 for one in range(150)],
                "o_orderdate": [FIRST + timedelta(days=one * 11) for one in range(150)],
                "o_totalprice": [float(one * 37 % 900) for one in range(150)],
                "o_orderpriority": [("1-URGENT", "2-HIGH", "3-MEDIUM")[one % 3] for one in range(150)],
                "o_comment": ["very special requests" if one % 5 == 0 else "" for one in range(150)],
            }
        ),
        "lineitem": pa.table(
            {
                "l_orderkey": [one // 4 for one in items],
                "l_partkey": [one % 20 for one in items],
                "l_suppkey": [one % 10 for one in items],
                "l_quantity": [float(one % 50 + 1) for one in items],
                "l_extendedprice": [float(one * 17 % 1000 + 1) for one in items],
                "l_discount": [one % 11 / 100 for one in items],
                "l_returnflag": ["R" if one % 3 == 0 else "N" for one in items],
                "l_linestatus": ["F" if one % 2 else "O" for one in items],
                "l_shipdate": [FIRST + timedelta(days=one * 3) for one in items],
                "l_commitdate": [FIRST + timedelta(days=one * 3 - 2) for one in items],
                "l_receiptdate": [FIRST + timedelta(days=one * 3 + one % 4) for one in items],
                "l_shipmode": [SHIP_MODES[one % 4] for one in items],
            }
        ),
    }


def in_lake(root: Path) -> dict[str, tuple[tuple[Field, ...], FileEntry]]:
    """Write the tables as one file each and return their columns and files."""
    root.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, table in market().items():
        pq.write_table(table, root / f"{name}.parquet")
        data = (root / f"{name}.parquet").read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        entry = FileEntry(path=f"{name}.parquet", bytes=len(data), rows=table.num_rows, sha256=digest)
        found[name] = (fields_of(table.schema), entry)
    return found
