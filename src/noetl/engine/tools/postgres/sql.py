"""Finds the SQL of a call: its `command`, or the text of the `script` it names, comes out as statements."""

from __future__ import annotations

from noetl.engine.tools.outcome import refusal
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.problems import ScriptUnread
from noetl.engine.tools.postgres.statements import read_command
from noetl.engine.tools.programs.source import load_script
from noetl.engine.tools.sql_split import Statement
from noetl.errors import NoetlError


async def statements_of(call: Call, loaded: dict[str, str] | None = None) -> tuple[Statement, ...]:
    """Return the statements of a call; a script in `loaded`, by its address, is not fetched again."""
    script = call.options.get("script")
    if script is None:
        return read_command(call.options.get("command"))
    texts, address = {} if loaded is None else loaded, repr(script)
    if address not in texts:
        try:
            texts[address] = await load_script(script, call)
        except NoetlError as error:
            problem = refusal(error, call.kind).error
            assert problem is not None
            raise ScriptUnread(problem) from None
    return read_command(texts[address], "script")
