"""Under which execution an event of alerts stands: the run that caused it, as long as its month is sure to be kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from noetl.model.ids import ROOT_ID_LIMIT, organization_root_id, snowflake_at
from noetl.model.stream import Scope

_AGE: Final = timedelta(days=7)


def home_of(scope: Scope, execution_id: int | None) -> int:
    """Return the run itself if it is young, else the organization's own id.

    The month of an old run may be archived and dropped, and must not come back with an event that ends nothing.
    """
    if execution_id is not None and (
        execution_id < ROOT_ID_LIMIT or execution_id >= snowflake_at(datetime.now(UTC) - _AGE)
    ):
        return execution_id
    return organization_root_id(scope.tenant_id, scope.organization_id)
