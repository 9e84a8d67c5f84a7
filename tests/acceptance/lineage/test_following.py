"""`noetl lineage`: what data are made of and what is made of them, now and as it was."""

from __future__ import annotations

import pytest

from noetl.cli.datasets import lineage_show
from noetl.errors import NotFound
from noetl.pipelines.datasets.lineage_tree import HIDDEN, datasets_in, only
from noetl.testing.engines.pipelines import TestedPipelines

from ..pipelines.shop import order, shop
from .conftest import Told, ways

pytestmark = pytest.mark.service

REPORT = """
name: report
jobs:
  - name: shares
    operator: made
    runtime: dispatcher
    inputs: [{from: totals, alias: t}]
    config: {query: SELECT amount / orders AS mean FROM t}
publish: [shares]
"""


async def test_datasets_are_followed_both_ways_across_dags(tested: TestedPipelines, told: Told) -> None:
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    await tested.deploy(REPORT)
    assert ways(await told.tree("shares")) == ["shares", "  totals", "    clean", "      shop.orders.0"]
    assert ways(await told.tree("clean", "downstream")) == ["clean", "  totals", "    shares"]
    assert ways(await told.tree("shares", depth=1)) == ["shares", "  totals …"]


async def test_columns_are_followed_both_ways(tested: TestedPipelines, told: Told) -> None:
    """INV-73."""
    tested.give("orders", order(1, 10))
    await tested.deploy(shop(2))
    await tested.deploy(REPORT)
    assert ways(await told.tree("shares.mean")) == [
        "shares.mean",
        "  totals.amount transformed",
        "    clean.amount aggregated",
        "      shop.orders.0.amount transformed",
        "        - opaque",
        "  totals.orders transformed",
        "    clean aggregated",
        "      shop.orders.0",
    ]
    assert ways(await told.tree("totals.factor")) == [
        "totals.factor",
        "  clean.factor aggregated",
        "    - constant",
    ]
    assert ways(await told.tree("shop.orders.0.amount", "downstream")) == [
        "shop.orders.0.amount",
        "  clean.amount transformed",
        "    totals.amount aggregated",
        "      shares.mean transformed",
        "    totals.orders aggregated",
        "      shares.mean transformed",
    ]


async def test_lineage_is_as_it_was_at_any_point(tested: TestedPipelines, told: Told) -> None:
    """INV-75."""
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    before = await told.mark()
    later = shop().replace("day, amount * 1 AS amount", "day, CAST(day AS BIGINT) + amount AS amount")
    await tested.deploy(later)
    after = await told.mark()
    first, second = await told.tree("clean.amount", mark=before), await told.tree("clean.amount", mark=after)
    assert ways(first)[1:] == ["  shop.orders.0.amount transformed", "    - opaque"]
    assert ways(second)[1:] == [
        "  shop.orders.0.amount transformed",
        "    - opaque",
        "  shop.orders.0.day transformed",
        "    - opaque",
    ]
    await tested.rollback("shop")
    assert ways(await told.tree("clean.amount")) == ways(first)
    assert ways(await told.tree("clean.amount", mark=after)) == ways(second)


async def test_before_its_first_version_serves_a_dataset_is_made_of_nothing(
    tested: TestedPipelines, told: Told
) -> None:
    """INV-75."""
    before = await told.mark()
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    dataset = (await tested.view("totals")).dataset.dataset_uuid
    assert ways(await told.tree(dataset, mark=before)) == ["totals"]


async def test_a_column_that_is_not_there_is_named_with_one_that_is(tested: TestedPipelines, told: Told) -> None:
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    with pytest.raises(NotFound, match="no column amout") as told_of:
        await told.tree("totals.amout")
    assert told_of.value.hint == "did you mean amount?"
    with pytest.raises(NotFound, match=r"no dataset nothing\.amount"):
        await told.tree("nothing.amount")


async def test_a_tree_is_printed_and_drawn(tested: TestedPipelines, told: Told) -> None:
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    tree = await told.tree("totals.amount")
    assert lineage_show.text(tree) == (
        "totals.amount made by shop.totals [sql]\n"
        "└─ clean.amount (aggregated) made by shop.clean [sql]\n"
        "   └─ shop.orders.0.amount (transformed) made by shop.orders [opaque: the operator made does not tell]\n"
        "      └─ outside (opaque)\n"
    )
    assert lineage_show.mermaid(tree, "upstream").splitlines() == [
        "flowchart LR",
        '    n0["totals.amount"]',
        '    n1["clean.amount"]',
        '    n2["shop.orders.0.amount"]',
        '    n3["outside"]',
        "    n1 -->|aggregated| n0",
        "    n2 -->|transformed| n1",
        "    n3 -->|opaque| n2",
    ]


async def test_datasets_that_may_not_be_read_are_not_even_named(tested: TestedPipelines, told: Told) -> None:
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    tree = await told.tree("totals.amount")
    own = (await tested.view("totals")).dataset.dataset_uuid
    assert len(datasets_in(tree)) == 3
    assert ways(only(tree, {own})) == ["totals.amount", f"  {HIDDEN} aggregated"]
