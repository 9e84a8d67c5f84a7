"""The part of the whole story that is about queries: answered, refused and failed ones, and who may read a dataset."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Append, Transition
from noetl.testing.samples.executions import IDS
from noetl.testing.samples.pipelines import Piped, named


def some_queries(dag: Piped) -> list[Transition]:
    """Queries of each outcome, one of them without a token, and readers that are set, changed and taken away."""
    asked = {"asked_by": "token/7", "engine": "duckdb", "sql_sha256": "ab" * 32, "milliseconds": 12}
    whose = {"token_id": named("token").upper(), "user_id": named("ann")}
    read = [{"name": "orders", "dataset_uuid": dag.dataset, "dataset_version": dag.dataset_version}]
    answered = {**asked, **whose, "mark": "m1.AAAA", "rows": 3, "bytes": 1 << 40, "milliseconds": 0.1234565}
    return [
        queried(dag, "query.answered", answered, context={"datasets": read}),
        queried(dag, "query.refused", {**asked, "code": "function"}),
        queried(
            dag, "query.failed", {**asked, "engine": "spark", "code": "query_timed_out"}, context={"datasets": read}
        ),
        readers(dag, dag.dataset, ["analysts", "auditors"], ["analysts", "analysts", "ü"]),
        readers(dag, named("raw").upper(), ["nobody"], []),
    ]


def queried(dag: Piped, kind: str, meta: dict[str, Any], **fields: Any) -> Transition:
    """Say how a query came out, and that this was all."""
    own = Piped(dag.scope, IDS.mint())
    name = f"query/{own.execution_id}"
    drafts = [
        own.event(name, kind, meta, node_name=None, **fields),
        own.event(name, "execution.completed", {}, node_name=None),
    ]
    return Transition((Append(drafts[0].stream, drafts),))


def readers(dag: Piped, dataset: str, *each: list[str]) -> Transition:
    """Set the roles of a dataset, one after another."""
    drafts = [
        dag.event(
            f"readers/{dataset.lower()}", "query.readers_set",
            {"dataset_uuid": dataset, "roles": roles, "set_by": "ann"}, node_name=None,
        )
        for roles in each
    ]  # fmt: skip
    return Transition((Append(drafts[0].stream, drafts),))
