"""Loops over a table of the user's: rows are claimed, worked off in frames, and neither lost nor worked off twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import asyncpg
import pytest

from noetl.engine.dispatch.local import LocalDispatch
from noetl.engine.tools.postgres.target import DEFAULT_POOL, Target
from noetl.engine.worker.slot import Slot
from noetl.runtime.assembly.engine import open_worker
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.engines.short_leases import until

CLAIM = """
          UPDATE job SET status = 'claimed' WHERE id IN (
            SELECT id FROM job WHERE status = 'pending' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT {{ __frame_max_rows }})
          RETURNING id, doc;
"""

SEEN = """      - {name: seen, kind: postgres, auth: pg_local, params: ['{{ iter.job.id }}'],
         command: "INSERT INTO seen VALUES ($1)"}
"""
"""A task before the last one, which tells that a row was worked on while what it leaves to the end is not done yet."""


def draining(frame: str, slots: int = 3) -> str:
    """Return a playbook that drains the table `job`."""
    return playbook(
        "workload: {size: 20}\nworkflow:\n  - step: drain\n    loop:\n      cursor:\n        kind: postgres\n"
        f"        auth: pg_local\n        claim: |{CLAIM}      iterator: job\n"
        f"      spec: {{mode: cursor, max_in_flight: {slots}, frame: {frame}}}\n"
        "    tool:\n"
        "      - {name: work, kind: python, input: {doc: '{{ iter.job.doc }}'}, code: 'result = doc[\"id\"] + \"!\"'}\n"
        "      - {name: save, kind: postgres, auth: pg_local, params: ['{{ iter.job.id }}', '{{ work }}'],\n"
        '         command: "INSERT INTO done VALUES ($1, $2)"}\n'
    )


def seeing(frame: str) -> str:
    """Return a playbook that drains the table `job` one frame at a time and notes its rows in `seen` at once."""
    head, save = draining(frame, slots=1).split("      - {name: save")
    return f"{head}{SEEN}      - {{name: save{save}".replace("{{ work }}", "{{ results.work }}")


async def fill(database: asyncpg.Connection, rows: int) -> None:
    """Make the tables and so many jobs."""
    await database.execute(
        "CREATE TABLE job (id int PRIMARY KEY, status text DEFAULT 'pending', doc jsonb);"
        " CREATE TABLE done (id int, said text)"
    )
    await database.execute(
        """INSERT INTO job (id, doc) SELECT n, jsonb_build_object('id', lpad(n::text, 4, '0')) FROM generate_series(1, $1) n""",
        rows,
    )


async def all_done_once(database: asyncpg.Connection, rows: int) -> bool:
    """Tell whether every job was worked off exactly once."""
    done = await database.fetch("SELECT id, said FROM done ORDER BY id")
    return [tuple(row) for row in done] == [(n, f"{n:04d}!") for n in range(1, rows + 1)]


async def test_a_table_is_drained_in_frames_of_the_size_the_workload_says(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    await fill(user_database, 110)
    state = await playbooks.run(draining("{max_rows: '{{ size }}', row_concurrency: 4}"))

    assert state.status == "COMPLETED", state.error
    data = state.results["drain"].data
    assert (data["total"], data["completed"], data["failed"]) == (110, 110, 0)
    assert await all_done_once(user_database, 110)
    events = Counter(event["event_type"] for event in await playbooks.events(state.execution_id))
    assert events["frame.dispatched"] == events["frame.committed"] == data["frames"]
    assert data["frames"] == 6
    worker = await playbooks.worker()
    assert worker.claims == 6


async def test_claimed_rows_that_a_frame_has_no_time_for_go_on_in_another(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    await fill(user_database, 40)
    state = await playbooks.run(draining("{max_rows: 40, max_seconds: 0.02}", slots=1))

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 40)
    data = state.results["drain"].data
    assert (data["total"], data["completed"]) == (40, 40)
    assert data["frames"] > 1
    worker = await playbooks.worker()
    assert worker.claims == 1, "rows were claimed again"


async def test_a_commit_per_frame_keeps_what_is_good(playbooks: Playbooks, user_database: asyncpg.Connection) -> None:
    await fill(user_database, 30)
    await user_database.execute("ALTER TABLE done ADD CHECK (id <> 7)")
    state = await playbooks.run(draining("{max_rows: 10, commit: frame}"))

    assert state.status == "FAILED"
    assert (state.error or "").startswith("1 of 30 rows failed; first: row ")
    assert (state.error or "").endswith(': new row for relation "done" violates check constraint "done_id_check"')
    done = await user_database.fetch("SELECT id FROM done ORDER BY id")
    assert [row["id"] for row in done] == [n for n in range(1, 31) if n != 7]


async def test_a_frame_that_is_done_does_not_wait_for_a_claim_that_others_hold_up(
    playbooks: Playbooks, user_database: asyncpg.Connection, empty_url: str
) -> None:
    await fill(user_database, 20)
    other = await asyncpg.connect(empty_url)
    text = draining("{max_rows: 10}", slots=1).replace(" FOR UPDATE SKIP LOCKED", "")
    async with other.transaction():
        await other.execute("UPDATE job SET doc = doc WHERE id = 15")
        started = await playbooks.start(text)

        async def first_is_committed() -> bool:
            return bool(await playbooks.events(started.execution_id, "frame.committed"))

        await until(first_is_committed, "the end of the first frame")
        assert await user_database.fetchval("SELECT count(*) FROM done") == 10
    await other.close()
    state = await playbooks.finished(started.execution_id)
    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 20)


async def test_a_heartbeat_that_finds_a_frame_ended_does_not_stop_what_follows(
    playbooks: Playbooks, user_database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(user_database, 30)
    worker, commit = await playbooks.worker(), LocalDispatch.commit_frame

    async def committed_during_a_beat(*args: Any, **options: Any) -> Any:
        following = await commit(*args, **options)
        await worker._heartbeats.beat()
        return following

    monkeypatch.setattr(LocalDispatch, "commit_frame", committed_during_a_beat)
    state = await playbooks.run(draining("{max_rows: 10}", slots=1))

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 30)
    frames = await playbooks.events(state.execution_id, "frame.dispatched", "frame.abandoned", "command.attempt_failed")
    assert [event["event_type"] for event in frames] == ["frame.dispatched"] * 3


async def test_rows_do_not_wait_until_the_end_of_the_frame_before_is_recorded(
    playbooks: Playbooks, user_database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(user_database, 30)
    commit = LocalDispatch.commit_frame

    async def once_the_next_is_worked_on(
        dispatch: LocalDispatch, grant: Any, frame: Any, *args: Any, **options: Any
    ) -> Any:
        async def has_gone_on() -> bool:
            return bool(await user_database.fetchval("SELECT count(*) > 10 FROM done"))

        if frame.frame_index == 0:
            await until(has_gone_on, "a row of the second frame")
        return await commit(dispatch, grant, frame, *args, **options)

    monkeypatch.setattr(LocalDispatch, "commit_frame", once_the_next_is_worked_on)
    state = await playbooks.run(draining("{max_rows: 10}", slots=1))

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 30)
    assert state.results["drain"].data["completed"] == 30


async def test_rows_do_not_wait_for_what_the_frame_before_has_left_to_its_end(
    playbooks: Playbooks, user_database: asyncpg.Connection, empty_url: str
) -> None:
    await fill(user_database, 30)
    await user_database.execute("CREATE TABLE seen (id int)")
    other = await asyncpg.connect(empty_url)

    async def has_gone_on() -> bool:
        return bool(await user_database.fetchval("SELECT count(*) > 10 FROM seen"))

    async with other.transaction():
        await other.execute("LOCK TABLE done IN SHARE MODE")
        started = await playbooks.start(seeing("{max_rows: 10, commit: frame}"))
        await until(has_gone_on, "a row of the second frame")
        assert await playbooks.events(started.execution_id, "frame.committed") == []
    await other.close()
    state = await playbooks.finished(started.execution_id)

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 30)
    assert state.results["drain"].data["completed"] == 30


@pytest.mark.parametrize("commit", ["row", "frame"])
async def test_a_worker_that_stops_hands_a_cursor_back_and_no_row_is_lost_or_done_twice(
    playbooks: Playbooks, user_database: asyncpg.Connection, empty_url: str, commit: str
) -> None:
    """INV-181: rows that were claimed ahead go to whoever takes the slot, and nothing counts as lost."""
    await fill(user_database, 50)
    await user_database.execute("CREATE TABLE seen (id int)")
    other = await asyncpg.connect(empty_url)

    async def is_at_it() -> bool:
        return bool(await user_database.fetchval("SELECT count(*) > 0 FROM seen"))

    async with other.transaction():
        await other.execute("LOCK TABLE done IN SHARE MODE")
        started = await playbooks.start(seeing(f"{{max_rows: 10, max_attempts: 1, commit: {commit}}}"))
        await until(is_at_it, "a row of the first frame")
        await (await playbooks.worker()).stop()
    await playbooks.close()
    await other.close()
    found = Counter(event["event_type"] for event in await playbooks.events(started.execution_id))
    assert (found["command.returned"], found["command.completed"]) == (1, 0)
    assert 1 <= found["frame.committed"] < 5
    async with open_worker(playbooks.runtime, playbooks.engine.dispatch(playbooks.scope), slots=2):
        state = await playbooks.finished(started.execution_id)

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 50)
    found = Counter(event["event_type"] for event in await playbooks.events(started.execution_id))
    assert [found[name] for name in ("command.abandoned", "command.attempt_failed", "frame.failed")] == [0, 0, 0]


async def test_what_a_lost_frame_has_left_to_its_end_is_left_to_its_next_owner(
    playbooks: Playbooks, user_database: asyncpg.Connection, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(user_database, 30)
    await user_database.execute("CREATE TABLE seen (id int)")
    other, worker = await asyncpg.connect(empty_url), await playbooks.worker()
    dispatched, frames = LocalDispatch.dispatch_rows, list[tuple[LocalDispatch, Any]]()

    async def kept(dispatch: LocalDispatch, *args: Any, **options: Any) -> Any:
        frame = await dispatched(dispatch, *args, **options)
        frames.append((dispatch, frame))
        return frame

    async def has_gone_on() -> bool:
        return bool(await user_database.fetchval("SELECT count(*) > 10 FROM seen"))

    monkeypatch.setattr(LocalDispatch, "dispatch_rows", kept)
    async with other.transaction():
        await other.execute("LOCK TABLE done IN SHARE MODE")
        started = await playbooks.start(seeing("{max_rows: 10, commit: frame}"))
        await until(has_gone_on, "a row of the second frame")
        dispatch, first = frames[0]
        await dispatch.fail_frame(first, {"message": "lost"}, max_attempts=3, worker=first.worker)
        await worker._heartbeats.beat()
    await other.close()
    state = await playbooks.finished(started.execution_id)

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 30), "the frame's first owner wrote although it had lost it"
    seen = await user_database.fetch("SELECT id, count(*) AS times FROM seen GROUP BY id ORDER BY id")
    assert [tuple(row) for row in seen] == [(n, 2 if n <= 10 else 1) for n in range(1, 31)]


async def test_a_frame_that_is_lost_before_its_end_is_recorded_is_worked_off_again(
    playbooks: Playbooks, user_database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(user_database, 30)
    commit, fail = LocalDispatch.commit_frame, LocalDispatch.fail_frame

    async def after_it_was_lost(dispatch: LocalDispatch, grant: Any, frame: Any, *args: Any, **options: Any) -> Any:
        if (frame.frame_index, frame.attempt) == (0, 1):
            await fail(dispatch, frame, {"message": "lost"}, max_attempts=3, worker="another")
        return await commit(dispatch, grant, frame, *args, **options)

    monkeypatch.setattr(LocalDispatch, "commit_frame", after_it_was_lost)
    state = await playbooks.run(draining("{max_rows: 10}", slots=1))

    assert state.status == "COMPLETED", state.error
    assert state.results["drain"].data["completed"] == 30
    done = await user_database.fetch("SELECT id, count(*) AS times FROM done GROUP BY id ORDER BY id")
    assert [tuple(row) for row in done] == [(n, 2 if n <= 10 else 1) for n in range(1, 31)]


async def test_what_cannot_be_recorded_fails_the_frame_and_not_the_ones_after_it(
    playbooks: Playbooks, user_database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(user_database, 30)
    stored = Slot._stored_table
    tries = 0

    async def broken(slot: Slot, end: Any) -> Any:
        nonlocal tries
        if end.rows[0].index == 0:
            tries += 1
            raise ValueError("no table can be made of this")
        return await stored(slot, end)

    monkeypatch.setattr(Slot, "_stored_table", broken)
    state = await playbooks.run(draining("{max_rows: 10, max_attempts: 2}", slots=1))

    assert (state.status, tries) == ("FAILED", 2)
    assert (state.error or "").startswith("10 of 30 rows failed")
    assert await user_database.fetchval("SELECT count(DISTINCT id) FROM done") == 30


async def test_a_claim_sees_what_the_frame_before_it_has_set(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    await fill(user_database, 25)
    claim = "SELECT id, doc FROM job WHERE id > {{ ctx.seen | default(0) }} ORDER BY id LIMIT {{ __frame_max_rows }}\n"
    text = draining("{max_rows: 10}", slots=1).replace(CLAIM, f"\n          {claim}")
    text = text.replace('($1, $2)"}', "($1, $2)\", set: {ctx.seen: '{{ iter.job.id }}'}}")
    state = await playbooks.run(text)

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 25)


async def test_rows_that_rows_add_are_worked_off_too(playbooks: Playbooks, user_database: asyncpg.Connection) -> None:
    await fill(user_database, 3)
    await user_database.execute(
        """CREATE FUNCTION followed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.id < 9 THEN
               INSERT INTO job (id, doc) VALUES (NEW.id + 3, jsonb_build_object('id', lpad((NEW.id + 3)::text, 4, '0')));
           END IF; RETURN NEW; END $$;
           CREATE TRIGGER followed AFTER INSERT ON done FOR EACH ROW EXECUTE FUNCTION followed()"""
    )
    state = await playbooks.run(draining("{max_rows: 3, commit: frame}", slots=1))

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 11)


async def test_claims_go_over_as_many_connections_as_the_cursor_says(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    await fill(user_database, 30)
    text = draining("{max_rows: 5}").replace(
        "        auth: pg_local\n", "        auth: pg_local\n        options: {pool_size: 1}\n"
    )
    state = await playbooks.run(text)

    assert state.status == "COMPLETED", state.error
    assert await all_done_once(user_database, 30)
    worker = await playbooks.worker()
    sizes = {part.pool_size for key in worker._services.resources._made for part in key if isinstance(part, Target)}  # type: ignore[attr-defined]
    assert sizes == {1, DEFAULT_POOL}


async def test_a_table_without_rows_is_drained_at_once(playbooks: Playbooks, user_database: asyncpg.Connection) -> None:
    await fill(user_database, 0)
    state = await playbooks.run(draining("{max_rows: 10}"))

    assert state.status == "COMPLETED", state.error
    assert state.results["drain"].data == {"total": 0, "completed": 0, "failed": 0, "frames": 0}


async def test_a_claim_that_makes_no_sense_fails_the_step(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    state = await playbooks.run(draining("{max_rows: 10}"))

    assert state.status == "FAILED"
    assert 'relation "job" does not exist' in (state.error or "")
