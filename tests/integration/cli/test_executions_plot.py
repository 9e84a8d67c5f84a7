"""A run as a picture: what is laid out is what the events say, and the same events give the same picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.integration.spark.event_lake.facts.made_events import RUN, made_events

from noetl.cli.executions.plot import draw
from noetl.cli.executions.timeline import Timeline, Watching
from noetl.model.event import Event

Noetl = Callable[..., tuple[int, str, str]]
DAG = "name: shop\njobs: [{name: orders, operator: noop, runtime: dispatcher}]\n"
PNG = b"\x89PNG\r\n\x1a\n"


def timeline_of(events: list[Event]) -> Timeline:
    watching = Watching(RUN)
    for event in events:
        watching.add(event)
    found = watching.timeline()
    assert found is not None
    return found


def run_events(*, frames: bool = True) -> list[Event]:
    return [one for one in made_events() if one.execution_id == RUN and (frames or one.frame_id is None)]


def test_frames_are_laid_out_by_stage_and_worker_with_every_attempt() -> None:
    found = timeline_of(run_events())

    assert (found.what, found.title) == ("frames", f"etl/load · {RUN} · CANCELLED")
    assert [(lane.step, lane.worker) for lane in found.lanes] == [("load", "w1"), ("load", "w2")]
    told = [(span.attempt, span.rows, span.outcome) for span in found.spans]
    assert told == [(1, 10, "lost"), (2, 10, "failed"), (3, 10, "done with failed rows")]
    assert found.spans[0].ended is not None
    assert (found.spans[0].ended - found.spans[0].began).total_seconds() == 3


def test_an_execution_without_frames_is_laid_out_by_its_commands() -> None:
    found = timeline_of(run_events(frames=False))

    assert found.what == "commands"
    assert Counter(span.outcome for span in found.spans) == {"lost": 1, "done": 1, "stopped": 1}
    assert {lane.step for lane in found.lanes} == {"load", "wait"}


def test_what_overlaps_gets_lanes_of_its_own_and_what_is_open_still_runs() -> None:
    events = [one for one in run_events() if one.event_type in ("execution.requested", "frame.dispatched")]
    begun = [one for one in events if one.event_type == "frame.dispatched"][-1:]
    twins = [msgspec.structs.replace(begun[0], frame_id=number) for number in (1, 2, 3)]

    found = timeline_of([events[0], *twins])

    assert [len(lane.spans) for lane in found.lanes] == [1, 1, 1]
    assert {span.outcome for span in found.spans} == {"running"}


@pytest.mark.parametrize("step", ["load", "läd<e> & $x_1$ 図"])
def test_the_same_events_give_the_same_picture_with_everything_written_on_it(tmp_path: Path, step: str) -> None:
    found = timeline_of(run_events())
    for lane in found.lanes:
        lane.step = step
    files = [tmp_path / name for name in ("a.svg", "b.svg", "a.png", "b.png")]
    for file in files:
        draw(found, file)

    one, other, picture, again = (file.read_bytes() for file in files)
    assert one == other
    assert picture == again
    assert picture.startswith(PNG)
    texts = {text.strip() for text in ET.fromstring(one).itertext() if text.strip()}
    assert {f"{step} · w1", "w2", "10 #3", "1 lost", "1 failed", "1 done with failed rows"} <= texts
    assert found.title in texts


def test_a_run_of_many_frames_is_drawn_quickly_and_small(tmp_path: Path) -> None:
    found = timeline_of(run_events())
    for lane in found.lanes:
        lane.spans = lane.spans * 3000

    draw(found, tmp_path / "many.png")

    assert (tmp_path / "many.png").stat().st_size < 500_000


@pytest.mark.service
def test_the_command_draws_a_run_and_says_what_is_in_the_picture(noetl: Noetl, tmp_path: Path) -> None:
    assert noetl("executions", "plot", "last")[0] != 0, "there is none yet"
    run = json.loads(noetl("run", "hello.yaml", "--json")[1])["execution_id"]
    code, told, _ = noetl("executions", "plot", run, "--json")
    facts = json.loads(told)
    assert (code, facts["execution_id"], facts["shown"]) == (0, run, "frames")
    assert facts["files"] == [f"execution-{run}.png", f"execution-{run}.svg"]
    assert (tmp_path / f"execution-{run}.png").read_bytes().startswith(PNG)
    code, _, problem = noetl("executions", "plot", run, "-o", "run.pdf")
    assert code == 2
    assert "neither in .png nor in .svg" in problem
    code, _, problem = noetl("executions", "plot", run, "-o", "nowhere/run.svg")
    assert code != 0
    assert "nowhere/run.svg cannot be written" in problem
    # The deploy of a DAG is an execution as well, and a newer one, but there is nothing of it to draw.
    (tmp_path / "dag.yaml").write_text(DAG)
    deploy = json.loads(noetl("dag", "deploy", "dag.yaml", "--json")[1])["execution_id"]
    assert int(deploy) > int(run)
    assert json.loads(noetl("executions", "plot", "last", "--json")[1])["execution_id"] == run
    assert "plot the executions of its playbooks" in noetl("executions", "plot", deploy)[2]
