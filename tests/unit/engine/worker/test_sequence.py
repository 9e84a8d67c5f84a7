import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from noetl.engine.catalog.evaluation import Evaluating
from noetl.engine.tools.outcome import Outcome, failed
from noetl.engine.tools.port import Call, Credential, Resources
from noetl.engine.worker.compiled_step import CompiledTask, compile_step
from noetl.engine.worker.sequence import SequenceResult, Tried, run_sequence
from noetl.errors import LeaseLost, NotFound, Unavailable
from noetl.language.playbook.model import Output, Playbook, Policy, Rule, Select, Step, Task, Then
from noetl.language.templates.scopes import Names, names_of
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

Answer = Callable[[Call], Outcome | Awaitable[Outcome]]


class Surroundings:
    """Credentials, payloads and resources for tools that ask for none."""

    async def credential(self, name: str) -> Credential:
        raise NotFound(name)

    async def store(
        self, data: bytes, media_type: str, *, rows: int | None = None, schema_digest: str | None = None
    ) -> PayloadRef:
        raise NotFound(media_type)

    async def fetch(self, ref: PayloadRef) -> bytes:
        raise NotFound(str(ref))

    async def get(self, key: tuple[Any, ...], make: Any) -> Any:
        raise NotFound(str(key))


class Scripted:
    """A tool that answers each call as the test says and remembers the calls."""

    kind: ClassVar[str] = "http"

    def __init__(self, *answers: Outcome | Answer) -> None:
        self.answers = list(answers)
        self.calls: list[Call] = []

    async def run(self, call: Call) -> Outcome:
        self.calls.append(call)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Outcome):
            return answer
        said = answer(call)
        return said if isinstance(said, Outcome) else await said


class Runner:
    """Runs steps with scripted tools and notes every wait."""

    def __init__(self, **tools: Scripted) -> None:
        self.tools = tools
        self.waits: list[float] = []
        self.deferred: list[tuple[CompiledTask, Call]] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    @staticmethod
    def make_call(*, task: CompiledTask, run: int, **fields: Any) -> Call:
        nothing = Surroundings()
        resources: Resources = nothing
        return Call(
            **fields, key=f"{task.name}/{run}", owner=Scope("t", "o"), execution_id=1,
            credentials=nothing, payloads=nothing, resources=resources,
        )  # fmt: skip

    async def __call__(
        self,
        *tasks: Task,
        names: Names | None = None,
        workbook: dict[str, Task] | None = None,
        step: dict[str, Any] | None = None,
        **options: Any,
    ) -> SequenceResult:
        playbook = Playbook(
            name="p", path="demo/p", metadata={}, entry="s", digest="d", workbook=workbook or {},
            steps={"s": Step(name="s", tasks=tasks, is_sequence=True, **(step or {}))},
        )  # fmt: skip
        return await run_sequence(
            compile_step(playbook, "s"),
            names or names_of(execution_id=1, workload={"api": "http://h"}, ctx={"n": 1}),
            tools=self.tools,
            make_call=self.make_call,
            sleep=self.sleep,
            monotonic=time.monotonic,
            beside=lambda evaluate: Evaluating().beside(Scope("t", "o"), evaluate),
            **options,
        )


def rules(*given: tuple[Any, dict[str, Any]]) -> Policy:
    return Policy(rules=tuple(Rule(when=when, then=Then(**then)) for when, then in given))


def http(name: str = "fetch", **fields: Any) -> Task:
    return Task(name=name, kind="http", options={"url": "{{ api }}/x"}, **fields)


ON_ERROR = "{{ output.status == 'error' }}"
LATE = failed("timeout", "too late", retryable=True)


async def test_tasks_run_in_order_and_see_what_came_before() -> None:
    get = Scripted(Outcome(data={"data": {"id": 4}}))
    put = Scripted(Outcome(data={"row_count": 1}))
    save = Task(
        name="save",
        kind="postgres",
        auth="{{ workload.api }}",
        input={"prev": "{{ _prev.data.id }}"},
        options={
            "command": "UPDATE t SET x = {{ fetch.data.id }}{{ results.fetch.data.id }}{{ output.data.data.id }}{{ input.prev }}"
        },
    )
    result = await Runner(http=get, postgres=put)(http(), save)
    assert (result.status, result.data, result.error, result.swallowed, result.tries) == (
        "ok",
        {"row_count": 1},
        None,
        0,
        (),
    )
    assert get.calls[0].options == {"url": "http://h/x"}
    assert put.calls[0].options == {"command": "UPDATE t SET x = 4444"}
    assert (put.calls[0].auth, put.calls[0].input, put.calls[0].key) == ("http://h", {"prev": 4}, "save/1")
    assert result.output["meta"]["attempt"] == 1


async def test_pages_are_walked_by_a_jump_and_a_closing_noop_keeps_the_result() -> None:
    pages = Scripted(*(Outcome(data={"data": {"page": page, "more": page < 3}}) for page in (1, 2, 3)))
    result = await Runner(http=pages)(
        Task(name="init", kind="noop", policy=rules((None, {"do": "continue", "set": {"iter.page": 1}}))),
        Task(
            name="fetch",
            kind="http",
            options={"params": {"page": "{{ iter.page }}", "size": 10}},
            policy=rules((None, {"do": "continue", "set": {"iter.more": "{{ output.data.data.more }}"}})),
        ),
        Task(
            name="more",
            kind="noop",
            policy=rules(
                (
                    "{{ iter.more | string | lower == 'true' }}",
                    {"do": "jump", "to": "fetch", "set": {"iter.page": "{{ (iter.page | int) + 1 }}"}},
                )
            ),
        ),
    )
    assert [call.options for call in pages.calls] == [{"params": {"page": page, "size": 10}} for page in (1, 2, 3)]
    assert [call.key for call in pages.calls] == ["fetch/1", "fetch/2", "fetch/3"]
    assert result.data == {"data": {"page": 3, "more": False}}
    assert result.output["data"] == result.data
    assert result.iter_writes == {"page": 3, "more": False}
    assert result.tries == ()


async def test_a_retry_waits_and_tries_the_same_effect_again() -> None:
    tool = Scripted(LATE, failed("rate_limit", "slow", retry_after=3.0), Outcome(data=1))
    runner = Runner(http=tool)
    result = await runner(
        http(policy=rules((ON_ERROR, {"do": "retry", "attempts": 4, "backoff": "exponential", "delay": 0.5})))
    )
    assert (result.status, result.data, result.swallowed) == ("ok", 1, 0)
    assert runner.waits == [0.5, 3.0]
    assert {call.key for call in tool.calls} == {"fetch/1"}
    assert result.tries == (Tried("fetch", 3, ("timeout", "rate_limit")),)
    assert result.output["meta"]["attempt"] == 3


async def test_tries_come_to_an_end_with_the_last_error() -> None:
    tool = Scripted(LATE)
    result = await Runner(http=tool)(http(policy=rules((ON_ERROR, {"do": "retry", "attempts": 3}))))
    assert (result.status, len(tool.calls)) == ("error", 3)
    assert result.error == LATE.error
    assert result.tries == (Tried("fetch", 3, ("timeout",)),)


async def test_waiting_for_something_ends_with_an_error_when_it_never_comes() -> None:
    tool = Scripted(Outcome(data={"state": "busy"}))
    result = await Runner(http=tool)(
        http(policy=rules(("{{ output.data.state == 'busy' }}", {"do": "retry", "attempts": 2})))
    )
    assert result.error is not None
    assert (result.error.code, result.output["status"]) == ("retries_exhausted", "error")


async def test_an_error_without_a_rule_ends_the_sequence() -> None:
    later = Scripted(Outcome())
    result = await Runner(http=Scripted(LATE), postgres=later)(http(), Task(name="save", kind="postgres"))
    assert (result.status, result.error, later.calls) == ("error", LATE.error, [])
    assert result.output["error"]["kind"] == "timeout"
    assert result.tries == (Tried("fetch", 1, ("timeout",)),)


@pytest.mark.parametrize(("verb", "later"), [("continue", 1), ("break", 0), ("jump", 1)])
async def test_an_error_that_a_rule_lets_pass_is_counted(verb: Any, later: int) -> None:
    after = Scripted(Outcome(data="after"))
    result = await Runner(http=Scripted(LATE), postgres=after)(
        http(policy=rules((ON_ERROR, {"do": verb, "to": "save"}))), Task(name="save", kind="postgres")
    )
    assert (result.status, result.swallowed, len(after.calls)) == ("ok", 1, later)


async def test_a_break_ends_the_sequence_well_and_keeps_what_was_set() -> None:
    result = await Runner(http=Scripted(Outcome(data=5)))(
        http(policy=rules((None, {"do": "break", "set": {"ctx.n": "{{ output.data }}", "found": True}}))), http("never")
    )
    assert (result.status, result.data, result.ctx_writes) == ("ok", 5, {"n": 5, "found": True})


async def test_a_rule_can_fail_what_went_well() -> None:
    result = await Runner(http=Scripted(Outcome(data={"n": 0})))(
        http(policy=rules(("{{ output.data.n == 0 }}", {"do": "fail"})))
    )
    assert result.error is not None
    assert result.error.code == "failed_by_policy"
    assert "step s, task fetch: rule 1 of its policy says fail" in result.error.message


async def test_the_previous_task_can_be_jumped_to() -> None:
    tool = Scripted(Outcome(data=1), Outcome(data=2))
    result = await Runner(http=tool)(
        http(), Task(name="again", kind="noop", policy=rules(("{{ _prev == 1 }}", {"do": "jump", "to": "previous"})))
    )
    assert (result.data, len(tool.calls)) == (2, 2)


@pytest.mark.parametrize("label", ["previous", "nowhere"])
async def test_a_jump_that_leads_nowhere_is_an_error(label: str) -> None:
    result = await Runner()(Task(name="a", kind="noop", policy=rules((None, {"do": "jump", "to": label}))))
    assert result.error is not None
    assert (result.status, result.error.code) == ("error", "unknown_label")


async def test_a_sequence_that_goes_round_for_ever_is_stopped_and_lets_others_run_meanwhile() -> None:
    tool = Scripted(*(Outcome(data=n) for n in range(1_001)))
    runner = Runner(http=tool)
    result = await runner(http(policy=rules((None, {"do": "jump", "to": "t"})), name="t"), runs_max=1_000)
    assert result.error is not None
    assert result.error.code == "too_many_runs"
    assert len(tool.calls) == 1_000
    assert len(runner.waits) >= 7


@pytest.mark.parametrize("then", [{"do": "jump", "to": "a"}, {"do": "retry", "attempts": 10_000, "delay": 0}])
async def test_tasks_that_go_round_and_do_nothing_are_stopped_at_the_limit_of_steps_without_work(
    then: dict[str, Any],
) -> None:
    """INV-161: a ring within one worker is bounded like one of steps."""
    runner = Runner()
    result = await runner(
        Task(name="a", kind="noop", set={"ctx.turns": "{{ (ctx.turns | default(0)) + 1 }}"}, policy=rules((None, then)))
    )
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == ("too_many_runs", False)
    assert result.error.message.endswith("or raise executor.spec.policy.limits.steps_without_work above 1000")
    assert result.ctx_writes == {"turns": 1_000}


async def test_a_task_that_waits_on_purpose_may_wait_as_often_as_its_rule_says() -> None:
    then = {"do": "retry", "attempts": 1_500, "delay": 1, "backoff": "fixed"}
    runner = Runner()
    result = await runner(Task(name="a", kind="noop", policy=rules(("{{ _attempt < 1400 }}", then))))
    assert result.status == "ok"
    assert sum(runner.waits) == 1_399


async def test_a_tasks_own_set_comes_before_its_rules() -> None:
    result = await Runner(http=Scripted(Outcome(data={"n": 7})))(
        http(
            set={"ctx.n": "{{ output.data.n }}"},
            policy=rules(("{{ ctx.n == 7 }}", {"do": "break", "set": {"ctx.m": "{{ ctx.n + 1 }}"}})),
        )
    )
    assert result.ctx_writes == {"n": 7, "m": 8}


@pytest.mark.parametrize("do", ["continue", "break"])
async def test_a_failed_task_that_a_rule_lets_pass_sets_what_it_can(do: str) -> None:
    """INV-168."""
    wanted = {"ctx.why": "{{ output.error.kind }}", "ctx.rows": "{{ output.data.rows }}", "ctx.whole": "{{ output }}"}
    policy = rules((ON_ERROR, {"do": do, "set": {"ctx.said": "{{ ctx.why }}!"}}))
    result = await Runner(http=Scripted(LATE))(http(set=wanted, policy=policy))
    assert result.status == "ok"
    assert result.ctx_writes == {"why": "timeout", "whole": None, "said": "timeout!"}


async def test_a_failed_task_that_fails_its_step_sets_nothing() -> None:
    result = await Runner(http=Scripted(LATE))(http(set={"ctx.n": 2}, policy=rules((ON_ERROR, {"do": "fail"}))))
    assert (result.status, result.ctx_writes) == ("error", {})
    again = await Runner(http=Scripted(LATE, Outcome(data=1)))(
        http(set={"ctx.tries": "{{ ctx.tries | default([]) + [_attempt] }}"}, policy=rules((ON_ERROR, {"do": "retry"})))
    )
    assert again.ctx_writes == {"tries": [2]}


async def test_a_set_that_failed_is_not_tried_again_because_a_rule_lets_it_pass() -> None:
    result = await Runner(http=Scripted(Outcome(data={})))(
        http(set={"ctx.n": "{{ output.data.gone }}", "ctx.m": 1}, policy=rules((ON_ERROR, {"do": "continue"})))
    )
    assert (result.status, result.ctx_writes, result.swallowed) == ("ok", {}, 1)


async def test_a_name_that_a_task_sets_is_there_for_the_next_one() -> None:
    """INV-168."""
    get, put = Scripted(Outcome(data={"n": 7, "status": "own", "rows": [4]})), Scripted(Outcome(data=1))
    put.kind = "shell"
    seen = {
        "bare": "{{ got }}", "shared": "{{ ctx.got }}", "whole": "{{ all }}", "own": "{{ all.status }}",
        "outcome": "{{ how }}", "deep": "{{ deep.n }}", "one": "{{ fetch.data.n + fetch.n }}", "ok": "{{ fetch.status }}",
    }  # fmt: skip
    result = await Runner(http=get, shell=put)(
        http(set={
            "got": "{{ output.n }}", "all": "{{ output }}", "how": "{{ [output.status, output.data.status] }}",
            "ctx.deep.n": "{{ output.rows[0] }}",
        }),
        Task(name="use", kind="shell", input=seen),
    )  # fmt: skip
    assert result.error is None
    assert put.calls[0].input == {
        "bare": 7, "shared": 7, "whole": {"n": 7, "status": "own", "rows": [4]}, "own": "own", "outcome": ["ok", "own"],
        "deep": 4, "one": 14, "ok": "own",
    }  # fmt: skip
    assert (result.results["fetch"]["n"], result.last) == (7, "use")


async def test_a_set_that_cannot_be_rendered_makes_the_task_fail() -> None:
    result = await Runner(http=Scripted(Outcome(data={})))(http(set={"ctx.n": "{{ output.data.gone }}"}))
    assert result.error is not None
    assert (result.error.kind, result.error.code) == ("transform", "template_failed")
    assert result.error.message.startswith(
        "playbook demo/p, step s, task fetch, field set.ctx.n: 'output.data.gone' is undefined"
    )


async def test_a_field_that_cannot_be_rendered_is_an_error_the_policy_can_decide_on() -> None:
    tool = Scripted(Outcome())
    bad = Task(name="bad", kind="http", options={"url": "{{ gone }}"})
    failed_run = await Runner(http=tool)(bad)
    assert failed_run.error is not None
    assert (failed_run.error.kind, failed_run.error.code, failed_run.error.retryable) == (
        "transform",
        "template_failed",
        False,
    )
    assert "task bad, field url: 'gone' is undefined" in failed_run.error.message
    assert tool.calls == []
    passed = await Runner(http=tool)(
        Task(name="bad", kind="http", options=bad.options, policy=rules((ON_ERROR, {"do": "continue"})))
    )
    assert (passed.status, passed.swallowed) == ("ok", 1)


@pytest.mark.parametrize("source", ["{{ fetch.data }}", "{{ results.fetch.data }}"])
async def test_a_reference_to_a_task_that_has_not_run_says_which_to_jump_to(source: str) -> None:
    result = await Runner(http=Scripted(Outcome()))(
        Task(name="use", kind="http", options={"url": source}), http("fetch")
    )
    assert result.error is not None
    assert result.error.code == "REFERENCE_NOT_AVAILABLE"
    assert "jump, to: fetch" in result.error.message
    assert result.error.details["jump_to"] == "fetch"


async def test_a_rule_that_cannot_be_read_does_not_hide_the_tasks_own_error() -> None:
    result = await Runner(http=Scripted(LATE))(http(policy=rules(("{{ output.http.status == 429 }}", {"do": "retry"}))))
    assert result.error is not None
    assert "rule 1, field when: 'output.http' is undefined" in result.error.message
    assert "too late" in result.error.message
    assert result.error.details["task_error"]["kind"] == "timeout"


async def test_a_tool_that_does_not_end_in_time_is_stopped() -> None:
    was_cancelled = asyncio.Event()

    async def hang(call: Call) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()
        return Outcome()

    result = await Runner(http=Scripted(hang))(http(timeout="{{ 0.01 }}"))
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.code) == ("timeout", True, "task_timeout")
    assert was_cancelled.is_set()


async def test_the_timeout_of_an_http_call_binds_the_whole_try() -> None:
    tool = Scripted(Outcome())
    await Runner(http=tool)(
        Task(name="a", kind="http", options={"timeout": 8}),
        Task(name="b", kind="http", options={"timeout": 8}, timeout="9"),
    )
    assert [call.timeout for call in tool.calls] == [8.0, 9.0]


@pytest.mark.parametrize("timeout", [0, -1, "soon", True, "nan"])
async def test_a_timeout_that_is_no_time_is_an_error(timeout: Any) -> None:
    result = await Runner(http=Scripted(Outcome()))(http(timeout=timeout))
    assert result.error is not None
    assert "task fetch, field timeout: a number of seconds" in result.error.message


async def test_an_exception_of_a_tool_is_a_problem_without_its_text() -> None:
    def explode(call: Call) -> Outcome:
        raise ValueError("password=hunter2")

    result = await Runner(http=Scripted(explode))(http())
    assert result.error is not None
    assert (result.error.kind, result.error.exception_type, result.error.code) == (
        "unknown",
        "ValueError",
        "tool_defect",
    )
    assert "hunter2" not in repr(result)


async def test_our_own_errors_keep_their_text_and_tell_whether_to_try_again() -> None:
    def explode(call: Call) -> Outcome:
        raise Unavailable("the store does not answer")

    result = await Runner(http=Scripted(explode))(http())
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.code) == ("connection", True, "unavailable")
    assert result.error.message.endswith("the store does not answer")


async def test_a_lost_lease_and_a_cancellation_pass_through() -> None:
    def lose(call: Call) -> Outcome:
        raise LeaseLost

    def cancel(call: Call) -> Outcome:
        raise asyncio.CancelledError

    always = rules((None, {"do": "continue"}))
    with pytest.raises(LeaseLost):
        await Runner(http=Scripted(lose))(http(policy=always))
    with pytest.raises(asyncio.CancelledError):
        await Runner(http=Scripted(cancel))(http(policy=always))


async def test_a_kind_the_worker_has_no_tool_for_is_an_error() -> None:
    result = await Runner(http=Scripted(Outcome()))(Task(name="a", kind="wasm"))
    assert result.error is not None
    assert (result.error.code, "it has: http" in result.error.message) == ("unknown_tool", True)


async def test_the_last_database_task_can_be_handed_over() -> None:
    sql = Scripted(Outcome(data={"rows": []}))
    runner = Runner(http=Scripted(Outcome(data={"id": 3})), postgres=sql)
    first = Task(name="first", kind="postgres", options={"command": "SELECT 1"})
    last = Task(name="last", kind="postgres", options={"command": "UPDATE t SET x = {{ fetch.id }}"})
    result = await runner(first, http(), last, defer=lambda task, call: runner.deferred.append((task, call)))
    assert len(sql.calls) == 1
    assert [(task.name, call.options["command"]) for task, call in runner.deferred] == [("last", "UPDATE t SET x = 3")]
    assert (result.status, result.data) == ("ok", {"deferred": True})


async def test_a_child_playbook_is_run_by_who_knows_how() -> None:
    async def child(task: CompiledTask, call: Call) -> Outcome:
        return Outcome(data={"path": call.options["path"]})

    result = await Runner()(Task(name="c", kind="playbook", options={"path": "demo/{{ ctx.n }}"}), children=child)
    assert result.data == {"path": "demo/1"}


async def test_only_the_selected_values_become_the_result() -> None:
    chosen = Output(select=(Select("$.data.total", "total"),))
    tool = Scripted(Outcome(data={"data": {"total": 9, "rows": [1]}}))
    good = await Runner(http=tool)(http(output=chosen, set={"ctx.rows": "{{ output.data.data.rows }}"}))
    assert (good.data, good.ctx_writes) == ({"total": 9}, {"rows": [1]})
    bad = await Runner(http=Scripted(Outcome(data={"data": {}})))(http(output=chosen))
    assert bad.error is not None
    assert (bad.error.kind, bad.error.code) == ("schema", "selection_failed")
    assert "task fetch, field output.select: the path $.data.total leads nowhere" in bad.error.message


async def test_a_steps_input_is_rendered_once_and_a_tasks_own_lies_over_it() -> None:
    tool = Scripted(Outcome())
    task = Task(name="a", kind="http", input={"b": "{{ input.a + 1 }}"}, options={"url": "{{ input.a }}{{ input.b }}"})
    await Runner(http=tool)(task, Task(name="c", kind="http"), step={"input": {"a": "{{ ctx.n }}", "b": 0}})
    assert [dict(call.input) for call in tool.calls] == [{"a": 1, "b": 2}, {"a": 1, "b": 0}]
    assert tool.calls[0].options == {"url": "12"}
    failed_run = await Runner(http=tool)(task, step={"input": {"a": "{{ gone }}"}})
    assert failed_run.error is not None
    assert "step s, field input.a: 'gone' is undefined" in failed_run.error.message


@pytest.mark.parametrize("kind", ["python", "spark"])
async def test_a_program_is_handed_over_as_it_is_written(kind: str) -> None:
    tool = Scripted(Outcome())
    code = "result = f'{{ {x} }}' + '{% raw %}'"
    await Runner(**{kind: tool})(Task(name="p", kind=kind, options={"code": code, "more": "/v/{{ ctx.n }}"}))
    assert tool.calls[0].options == {"code": code, "more": "/v/1"}


async def test_the_address_of_a_program_is_rendered() -> None:
    tool = Scripted(Outcome())
    await Runner(python=tool)(Task(name="p", kind="python", options={"script": "/jobs/{{ ctx.n }}.py"}))
    assert tool.calls[0].options == {"script": "/jobs/1.py"}


async def test_a_workbook_task_runs_with_the_callers_input_and_name() -> None:
    tool = Scripted(LATE, Outcome(data=1))
    workbook = {
        "classify": Task(
            name="classify", kind="python", options={"code": "x"}, input={"t": 1, "u": 2},
            policy=rules((ON_ERROR, {"do": "retry", "attempts": 2})),
        )
    }  # fmt: skip
    call = Task(name="flag", kind="workbook", options={"name": "classify"}, input={"t": "{{ ctx.n + 4 }}"})
    result = await Runner(python=tool)(call, workbook=workbook)
    assert (result.data, result.tries[0].task) == (1, "flag")
    assert [dict(made.input) for made in tool.calls] == [{"t": 5, "u": 2}] * 2
    assert tool.calls[0].options == {"code": "x"}


async def test_what_tasks_put_into_the_store_is_gathered_once_each() -> None:
    first, second = (
        PayloadRef(uri=f"noetl://{one}", sha256=one * 64, media_type="text/plain", bytes=1, stored_sha256=one * 64)
        for one in "ab"
    )
    tool = Scripted(Outcome(artifacts=(first,)), Outcome(artifacts=(second, first)))
    assert (await Runner(http=tool)(http("a"), http("b"))).artifacts == (first, second)


async def test_a_step_without_work_has_no_data() -> None:
    result = await Runner()(Task(name="n", kind="noop"))
    assert (result.status, result.data, result.output["status"]) == ("ok", None, "ok")


async def test_a_noop_before_the_work_does_not_stand_in_for_its_output() -> None:
    result = await Runner(http=Scripted(Outcome(data=None)))(Task(name="n", kind="noop"), http())
    assert result.output["data"] is None
    assert result.error is None
