"""Where a version keeps Spark's state: one directory each, that driver and executors share, or the view does not start."""

from __future__ import annotations

import shutil
from pathlib import Path

from noetl.errors import ConfigError
from noetl.model.stream import Scope
from noetl.services.views.versions import Version


def checkpoint_of(root: str, master: str, scope: Scope, version: Version) -> str:
    """Return the directory of a version's state; one that executors elsewhere cannot see is refused."""
    own = version.definition
    chosen = own.checkpoint or root
    remote = "://" in chosen and not chosen.startswith("file:")
    if not remote and not master.startswith("local") and not own.shared:
        raise ConfigError(
            f"view {own.name}: the checkpoint {chosen} is a directory of this machine, and Spark runs on {master}",
            hint="name a directory that all of Spark shares under checkpoint.path, and write shared: true beside it",
        )
    return _address(root, scope, version)


def forget_checkpoint(root: str, scope: Scope, version: Version) -> None:
    """Remove the state of a version that nobody runs again; what lies in a store is left to the store's own rules."""
    address = _address(root, scope, version)
    if "://" not in address:
        shutil.rmtree(address, ignore_errors=True)


def _address(root: str, scope: Scope, version: Version) -> str:
    chosen = version.definition.checkpoint or root
    remote = "://" in chosen and not chosen.startswith("file:")
    above = chosen if remote else str(Path(chosen.removeprefix("file://").removeprefix("file:")).absolute())
    return "/".join((above.rstrip("/"), scope.tenant_id, scope.organization_id, version.view, version.version_id))
