"""Playbooks in files: a file goes in, a checked playbook comes out, or one error with everything that is wrong in it."""

from __future__ import annotations

from pathlib import Path

from noetl.errors import InputError
from noetl.execute.tools.registry import known_kinds
from noetl.playbook.checked import CheckedPlaybook


def read_playbook(file: Path) -> CheckedPlaybook:
    """Read and check a playbook for the kinds of tasks that this installation has tools for; nothing is started."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{file} is not UTF-8 text: byte {problem.start} cannot be decoded") from None
    return CheckedPlaybook(text, str(file), known_kinds(), errors_only=True)
