"""`noetl events`, `noetl replay` and `noetl verify` on a real database, as a user types them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import pytest

from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.config import load_settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import Run, framed_run

pytestmark = pytest.mark.service

SCOPE = Scope("default", "default")
DRAFTS = Drafts(SCOPE, SnowflakeGenerator(26, lambda: time.time_ns() // 1_000_000).mint)

Noetl = Callable[..., tuple[int, str, str]]
T = TypeVar("T")


def admin(owner_url: str) -> str:
    return owner_url.replace("noetl_owner", "noetl_admin")


def using(work: Callable[[Runtime], Awaitable[T]]) -> T:
    """Do something with the runtime the commands use."""

    async def body() -> T:
        async with open_runtime(load_settings()) as runtime:
            return await work(runtime)

    return asyncio.run(body())


@pytest.fixture
def told(noetl: Noetl) -> Run:
    async def record(runtime: Runtime) -> Run:
        run = await framed_run(runtime.ledger, DRAFTS)
        await runtime.projector().run_until(await runtime.ledger.head())
        return run

    return using(record)


def test_events_are_printed_in_order_as_a_table(noetl: Noetl, told: Run) -> None:
    code, out, _ = noetl("events", "last")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["POSITION", "TIME", "TYPE", "STEP", "STATUS", "DETAIL"]
    assert [line.split()[3] for line in lines[1:]] == [draft.event_type for draft in told.drafts]
    assert [int(line.split()[0]) for line in lines[1:]] == list(told.positions)


def test_events_are_printed_as_lines_of_json(noetl: Noetl, told: Run) -> None:
    code, out, _ = noetl("events", str(told.execution_id), "--json")
    assert code == 0
    assert [json.loads(line)["event_id"] for line in out.splitlines()] == [str(d.event_id) for d in told.drafts]


def test_events_are_chosen_by_type_position_and_number(noetl: Noetl, told: Run) -> None:
    chosen = ("--type", "frame.committed", "--from-position", str(told.positions[9]), "--limit", "1", "--json")
    _, out, _ = noetl("events", f"noetl://tenant/default/org/default/execution/{told.execution_id}", *chosen)
    (event,) = map(json.loads, out.splitlines())
    assert (event["event_type"], event["position"] >= told.positions[9]) == ("frame.committed", True)


def test_following_ends_with_the_execution(noetl: Noetl) -> None:
    begun = using(lambda runtime: framed_run(runtime.ledger, DRAFTS, 1, ended=False))
    command = [sys.executable, "-m", "noetl", "events", str(begun.execution_id), "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ.copy(), text=True) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline()) for _ in begun.drafts]

        async def end(runtime: Runtime) -> None:
            for kind in ("workflow.initialized", "playbook.completed"):
                draft = DRAFTS.execution(begun.execution_id, kind)
                await runtime.ledger.append(draft.stream, [draft])

        using(end)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [event["event_type"] for event in seen] == [draft.event_type for draft in begun.drafts]
    assert json.loads(rest.splitlines()[-1])["event_type"] == "playbook.completed"


def test_following_what_has_ended_ends_at_once(noetl: Noetl, told: Run) -> None:
    code, out, _ = noetl("events", "last", "--follow", "--json")
    assert (code, len(out.splitlines())) == (0, len(told.drafts))


def test_a_replay_prints_checksums_and_fields(noetl: Noetl, told: Run) -> None:
    code, out, _ = noetl("replay", "last")
    assert code == 0
    assert f"execution {told.execution_id} at position {told.positions[-1]}: {len(told.drafts)} events folded" in out
    assert "COMPLETED" in out


def test_a_replay_as_of_any_point_is_that_prefix(noetl: Noetl, told: Run) -> None:
    draft, position = told.drafts[5], told.positions[5]
    points = (
        ["--as-of-position", "6"],
        ["--as-of-event", str(draft.event_id)],
        ["--as-of", str(position)],
        ["--as-of", str(draft.event_id)],
    )
    found = [json.loads(noetl("replay", "last", "--json", "--projection", "all", *point)[1]) for point in points]
    assert {state["position"] for state in found} == {position}
    assert len({state["checksum"] for state in found}) == 1
    assert found[0]["rows"]["execution"][0]["row"]["last_event_id"] == str(draft.event_id)
    assert [state.get("event_number") for state in found] == [6, None, None, None]


def test_a_position_counts_within_the_execution_on_a_used_ledger(noetl: Noetl, told: Run) -> None:
    async def use(runtime: Runtime) -> list[Run]:
        return [await framed_run(runtime.ledger, DRAFTS) for _ in range(40)]

    runs = using(use)  # more than there are shards, so that some begin behind others
    last = next(run for run in reversed(runs) if run.positions[0] > 10)
    code, out, _ = noetl("replay", str(last.execution_id), "--as-of-position", "3")
    where = f"at its event number 3 (position {last.positions[2]} of its shard)"
    assert (code, f"execution {last.execution_id} {where}: 3 events folded" in out) == (0, True)
    code, _, errors = noetl("replay", str(last.execution_id), "--as-of-position", str(last.positions[-1]))
    assert (code, f"`noetl replay {last.execution_id} --as-of {last.positions[-1]}`" in errors) == (2, True)


def test_an_organization_is_replayed_as_of_a_mark(noetl: Noetl, told: Run) -> None:
    _, out, _ = noetl("replay", "--organization", "--json")
    state = json.loads(out)
    using(lambda runtime: framed_run(runtime.ledger, DRAFTS))
    _, out, _ = noetl("replay", "--organization", "--as-of", state["mark"], "--json")
    assert json.loads(out) == state


def test_snapshots_shorten_a_replay_and_change_nothing_else(noetl: Noetl, told: Run) -> None:
    using(lambda runtime: runtime.replay.snapshots.take(SCOPE, told.execution_id))
    short = json.loads(noetl("replay", "last", "--json")[1])
    full = json.loads(noetl("replay", "last", "--json", "--no-snapshots")[1])
    assert (short.pop("snapshot"), short.pop("events")) == (told.positions[-1], 0)
    assert (full.pop("snapshot"), full.pop("events")) == (None, len(told.drafts))
    assert short == full


MISTAKES = (
    (["events", "5"], 1, "there is no execution 5 in default/default"),
    (["events", "abc"], 2, "'abc' is no execution"),
    (["events", "noetl://tenant/a/org/b/worker/w"], 2, "not the locator of an execution"),
    (["replay"], 2, "name one execution, or give --organization"),
    (["replay", "5"], 1, "there is no execution 5"),
    (["replay", "last", "--as-of-position", "999999"], 2, "and no event number 999999"),
    (["replay", "last", "--as-of", "999999"], 2, "beyond the head of shard"),
    (["replay", "--organization", "--as-of-position", "1"], 2, "lives in all of them"),
    (["replay", "last", "--as-of-event", "604876797720658689"], 2, "has no event 604876797720658689"),
    (["replay", "last", "--as-of-time", "noon"], 2, "'noon' is no time"),
    (["replay", "last", "--as-of-time", "2026-05-16T12:00:00"], 2, "has no offset"),
    (["replay", "last", "--as-of", "m1.AAAA"], 2, "is not a mark"),
    (["replay", "last", "--as-of", "soon"], 2, "is no point in the history"),
    (["replay", "last", "--as-of-position", "1", "--as-of-time", "2026-05-16T12:00:00Z"], 2, "different points"),
    (["replay", "last", "--projection", "frames"], 2, "there is no projection 'frames'"),
    (["verify", "5"], 1, "there is no execution 5"),
    (["verify", "last", "--all"], 2, "two questions"),
)


def test_mistakes_are_answered_in_one_line(noetl: Noetl, told: Run) -> None:
    for arguments, code, message in MISTAKES:
        found, out, err = noetl(*arguments)
        assert (found, out) == (code, ""), arguments
        assert err.startswith("error: "), arguments
        assert message in err
        assert "Traceback" not in err


def test_last_of_nothing_is_not_found(noetl: Noetl) -> None:
    assert noetl("events", "last")[0] == 1


@pytest.mark.parametrize("what", [[], ["last"], ["--all"], ["--payloads"]])
def test_an_untouched_ledger_verifies_clean(noetl: Noetl, told: Run, what: list[str]) -> None:
    code, out, _ = noetl("verify", *what)
    assert code == 0
    assert out.endswith("Nothing differs.\n")
    report = json.loads(noetl("verify", *what, "--json")[1])
    assert report["clean"] is True
    assert report["reports"][0]["events"] == len(told.drafts)


def test_a_difference_is_printed_and_the_exit_code_is_1(noetl: Noetl, told: Run, owner_url: str) -> None:
    async def damage() -> Any:
        connection = await asyncpg.connect(admin(owner_url))
        await connection.execute(
            "UPDATE noetl.projection SET state = replace(state::text, 'COMPLETED', 'FAILED')::json"
            " WHERE projection = 'execution'"
        )
        await connection.close()

    asyncio.run(damage())
    code, out, _ = noetl("verify")
    assert code == 1
    assert f'execution {told.execution_id}: row.status should be "COMPLETED" and is "FAILED"' in out
    code, out, _ = noetl("verify", "--json")
    assert (code, json.loads(out)["clean"]) == (1, False)


@pytest.mark.parametrize("command", ["events", "replay", "verify"])
def test_every_command_shows_examples(noetl: Noetl, command: str) -> None:
    assert f"noetl {command} last" in noetl(command, "--help")[1]
