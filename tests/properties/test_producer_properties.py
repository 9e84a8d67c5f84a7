"""Whatever a process is called and wherever it stands, its locator can be read, and says both."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.engine.plan.locality import Place, place_of
from noetl.errors import ConfigError
from noetl.model.locator import Locator, parse_locator
from noetl.runtime.locality import process_locator, remote_name
from noetl.runtime.settings.declaration import Runtime

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
nodes = st.from_regex(r"[A-Za-z0-9:][A-Za-z0-9._:-]{0,20}", fullmatch=True)
places = st.builds(
    Runtime,
    tenant_id=names,
    organization_id=names,
    cluster_id=names,
    node_id=nodes,
    region=st.none() | nodes,
    zone=st.none() | nodes,
)
ROLES = (
    "server",
    "worker",
    "tasks",
    "functions",
    "scheduler",
    "retention",
    "views",
    "sender",
    "replay",
    "executor",
    "cli",
)


@given(places, st.sampled_from(ROLES))
def test_the_locator_of_a_process_is_read_back_and_printed_the_same(own: Runtime, role: str) -> None:
    """INV-158."""
    text = process_locator(own, role)
    told = parse_locator(text)
    assert str(told) == text
    assert told == Locator(
        own.tenant_id, own.organization_id, own.cluster_id, own.region, own.zone, own.node_id, str(os.getpid()),
        kind=role, path=(own.node_id,),
    )  # fmt: skip


@given(places)
def test_the_name_of_a_worker_tells_where_it_is(own: Runtime) -> None:
    """INV-159."""
    placed = Place(own.node_id, own.zone, own.region)
    assert place_of(process_locator(own, "worker")) == placed
    assert place_of(process_locator(own, "tasks")) == placed
    assert place_of(remote_name(own)) == placed
    assert place_of(f"{process_locator(own, 'worker')}/spark/app/tag/lane/0") is None


def test_a_locator_that_no_event_could_carry_is_refused_before_anything_is_written() -> None:
    long = "x" * 128
    own = Runtime(tenant_id=long, organization_id=long, cluster_id=long, node_id=long)
    with pytest.raises(ConfigError, match="events take 512"):
        process_locator(own, "server")
