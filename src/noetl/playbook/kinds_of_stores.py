"""The kinds of tasks that use stores elsewhere, each with its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.playbook.kinds import SCRIPT, TIMEOUT, Kind
from noetl.playbook.kinds_of_data import sql_fields
from noetl.playbook.shapes import ANYTHING, BINDINGS, Either, Field, ListOf, Template

_SNOWFLAKE, _SNOWFLAKE_ONE = sql_fields("script")

STORE_KINDS: Final[Mapping[str, Kind]] = {
    "snowflake": Kind(
        "Runs SQL statements in Snowflake.",
        {
            **_SNOWFLAKE,
            "script": Field(SCRIPT, "Statements kept elsewhere, run as they are: their address, or where they are and how to get them."),
            "params": Field(Either((ListOf(ANYTHING), BINDINGS, Template())), "Parameters of the statements."),
            "timeout": TIMEOUT,
        },
        (_SNOWFLAKE_ONE,),
    ),
}  # fmt: skip
