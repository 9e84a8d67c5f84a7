"""The DAG most of these tests use: orders of days, cleaned per day, summed up. Its factor makes versions differ."""

from __future__ import annotations

from typing import Any

from noetl.testing.engines.pipelines import Row


def shop(factor: int = 1, *, orders: str = "", clean: str = "") -> str:
    """Return the DAG; further fields of two of its jobs may be given."""
    return f"""
name: shop
jobs:
  - {{name: orders, operator: made, runtime: dispatcher, partition_by: [day]{orders}}}
  - name: clean
    operator: made
    runtime: dispatcher
    inputs: [orders]
    partition_by: [day]
    config: {{factor: {factor}, query: "SELECT day, amount * {factor} AS amount, {factor} AS factor FROM orders"}}
    {clean}
  - name: totals
    operator: made
    runtime: dispatcher
    inputs: [clean]
    config:
      query: SELECT CAST(sum(amount) AS BIGINT) AS amount, count(*) AS orders, any_value(factor) AS factor FROM clean
publish: [clean, totals]
"""


def order(day: int, amount: int, **further: Any) -> Row:
    """Return one order."""
    return {"day": str(day), "amount": amount, **further}


def total(amount: int, orders: int, factor: int = 1) -> list[Row]:
    """Return the rows of the totals."""
    return [{"amount": amount, "orders": orders, "factor": factor}]
