"""Executions as people see and steer them. Every status here is folded from the ledger, with the position it is as of."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.api.endpoint import ANYONE, READERS, WRITERS, Call, Routes
from noetl.api.listing import Listed, list_executions
from noetl.api.reading import Seen
from noetl.api.routes.execute import Started, started
from noetl.api.wire import Body, Id, Name, Text, View
from noetl.dispatch.why import why
from noetl.errors import NotFound
from noetl.model.event import to_json
from noetl.model.ids import parse_id
from noetl.model.payload_ref import PayloadRef
from noetl.plan.trigger import Doubt
from noetl.replay.pages import reading

routes = Routes("executions")

Limit = Annotated[int, Meta(ge=1, le=1_000)]
Status = Literal["RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
MOST_WAIT_SECONDS = 60.0
