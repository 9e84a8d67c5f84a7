"""The lineage of the TPC-H queries, written as Spark SQL, is what a person found by reading them."""

from __future__ import annotations

import pytest
from tests.unit.language.columns.tpch_files import QUERIES, tables, truth

from noetl.language.columns.sql.lineage import query_lineage

TRUTH = truth()
TABLES = {name: list(columns) for name, columns in tables().items()}


def test_there_is_a_truth_for_every_query() -> None:
    assert len(QUERIES) == 22
    assert QUERIES.keys() == TRUTH.keys()


@pytest.mark.parametrize("name", QUERIES)
def test_the_lineage_of_a_query_is_the_truth(name: str) -> None:
    """INV-73."""
    found = query_lineage(QUERIES[name], TABLES)
    assert (found.how, found.reason) == ("sql", None)
    assert set(found.edges) - TRUTH[name] == set(), "claimed and not true"
    assert TRUTH[name] - set(found.edges) == set(), "true and not claimed"
