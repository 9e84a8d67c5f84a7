import pytest

from noetl.engine.worker.compiled_step import CompiledSteps, compile_step
from noetl.errors import NotFound, PlaybookInvalid, TemplateFailed
from noetl.language.playbook.model import Playbook, Step, Task


def playbook(*tasks: Task, digest: str = "d", **workbook: Task) -> Playbook:
    steps = {"s": Step(name="s", tasks=tasks)}
    return Playbook(name="p", path="demo/p", metadata={}, steps=steps, entry="s", digest=digest, workbook=workbook)


NOOP = Task(name="n", kind="noop")


def test_a_step_is_compiled_once_per_version_of_its_playbook() -> None:
    steps = CompiledSteps()
    first = steps.get(playbook(NOOP), "s")
    assert steps.get(playbook(NOOP), "s") is first
    assert steps.get(playbook(NOOP, digest="e"), "s") is not first


def test_the_step_not_asked_for_longest_is_dropped_first() -> None:
    steps = CompiledSteps(limit=2)
    kept = steps.get(playbook(NOOP, digest="a"), "s")
    dropped = steps.get(playbook(NOOP, digest="b"), "s")
    assert steps.get(playbook(NOOP, digest="a"), "s") is kept
    steps.get(playbook(NOOP, digest="c"), "s")
    assert steps.get(playbook(NOOP, digest="a"), "s") is kept
    assert steps.get(playbook(NOOP, digest="b"), "s") is not dropped


def test_what_cannot_be_compiled_is_named() -> None:
    with pytest.raises(NotFound, match="no step 'x'"):
        compile_step(playbook(NOOP), "x")
    with pytest.raises(TemplateFailed, match=r"^playbook demo/p, step s, task t, field url: "):
        compile_step(playbook(Task(name="t", kind="http", options={"url": "{{ "})), "s")


def test_a_workbook_task_that_is_not_there_or_leads_to_itself_is_refused() -> None:
    caller = Task(name="t", kind="workbook", options={"name": "a"})
    with pytest.raises(PlaybookInvalid, match="the workbook has no task 'a'"):
        compile_step(playbook(caller, b=NOOP), "s")
    with pytest.raises(PlaybookInvalid, match="leads back to itself"):
        compile_step(playbook(caller, a=Task(name="a", kind="workbook", options={"name": "a"})), "s")


def test_a_workbook_task_can_stand_for_another() -> None:
    between = Task(name="a", kind="workbook", options={"name": "b"}, input={"x": 1, "y": 1}, auth="one")
    last = Task(name="b", kind="python", options={"code": "c"}, input={"x": 0, "z": 0})
    caller = Task(name="t", kind="workbook", options={"name": "a"}, input={"y": 2}, timeout=3)
    task = compile_step(playbook(caller, a=between, b=last), "s").tasks[0]
    assert (task.name, task.kind, task.source.input) == ("t", "python", {"x": 1, "y": 2, "z": 0})
    assert (task.source.auth, task.source.timeout) == ("one", 3)
