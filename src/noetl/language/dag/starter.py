"""The files of a new DAG project: a name goes in, paths with their texts come out. Nothing is written here."""

from __future__ import annotations

from typing import Final

_DAG: Final = """\
# A small pipeline: rows that are made up, cleaned by SQL, and summed up per region.
#
#   noetl check dag.yaml      looks for mistakes, also in the SQL and Python beside it
#   noetl dag plan dag.yaml   tells what a deploy would build
#   noetl dag run dag.yaml    deploys, activates and runs it to its end
name: {name}

jobs:
  # A job without inputs is a source. This one is started by hand; write source: {{kind: cron, schedule: "0 6 * * *"}}
  # to have it started every morning.
  - name: orders
    function: orders:make_orders

  # Each input is a table under its own name. Only this job and those below are built again when the SQL changes.
  - name: clean_orders
    inputs: [orders]
    sql: |
      SELECT order_id, lower(trim(region)) AS region, amount
      FROM orders
      WHERE amount > 0
    checks:
      - {{kind: unique, columns: order_id}}
      - {{kind: not_null, columns: [order_id, region]}}

  - name: sales_by_region
    inputs: {{o: clean_orders}}
    sql: |
      SELECT region, count(*) AS orders, sum(amount) AS amount
      FROM o
      GROUP BY region
    schema:
      columns: {{region: string, orders: bigint, amount: "decimal(22,2)"}}
    checks:
      - {{kind: row_count, min: 1}}
      - {{kind: range, columns: amount, min: 0, severity: warn}}

# What others read by name: noetl datasets head sales_by_region
publish: [sales_by_region]
"""

_PYTHON: Final = '''\
"""Makes the orders: in a real project, read them from a file, a table or an API."""

from pyspark.sql import DataFrame, SparkSession

ORDERS = [
    (1, " North", "19.90"),
    (2, "south", "5.00"),
    (3, "north ", "42.10"),
    (4, "south", "0.00"),
    (5, "west", "7.50"),
]


def make_orders(spark: SparkSession) -> DataFrame:
    """Return the rows of the job; a job with inputs takes each of them as a DataFrame under its name."""
    rows = spark.createDataFrame(ORDERS, "order_id bigint, region string, amount string")
    return rows.withColumn("amount", rows.amount.cast("decimal(12,2)"))
'''

_README: Final = """\
# {name}

| file | what it is |
|---|---|
| `dag.yaml` | the jobs, what each reads, and what is published |
| `orders.py` | the function behind the job `orders` |

    noetl check dag.yaml
    noetl dag run dag.yaml
    noetl datasets head sales_by_region

Change the SQL of a job, then see what would be built again before it is:

    noetl dag plan dag.yaml
"""


def starter_files(name: str) -> dict[str, str]:
    """Return the files of a small project that runs as it is: `dag.yaml`, a Python file and a few lines to read."""
    return {
        "dag.yaml": _DAG.format(name=name),
        "orders.py": _PYTHON,
        "README.md": _README.format(name=name),
    }
