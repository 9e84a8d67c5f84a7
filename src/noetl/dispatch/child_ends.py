"""How a child execution ended, for whoever called it: its last state goes in, a result or the words of an error come out."""

from __future__ import annotations

import re
from typing import Final

from noetl.plan.state import Result, State

_LAST_OF_MANY: Final = re.compile(
    r"child execution \d+ ended as [A-Z]+: (?:… )?(?=child execution \d+ ended as [A-Z]+: )"
)
"""What stands before the child that failed by itself, in the error of one that did not."""


def result_of(state: State, return_step: str | None) -> Result:
    """Return what an execution came to: its last step that said something, or the named step."""
    step = return_step if return_step in state.results else state.result_step
    return state.results.get(step or "", Result())


def failure_of(execution_id: int, status: str, error: str | None) -> str:
    """Say that a child did not end well, and why; of many below each other, those between are left out."""
    return f"child execution {execution_id} ended as {status}: {_LAST_OF_MANY.sub('… ', str(error), count=1)}"
