"""The python tool: what code may look like, what it is given, and what comes back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Held
from noetl.engine.tools.python.tool import PythonTool
from noetl.language.templates.result_view import View
from noetl.model.stream import Scope

CallOf = Callable[..., Call]


@pytest.fixture
def tool(tmp_path: Path) -> PythonTool:
    return PythonTool(processes=2, cache=tmp_path / "cache")


def problem(outcome: Outcome) -> dict[str, object]:
    assert outcome.error is not None, outcome
    return {name: getattr(outcome.error, name) for name in outcome.error.__struct_fields__}


async def test_code_may_assign_its_result(tool: PythonTool, call_of: CallOf) -> None:
    outcome = await tool.run(call_of("python", code="result = {'sum': a + b}", input={"a": 1, "b": 2}))
    assert (outcome.status, outcome.data) == ("ok", {"sum": 3})


async def test_code_may_return_at_its_top_level(tool: PythonTool, call_of: CallOf) -> None:
    code = """
import math
total: int = 0
for n in numbers:
    if n < 0:
        return {"negative": n}
    total += n
def doubled(): return total * 2
numbers = sorted(numbers)
match numbers:
    case [first, *rest]:
        pass
return [doubled(), math.floor(1.5), input_data["numbers"], first, rest, [x for x in numbers]]
"""
    outcome = await tool.run(call_of("python", code=code, input={"numbers": [2, 1]}))
    assert outcome.data == [6, 1, [2, 1], 1, [2], [1, 2]]
    outcome = await tool.run(call_of("python", code=code, input={"numbers": [1, -2]}))
    assert outcome.data == {"negative": -2}


async def test_code_that_does_not_reach_its_return_ends_like_any_other(tool: PythonTool, call_of: CallOf) -> None:
    code = "if flag:\n    return 1\nresult = 2"
    assert (await tool.run(call_of("python", code=code, input={"flag": True}))).data == 1
    assert (await tool.run(call_of("python", code=code, input={"flag": False}))).data == 2


async def test_main_is_called_with_the_input_then_the_scope_by_parameter_name(
    tool: PythonTool, call_of: CallOf
) -> None:
    code = """
def main(a, /, b, page, limit=10, *, input_data, **rest):
    return {"a": a, "b": b, "page": page, "limit": limit, "all": sorted(input_data), "rest": rest}
"""
    call = call_of(
        "python", code=code, input={"a": 1, "b": 2, "z": 3}, scope={"page": 7, "b": "no", "unasked": object()}
    )
    expected = {"a": 1, "b": 2, "page": 7, "limit": 10, "all": ["a", "b", "z"], "rest": {"z": 3}}
    assert (await tool.run(call)).data == expected
    again = call_of("python", code=code, input={"a": 1, "b": 2}, scope={"page": 8, "limit": 5})
    assert (await tool.run(again)).data == {**expected, "page": 8, "limit": 5, "all": ["a", "b"], "rest": {}}


FORMS = {
    "assigns": "result = {body}",
    "returns": "if True:\n    return {body}",
    "defines": "def main():\n    return {body}",
    "asks": "def main(json, args, context, execution_id):\n    return {body}",
}


@pytest.mark.parametrize("form", FORMS)
async def test_code_of_every_form_finds_its_input_its_context_and_its_execution(
    tool: PythonTool, call_of: CallOf, form: str
) -> None:
    body = (
        "[json.dumps(args), execution_id, context['execution_id'], context['a'], context.get('fetch', {}).get('rows'),"
        " context.get('absent', 'none'), 'fetch' in context, 'absent' in context, isinstance(context, dict)]"
    )
    call = call_of("python", code=FORMS[form].format(body=body), input={"a": 1}, scope={"fetch": {"rows": [2]}, "a": 9})
    number = str(call.execution_id)
    for _ in range(2):
        outcome = await tool.run(call)
        assert outcome.data == ['{"a": 1}', number, number, 1, [2], "none", True, False, True], outcome.error


async def test_names_of_the_code_and_of_its_input_come_first(tool: PythonTool, call_of: CallOf) -> None:
    code = "import math as json\nargs = 5\nresult = [json.floor(1.5), args, context, execution_id]"
    call = call_of("python", code=code, input={"context": "mine", "execution_id": "own"})
    assert (await tool.run(call)).data == [1, 5, "mine", "own"]
    asked = call_of("python", code="def main(context):\n    return context", scope={"context": "of the workload"})
    assert (await tool.run(asked)).data == "of the workload"


async def test_a_context_is_fetched_name_by_name_and_only_when_it_is_looked_at(
    tool: PythonTool, call_of: CallOf
) -> None:
    fetched: list[str] = []

    def held(name: str) -> Held:
        async def fetch() -> View:
            fetched.append(name)
            return View({"whole": name})

        return Held(View({"part": name}), fetch)

    def scope() -> dict[str, object]:
        return {"one": held("one"), "two": held("two"), "n": 3}

    for code, expected, took in (
        ("result = context is not None", True, []),
        ("result = [context['one'], context['one']]", [{"whole": "one"}] * 2, ["one"]),
        ("result = sorted(context)", ["a", "execution_id", "n", "one", "two"], []),
        ("result = [len(context), bool(context), 'two' in list(context.keys())]", [5, True, True], []),
        ("result = context.get('n', 0) + context['a']", 4, []),
        ("result = sorted(json.loads(json.dumps(context)))", ["a", "execution_id", "n", "one", "two"], ["one", "two"]),
        ("result = {**context}['two']", {"whole": "two"}, ["one", "two"]),
        ("context['own'] = 7\nresult = [context['own'], len(dict(context))]", [7, 6], ["one", "two"]),
        ("result = context == {}", False, ["one", "two"]),
    ):
        fetched.clear()
        outcome = await tool.run(call_of("python", code=code, input={"a": 1}, scope=scope()))
        assert (outcome.data, sorted(fetched)) == (expected, took), (code, outcome.error)


async def test_what_one_call_looked_up_in_its_context_is_not_fetched_for_the_next(
    tool: PythonTool, call_of: CallOf
) -> None:
    fetched: list[str] = []

    async def fetch() -> View:
        fetched.append("large")
        return View({"n": 1})

    for asks, took in ((True, ["large"]), (False, []), (True, ["large"])):
        fetched.clear()
        code = "def main(asks, k):\n    return context['large'] if asks else k"
        call = call_of("python", code=code, input={"asks": asks}, scope={"large": Held(View({}), fetch), "k": 5})
        assert (await tool.run(call)).data == ({"n": 1} if asks else 5)
        assert fetched == took


async def test_a_walk_over_a_context_meets_no_secret(tool: PythonTool, call_of: CallOf) -> None:
    scope = {"keychain": {"shop": {"token": "hush"}}, "n": 1}
    walk = call_of("python", code="result = [sorted(context), json.dumps(context), repr(context)]", scope=scope)
    outcome = await tool.run(walk)
    assert outcome.data is not None, outcome.error
    assert outcome.data[0] == ["execution_id", "n"]
    assert "hush" not in str(outcome)
    by_name = call_of("python", code="result = len(context['keychain']['shop']['token'])", scope=scope)
    assert (await tool.run(by_name)).data == 4


async def test_threads_of_the_code_may_look_into_its_context_while_it_runs(tool: PythonTool, call_of: CallOf) -> None:
    code = """
import threading
found = []
def look(name):
    found.append(context[name]["n"])
threads = [threading.Thread(target=look, args=(f"step_{n}",)) for n in range(20)]
for one in threads: one.start()
for one in threads: one.join()
result = sorted(found)
"""
    scope = {f"step_{n}": {"n": n} for n in range(20)}
    assert (await tool.run(call_of("python", code=code, scope=scope))).data == list(range(20))


async def test_a_context_that_outlives_its_call_is_closed(tool: PythonTool, call_of: CallOf) -> None:
    tool = PythonTool(processes=1)
    await tool.run(call_of("python", code="import sys\nsys.left = context\nresult = 1", scope={"a": {"n": 1}}))
    code = "import sys\ntry:\n    sys.left['a']\nexcept RuntimeError as told:\n    result = [str(told), context['b']]"
    outcome = await tool.run(call_of("python", code=code, scope={"b": 2}))
    assert outcome.data == ["the context can be looked at only while its task runs", 2], outcome.error


async def test_main_may_be_a_coroutine_and_its_names_are_also_global(tool: PythonTool, call_of: CallOf) -> None:
    code = "import asyncio\nasync def main(n):\n    await asyncio.sleep(0)\n    return n + factor"
    assert (await tool.run(call_of("python", code=code, input={"n": 1, "factor": 2}))).data == 3


async def test_a_script_with_a_main_guard_runs_its_main_once(tool: PythonTool, call_of: CallOf) -> None:
    code = "def main(x):\n    print('ran')\n    return x\nif __name__ == '__main__':\n    main(0)"
    outcome = await tool.run(call_of("python", code=code, input={"x": 5}))
    assert (outcome.data, outcome.helpers["py"]["stdout"]) == (5, "ran\n")


async def test_a_result_that_was_assigned_stands_and_main_is_not_called(tool: PythonTool, call_of: CallOf) -> None:
    code = "def main(x):\n    print('ran')\n    return x\nresult = main(1)"
    outcome = await tool.run(call_of("python", code=code))
    assert (outcome.data, outcome.helpers["py"]["stdout"]) == (1, "ran\n")


async def test_an_input_called_result_is_not_taken_for_the_result(tool: PythonTool, call_of: CallOf) -> None:
    outcome = await tool.run(call_of("python", code="def main(result):\n    return result * 2", input={"result": 4}))
    assert outcome.data == 8


async def test_an_argument_nobody_gives_is_named(tool: PythonTool, call_of: CallOf) -> None:
    found = problem(await tool.run(call_of("python", code="def main(a, b, c=1): ...", input={"a": 1})))
    assert found["kind"] == "schema"
    assert found["details"] == {"missing": ["b"]}
    assert "'b'" in str(found["message"])


async def test_an_exception_is_told_with_its_line(tool: PythonTool, call_of: CallOf) -> None:
    code = "def deep(n):\n    if n == 0:\n        raise KeyError('gone')\n    deep(n - 1)\ndeep(2)"
    found = problem(await tool.run(call_of("python", code=code)))
    assert found["kind"] == "unknown"
    assert found["retryable"] is False
    assert found["exception_type"] == "KeyError"
    assert found["message"] == "KeyError: 'gone' (line 3)"
    assert [step["line"] for step in found["details"]["trace"]] == [5, 4, 4, 3]


async def test_a_syntax_error_is_told_with_its_line(tool: PythonTool, call_of: CallOf) -> None:
    for code in ("x = 1\ny = = 2", "x = 1\nbreak", "x = 1\nreturn = 2"):
        found = problem(await tool.run(call_of("python", code=code)))
        assert found["exception_type"] == "SyntaxError"
        assert found["details"]["line"] == 2, code
    assert (await tool.run(call_of("python", code="x = 1\ny = = 2"))).error is not None


async def test_a_call_of_exit_is_a_problem_and_not_the_end_of_the_process(tool: PythonTool, call_of: CallOf) -> None:
    found = problem(await tool.run(call_of("python", code="import sys\nsys.exit(3)")))
    assert (found["exception_type"], found["message"]) == ("SystemExit", "SystemExit: 3 (line 2)")


async def test_results_come_back_as_plain_values(tool: PythonTool, call_of: CallOf) -> None:
    code = "import datetime, decimal\nresult = {1: datetime.date(2024, 1, 2), 'd': decimal.Decimal('1.10'), 'b': b'hi', 't': (1,)}"
    outcome = await tool.run(call_of("python", code=code))
    assert outcome.data == {"1": "2024-01-02", "d": "1.10", "b": "aGk=", "t": [1]}


async def test_a_result_without_plain_form_names_the_place(tool: PythonTool, call_of: CallOf) -> None:
    found = problem(await tool.run(call_of("python", code="result = {'a': [1, float('nan')]}")))
    assert (found["kind"], found["code"]) == ("transform", "result_not_plain")
    assert "$.a[1]" in str(found["message"])


async def test_a_result_that_is_too_large_is_refused(tool: PythonTool, call_of: CallOf) -> None:
    found = problem(await tool.run(call_of("python", code="result = 'x' * (65 * 1024 * 1024)")))
    assert (found["kind"], found["code"]) == ("transform", "result_too_large")
    assert (await tool.run(call_of("python", code="result = 1"))).data == 1


async def test_a_large_result_comes_back_whole(tool: PythonTool, call_of: CallOf) -> None:
    outcome = await tool.run(call_of("python", code="result = ['é' * 10] * 200_000"))
    assert outcome.data == ["é" * 10] * 200_000


async def test_what_is_printed_is_kept_up_to_a_bound(tool: PythonTool, call_of: CallOf) -> None:
    code = "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.system('echo from a program')"
    told = (await tool.run(call_of("python", code=code))).helpers["py"]
    assert told == {"stdout": "out\nfrom a program\n", "stderr": "err\n", "truncated": False}
    told = (await tool.run(call_of("python", code="print('x' * 1_000_000)"))).helpers["py"]
    assert (len(told["stdout"]), told["truncated"]) == (65_536, True)
    told = (await tool.run(call_of("python", code="print('after')"))).helpers["py"]
    assert told["stdout"] == "after\n"


async def test_calls_do_not_see_each_other(call_of: CallOf, tmp_path: Path) -> None:
    tool = PythonTool(processes=1, cache=tmp_path)
    first = """
import os, sys
here = os.getcwd()
os.environ["LEFT"] = "1"; os.chdir("/"); sys.path.append("/left"); left = 1; sys.stdout = open(os.devnull, "w")
result = [os.getpid(), here]
"""
    pid, here = (await tool.run(call_of("python", code=first))).data
    second = """
import os, sys
print("seen")
result = [os.getpid(), os.getcwd(), "LEFT" in os.environ, "/left" in sys.path, "left" in globals()]
"""
    outcome = await tool.run(call_of("python", code=second))
    assert outcome.data == [pid, here, False, False, False]
    assert outcome.helpers["py"]["stdout"] == "seen\n"


async def test_organizations_never_share_a_process(tool: PythonTool, call_of: CallOf) -> None:
    code = "import os\nresult = os.getpid()"
    ours = (await tool.run(call_of("python", code=code))).data
    theirs = (await tool.run(call_of("python", code=code, owner=Scope("acme", "finance")))).data
    assert ours != theirs
    assert (await tool.run(call_of("python", code=code))).data == ours


async def test_neither_secrets_nor_descriptors_of_the_worker_are_visible(
    tool: PythonTool, call_of: CallOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOETL_DATABASE_URL", "postgres://secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    code = """
import os, stat
kinds = []
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        continue
    kinds.append("file" if stat.S_ISREG(mode) else "socket" if stat.S_ISSOCK(mode) else "other")
result = {"environment": sorted(os.environ), "descriptors": sorted(kinds)}
"""
    with (tmp_path / "open").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        seen = (await tool.run(call_of("python", code=code))).data
    assert "LC_TIME" in seen["environment"]
    assert not [name for name in seen["environment"] if name.startswith(("NOETL", "AWS"))]
    # Standard input, output and error, and the channel.
    assert seen["descriptors"] == ["other", "other", "other", "socket"]


async def test_input_that_is_not_plain_is_refused(tool: PythonTool, call_of: CallOf) -> None:
    found = problem(await tool.run(call_of("python", code="result = 1", input={"x": object()})))
    assert found["kind"] == "schema"
    assert "$.x" in str(found["message"])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "either code or script"),
        ({"code": "1", "script": "x.py"}, "either code or script"),
        ({"code": 3}, "code is a text"),
        ({"code": "1", "memory_mb": 1}, "memory_mb"),
        ({"code": "1", "deps": {"pkgs": []}}, "deps takes"),
        ({"code": "1", "deps": {"packages": [1]}}, "deps.packages"),
        ({"code": "1", "deps": {"packages": ["--index-url=x"]}}, "not options of pip"),
        ({"code": "1", "deps": {"venv_path": "/nowhere"}}, "/nowhere is no virtual environment"),
        ({"code": "1", "deps": {"venv_path": "/nowhere", "packages": ["x"]}}, "both packages and venv_path"),
    ],
)
async def test_options_that_make_no_sense_are_named(
    tool: PythonTool, call_of: CallOf, options: dict[str, object], word: str
) -> None:
    found = problem(await tool.run(call_of("python", options=options)))
    assert found["kind"] == "schema"
    assert word in str(found["message"])


async def test_an_interpreter_that_cannot_be_started_is_named(
    tool: PythonTool, call_of: CallOf, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch(mode=0o644)
    found = problem(await tool.run(call_of("python", code="result = 1", deps={"venv_path": str(tmp_path)})))
    assert (found["code"], found["retryable"]) == ("process_not_started", False)
    assert str(tmp_path) in str(found["message"])
    assert (await tool.run(call_of("python", code="result = 1"))).data == 1


async def test_modules_of_a_given_path_can_be_imported(tool: PythonTool, call_of: CallOf, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "invoices.py").write_text(f"origin = {name!r}")
    code = "import invoices\nresult = invoices.origin"
    for name in ("one", "two"):
        outcome = await tool.run(call_of("python", code=code, deps={"sys_path": [str(tmp_path / name)]}))
        assert outcome.data == name


async def test_a_script_runs_in_place_of_code(tool: PythonTool, call_of: CallOf, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("def main(n):\n    return n + 1")
    outcome = await tool.run(call_of("python", script={"uri": str(tmp_path / "job.py")}, input={"n": 1}))
    assert outcome.data == 2


async def test_more_calls_than_processes_are_all_answered(tool: PythonTool, call_of: CallOf) -> None:
    code = "import os, time\ntime.sleep(0.002)\nresult = [n, os.getpid()]"
    outcomes = await asyncio.gather(*(tool.run(call_of("python", code=code, input={"n": n})) for n in range(50)))
    assert [outcome.data[0] for outcome in outcomes] == list(range(50))
    assert len({outcome.data[1] for outcome in outcomes}) == 2


async def test_results_are_found_under_all_their_names_and_walked_over_as_they_are(
    tool: PythonTool, call_of: CallOf
) -> None:
    """INV-167."""
    rows = {"status": "ok", "rows": [{"n": 1}], "row_count": 1, "columns": ["n"], "statement_count": 1}
    answer = {"status_code": 200, "headers": {}, "data": {"k": 2}}
    code = """
result = {
    "last": rows["command_0"]["rows"], "other": rows.get("command_1", "none"), "has": "command_0" in rows,
    "body": [one.get("body") for one in several], "deep": nested["a"]["rows"].get("command_0", {}).get("row_count"),
    "keys": [sorted(rows), "body" in json.dumps(several[0])], "same": rows == json.loads(json.dumps(rows)),
    "beside": [step["data"], step.get("status"), step.get("gone", 0), list(step)],
    "named": [context["listed"].get("status"), context["listed"]["data"], context["listed"][0], context["nothing"].get("status")],
    "number": context["number"] + 1, "given_back": step, "is_dict": isinstance(rows, dict) and isinstance(step, dict),
}
"""
    call = call_of(
        "python", code=code,
        input={"rows": rows, "several": [answer, {"own": 1}], "nested": {"a": {"rows": rows}}, "step": {"n": 3}},
        scope={
            "listed": View([4], beside={"status": "ok", "data": [4]}), "nothing": View(None, beside={"status": "ok"}),
            "number": View(7, beside={"status": "ok"}),
        },
    )  # fmt: skip
    outcome = await tool.run(replace(call, views={"step": View({"n": 3}, beside={"status": "ok", "data": {"n": 3}})}))
    assert outcome.error is None
    assert outcome.data == {
        "last": [{"n": 1}], "other": "none", "has": True, "body": [{"k": 2}, None], "deep": 1,
        "keys": [["columns", "row_count", "rows", "statement_count", "status"], False], "same": True,
        "beside": [{"n": 3}, "ok", 0, ["n"]], "named": ["ok", [4], 4, "ok"], "number": 8, "given_back": {"n": 3},
        "is_dict": True,
    }  # fmt: skip
