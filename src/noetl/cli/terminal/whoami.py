"""Who acts by the command line: nothing goes in, the name that events keep comes out."""

from __future__ import annotations

import getpass
from typing import Final

ROLE: Final = "cli"
"""What this process is, in the names of producers."""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # an account without a name, as in some containers


BY: Final = f"{ROLE}/{_user()}"
"""Who asks for what this process does."""
