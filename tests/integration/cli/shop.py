"""A small DAG without Spark, for commands about DAGs, datasets and tasks: a playbook makes the rows."""

from __future__ import annotations

from pathlib import Path

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: rows, path: shop/rows}
workload: {days: 2, extra: 0, flag: null}
workflow:
  - step: make
    tool:
      kind: python
      input: {days: "{{ workload.days }}", extra: "{{ workload.extra }}", flag: "{{ workload.flag }}"}
      code: |
        from pathlib import Path
        if flag and not Path(flag).exists():
            raise ValueError("the shop is closed")
        result = [
            {"day": f"2026-01-0{day + 1}", "order_id": 10 * day + n, "amount": 1.5 * n + (extra if n else 0)}
            for day in range(days)
            for n in range(3)
        ]
"""

DAG = """\
name: shop
jobs:
  - name: orders
    playbook: rows.yaml
    partition_by: [day]
    unique_key: [order_id]
    max_attempts: 1
    config: {workload: WORKLOAD}
    checks:
      - {kind: not_null, columns: [order_id]}
      - {kind: row_count, min: 100, severity: warn}
  - name: copies
    playbook: rows.yaml
    inputs: [orders]
publish: {shop_orders: orders}
"""


def write_shop(directory: Path, workload: str = "{days: 2}") -> None:
    """Write the DAG and its playbook."""
    (directory / "rows.yaml").write_text(PLAYBOOK)
    (directory / "dag.yaml").write_text(DAG.replace("WORKLOAD", workload))
