"""The `script` kind: the address of a program goes in, what running it came to comes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from noetl.engine.tools.outcome import Outcome, failed, refusal
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.shell import ShellTool
from noetl.engine.tools.programs.source import load_script, read_spec
from noetl.engine.tools.python.tool import PythonTool
from noetl.errors import InputError, NoetlError


class ScriptTool:
    """Loads a program and runs it as its name ends: `.py` as the python tool does, `.sh` as the shell tool does.

    With `job`, it runs in a container of its own, as the container tool does.
    """

    kind: ClassVar[str] = "script"

    def __init__(self, **python_settings: Any) -> None:
        self._python = PythonTool(**python_settings)
        self._shell = ShellTool()

    async def run(self, call: Call) -> Outcome:
        """Load and run the script of one call."""
        job = call.options.get("job")
        if job is not None:
            if not isinstance(job, Mapping):
                return failed("schema", "job is a mapping with an image", source=self.kind)
            from noetl.engine.tools.container.tool import run_container

            return await run_container(call, {"runtime": "kubernetes", **job})
        rest = {name: value for name, value in call.options.items() if name not in ("script", "job")}
        try:
            uri, _, _ = read_spec(call.options.get("script"))
            suffix = PurePosixPath(urlsplit(uri).path).suffix
            if suffix not in (".py", ".sh"):
                raise InputError(f"script.uri: {uri} ends neither in .py nor in .sh, so how to run it is not known")
            text = await load_script(call.options["script"], call)
        except NoetlError as error:
            return refusal(error, self.kind)
        if suffix == ".py":
            return await self._python.run(msgspec.structs.replace(call, kind="python", options={**rest, "code": text}))
        return await self._shell.run(msgspec.structs.replace(call, kind="shell", options={**rest, "command": text}))
