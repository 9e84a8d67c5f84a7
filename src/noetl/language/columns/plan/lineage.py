"""The lineage of a Spark plan: its JSON and the aliases of the inputs go in, where each column comes from comes out.

Inputs are known by a mark that whoever read them put around them. Code that Spark cannot look into, and operators that
are not known here, make what comes out of them opaque; nothing is ever left out in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl.language.columns.origins import NOTHING, Origins, rows_of
from noetl.language.columns.plan.operators import Operators
from noetl.language.columns.plan.tree import read_plan
from noetl.model.lineage import Lineage, lineage_of, opaque

MARK: Final = "__noetl_input_"
"""Stands before an input's alias in the name of the subquery that is the input."""


def plan_lineage(text: str, inputs: Sequence[str], columns: Sequence[str], *, from_code: bool = True) -> Lineage:
    """Return the lineage of an analysed plan, as `toJSON` writes it, whose answer has these columns.

    Rows that are in the plan itself may be made of anything when code built it (`from_code`); of SQL they are constants.
    """
    try:
        root = read_plan(text)
        here: Origins = (rows_of(inputs, "opaque") or {(None, None): "opaque"}) if from_code else NOTHING
        seen = Operators(MARK, inputs, here).walk(root, {})
    except (ValueError, KeyError, TypeError, IndexError) as problem:
        return opaque("opaque", columns, inputs, f"the plan cannot be followed: {type(problem).__name__}: {problem}")
    except RecursionError:
        return opaque("opaque", columns, inputs, "the plan is nested too deeply to be followed")
    if len(seen.out) != len(columns):
        told = f"the plan has {len(seen.out)} columns by its tree, and {len(columns)} in truth"
        return opaque("opaque", columns, inputs, told)
    named = {column: seen.values[number] for column, (number, _) in zip(columns, seen.out, strict=True)}
    return lineage_of("plan", named, seen.indirect)
