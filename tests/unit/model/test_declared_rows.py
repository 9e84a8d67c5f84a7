"""What types declare about rows fits together, and the lists that SQL, ledger and folds take from it are as they must be."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from noetl.errors import Unsupported
from noetl.kernel.ledger.transition import WORK_TYPES, Fence
from noetl.kernel.projections.folds.fold import EVERY_TYPE
from noetl.kernel.projections.folds.open_work import OpenWork
from noetl.kernel.projections.folds.organization.tables import KEYS
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.model.catalogue import EVENT_TYPES, event_type
from noetl.model.catalogue.dispatch import by_type, exactly
from noetl.model.catalogue.rows import (
    APPLIED_BY,
    LEASED,
    WRITTEN_BESIDE,
    applied_by,
    declared_types,
    types_applied_by,
    types_changing,
    types_closing_stages,
    types_ending,
    types_ending_executions,
    types_moving_lease,
    types_of,
    types_opening,
    types_outliving_executions,
    types_overruling_holders,
    types_projected,
    types_steering,
    types_with_rows,
)
from noetl.model.event_type import EventType

every_type = pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.name)


@every_type
def test_a_type_changes_rows_of_known_tables_by_one_function(kind: EventType) -> None:
    assert set(kind.tables) <= {*APPLIED_BY, *WRITTEN_BESIDE}
    for tables in (kind.opens, kind.changes, kind.ends):
        assert len(set(tables)) == len(tables)
    applied_by(kind)


@every_type
def test_an_observed_type_decides_nothing(kind: EventType) -> None:
    if kind.observed:
        assert (kind.tables, kind.once_per, kind.steers) == ((), None, False)


@every_type
def test_only_a_type_that_changes_a_leased_row_may_keep_its_lease(kind: EventType) -> None:
    if kind.keeps_lease:
        assert set(kind.changes) & set(LEASED)
        assert not kind.ends


@every_type
def test_a_type_that_ends_leases_it_does_not_name_overrules_their_holders(kind: EventType) -> None:
    if kind.ends_execution or "stage" in kind.ends:
        assert kind.overrules_holders
    if kind.overrules_holders:
        assert set(kind.ends) & set(LEASED)


def test_rows_of_every_table_have_a_beginning() -> None:
    for table in (*APPLIED_BY, *WRITTEN_BESIDE):
        assert types_opening(table), table


def test_the_users_own_types_are_observed_and_change_no_row() -> None:
    kind = event_type("business.invoice.posted")
    assert kind is not None
    assert (kind.observed, kind.tables, applied_by(kind)) == (True, (), None)


def test_a_type_of_two_functions_is_refused() -> None:
    both = EventType(name="both.done", sentence="Both.", aggregate="both", opens=("task",), ends=("command",))
    with pytest.raises(ValueError, match=r"both\.done changes rows of apply_open_work and apply_pipelines"):
        applied_by(both)


def test_fences_name_the_leases_and_the_jobs_they_belong_to() -> None:
    assert {*get_args(get_type_hints(Fence)["table"])} == {*LEASED, "job"}


def test_folds_have_the_tables_that_functions_write() -> None:
    assert OpenWork().tables().keys() == {table for table, name in APPLIED_BY.items() if name == "apply_open_work"}
    assert KEYS.keys() == {table for table, name in APPLIED_BY.items() if name != "apply_open_work"}


def test_folds_listen_to_the_types_that_say_so() -> None:
    folds = {fold.projection: fold.event_types for fold in built_in_folds()}
    assert folds.pop("execution") is EVERY_TYPE
    assert {name for kind in EVENT_TYPES for name in kind.projections} == {"execution", *folds}
    for projection, types in folds.items():
        assert types == {*types_projected(projection)}, projection


def test_every_type_with_rows_goes_through_one_function() -> None:
    functions = {*APPLIED_BY.values()}
    listed = [name for function in functions for name in types_applied_by(function)]
    assert sorted(listed) == [*types_with_rows()]
    assert {*listed} == WORK_TYPES
    for function in functions:
        of_aggregates = {kind.aggregate for kind in EVENT_TYPES if applied_by(kind) == function}
        parts = [name for aggregate in of_aggregates for name in types_applied_by(function, aggregate)]
        assert sorted(parts) == [*types_applied_by(function)]


def test_who_overtakes_whom_follows_from_the_rows() -> None:
    command, frame, task = ({*types_moving_lease(table)} for table in LEASED)
    assert command >= {f"command.{word}" for word in ("claimed", "abandoned", "attempt_failed", "completed", "failed")}
    assert frame >= {f"frame.{word}" for word in ("dispatched", "abandoned", "attempt_failed", "committed", "failed")}
    assert frame >= {f"loop.shard.{word}" for word in ("enqueued", "abandoned", "attempt_failed", "done", "failed")}
    assert task >= {f"task.{word}" for word in ("claimed", "abandoned", "attempt_failed", "completed", "failed")}
    assert task >= {"task.skipped", "task.cancelled", "task.retried"}
    # Work goes on: nobody who holds the lease may be told that it was lost.
    kept = {"command.issued", "command.started", "frame.checkpointed", "task.created", "task.started"}
    assert kept.isdisjoint(command | frame | task)
    # These name a stage or an execution, not a lease.
    assert {*types_closing_stages(), *types_ending_executions()}.isdisjoint(command | frame | task)
    assert types_closing_stages() == ("stage.closed",)
    assert {*types_overruling_holders()} == {"command.failed", "stage.closed", *types_ending_executions()}


def test_what_belongs_to_a_run_does_not_outlive_it() -> None:
    outliving = {*types_outliving_executions()}
    assert outliving.isdisjoint({*types_of("command"), *types_of("frame"), *types_of("loop"), *types_of("execution")})
    assert outliving >= {*types_of("task"), *types_of("partition"), *types_of("dag"), *types_of("schedule")}


def test_lists_are_sorted_so_that_what_is_made_of_them_does_not_change_by_itself() -> None:
    lists = [
        declared_types(),
        types_with_rows(),
        types_steering(),
        types_changing("task"),
        types_ending("frame"),
        types_outliving_executions(),
    ]
    for one in lists:
        assert [*one] == sorted(one)


def test_rules_must_name_each_type_they_are_for_and_no_other() -> None:
    rules = {"command.claimed": 1, "command.failed": 2}
    assert exactly(rules, rules) is rules
    with pytest.raises(ValueError, match=r"no rule for command\.completed"):
        exactly(rules, [*rules, "command.completed"])
    with pytest.raises(ValueError, match=r"rules for command\.failed"):
        exactly(rules, ["command.claimed"])


def test_a_dispatch_knows_every_declared_type_and_refuses_others() -> None:
    dispatch = by_type({"command.claimed": 1}, ["command.claimed"])
    assert dispatch["command.claimed"] == 1
    assert {name for name in declared_types() if dispatch[name] is not None} == {"command.claimed"}
    assert dispatch["business.invoice.posted"] is None
    with pytest.raises(Unsupported, match=r"command\.guessed"):
        dispatch["command.guessed"]


@every_type
def test_what_is_said_of_attempts_is_said_of_leased_work(kind: EventType) -> None:
    if kind.attempt is not None:
        assert len(set(LEASED) & set(kind.tables)) == 1
        assert not kind.keeps_lease


def test_whatever_moves_a_lease_says_what_became_of_the_attempt() -> None:
    moving = {name for table in LEASED for name in types_moving_lease(table)}
    saying = {kind.name for kind in EVENT_TYPES if kind.attempt is not None}
    # It is made available again, after all attempts have ended.
    assert moving - saying == {"task.retried"}
    assert saying <= moving
