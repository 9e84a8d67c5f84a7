"""`noetl datasets` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.integration.cli.shop import write_shop

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


@pytest.fixture
def shop(noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noetl:
    """The `noetl` command beside a DAG that serves."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    write_shop(tmp_path)
    code, output, errors = noetl("dag", "run", "dag.yaml")
    assert code == 0, output + errors
    return noetl


def test_a_dataset_is_listed_shown_and_read(shop: Noetl, tmp_path: Path) -> None:
    (listed,) = json.loads(shop("datasets", "list", "--json")[1])
    assert (listed["name"], listed["partitions"], listed["rows"]) == ("shop_orders", 2, 6)
    assert [row.split()[:2] for row in shop("datasets", "list", "--all")[1].splitlines()[1:]] == [
        ["shop.copies.0", "shop.copies"],
        ["shop_orders", "shop.orders"],
    ]
    shown = shop("datasets", "show", "shop_orders")[1]
    assert shown.startswith("shop_orders, output 0 of job orders in DAG shop, partitioned by day\n")
    for words in ("order_id  bigint", "day=2026-01-02  1        3", "current", "row_count           failed (warn)"):
        assert words in shown
    facts = json.loads(shop("datasets", "show", listed["dataset_uuid"], "--json")[1])
    assert [part["partition_key"] for part in facts["partitions"]] == ["day=2026-01-01", "day=2026-01-02"]
    assert {check["label"]: check["passed"] for check in facts["checks"]} == {
        "not_null(order_id)": True,
        "row_count": False,
    }

    code, output, errors = shop("datasets", "head", "shop_orders", "-n", "2", "--where", "day=2026-01-02", "--csv")
    assert (code, output) == (0, "amount,day,order_id\n0.0,2026-01-02,10\n1.5,2026-01-02,11\n")
    assert errors.splitlines()[0] == f"generation {listed['generation'][:8]}, checksum {facts['checksum']}"
    assert shop("datasets", "head", "shop_orders")[1].splitlines()[1].split() == ["0.0", "2026-01-01", "0"]
    rows = json.loads(shop("datasets", "head", "shop_orders", "--json", "--where", "order_id=12")[1])
    assert rows == [{"amount": 3.0, "day": "2026-01-02", "order_id": 12}]

    paths = shop("datasets", "path", "shop_orders")[1].splitlines()
    assert sum(pq.read_metadata(path).num_rows for path in paths) == 6
    code, output, _ = shop("datasets", "export", "shop_orders", "out/orders")
    assert (code, output.startswith("2 files with 6 rows")) == (0, True)
    assert pq.read_table(tmp_path / "out" / "orders" / "part-00001.parquet").num_rows == 3
    assert json.loads((tmp_path / "out" / "orders" / "_dataset.json").read_text())["checksum"] == facts["checksum"]


def test_two_generations_are_compared_before_and_read_after_one_is_activated(shop: Noetl, tmp_path: Path) -> None:
    before = json.loads(shop("datasets", "show", "shop_orders", "--json")[1])
    assert shop("datasets", "diff", "shop_orders")[0] == 2
    write_shop(tmp_path, "{days: 3, extra: 1}")
    assert shop("dag", "deploy", "dag.yaml", "--wait")[0] == 0
    code, output, _ = shop("datasets", "diff", "shop_orders")
    assert code == 0
    assert "rows: 6 -> 9 (rows told apart by order_id)\n  3 added, 0 removed, 4 changed\n" in output
    assert "~ order_id=1  amount: 1.5 -> 2.5\n" in output
    found = json.loads(shop("datasets", "diff", "shop_orders", "--json", "--key", "order_id,day")[1])
    assert (found["from"], found["changed"], found["columns"]) == (before["generation"], 4, {"amount": 4})
    assert shop("datasets", "diff", "shop_orders", "--key", "day")[0] == 2
    whole = json.loads(shop("datasets", "diff", "shop.copies.0", "--json")[1])
    assert (whole["same"], whole["key"]) == (True, [])
    candidate = json.loads(shop("datasets", "show", "shop_orders", "--generation", "candidate", "--json")[1])
    assert (candidate["generation"], candidate["rows"]) == (found["to"], 9)

    assert shop("dag", "activate", "shop")[0] == 0
    assert json.loads(shop("datasets", "show", "shop_orders", "--json")[1])["generation"] == found["to"]
    for point in (["--as-of", before["mark"]], ["--generation", before["generation"][:8]]):
        then = json.loads(shop("datasets", "show", "shop_orders", *point, "--json")[1])
        assert (then["checksum"], then["rows"]) == (before["checksum"], 6)
    _, output, errors = shop("datasets", "head", "shop_orders", "--as-of", before["mark"], "--json")
    assert len(json.loads(output)) == 6
    assert errors.endswith(f"checksum {before['checksum']}\nas of {before['mark']}\n")


def test_mistakes_are_answered_in_one_line(shop: Noetl, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    for arguments, code, message in (
        (["head", "shop_order"], 1, "there is no dataset shop_order\nhint: did you mean shop_orders?"),
        (["head", "shop_orders", "--where", "id"], 2, "'id' is no condition"),
        (["head", "shop_orders", "--json", "--csv"], 2, "two formats"),
        (["head", "shop_orders", "--as-of", "5"], 2, "an organization lives in all of them"),
        (["head", "shop_orders", "--as-of", "2020-01-01T00:00:00Z"], 1, "no version of DAG shop served dataset"),
        (["show", "shop_orders", "--generation", "zz"], 1, "dataset shop_orders has no generation zz"),
        (["export", "shop_orders", "full"], 2, "full is not empty"),
        (["diff", "shop_orders"], 2, "has no candidate to compare the current generation with"),
        (["diff", "shop_orders", "--to", "zz"], 1, "has no generation zz"),
    ):
        found, output, errors = shop("datasets", *arguments)
        assert (found, output) == (code, ""), arguments
        assert errors.startswith("error: ")
        assert message in errors
        assert "Traceback" not in errors


def test_a_file_that_was_changed_is_not_exported(shop: Noetl, tmp_path: Path) -> None:
    path = Path(shop("datasets", "path", "shop_orders")[1].splitlines()[0])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    code, _, errors = shop("datasets", "export", "shop_orders", "out")
    assert (code, "is not what was committed" in errors, (tmp_path / "out").exists()) == (1, True, False)
    path.unlink()
    code, _, errors = shop("datasets", "head", "shop_orders")
    assert (code, "is not in the lake any more" in errors) == (1, True)
