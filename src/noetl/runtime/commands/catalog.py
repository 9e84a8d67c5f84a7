"""What `noetl catalog` opens, and playbooks read from files: checked, or one error with every problem."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.engine.catalog.playbooks import Catalog
    from noetl.model.stream import Scope
from pathlib import Path

from noetl.engine.tools.registry import known_kinds
from noetl.errors import InputError
from noetl.language.playbook.checked_playbook import CheckedPlaybook


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Catalog, Scope]]:
    """Give the catalog and the organization the settings name, for the time of the block."""
    from noetl.runtime.assembly.engine import catalog_of
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        yield catalog_of(runtime, "catalog"), runtime.scope


def read_playbook(file: Path) -> CheckedPlaybook:
    """Read and check a playbook for the kinds of tasks that this installation has tools for; nothing is started."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{file} is not UTF-8 text: byte {problem.start} cannot be decoded") from None
    return CheckedPlaybook(text, str(file), known_kinds(), errors_only=True)
