"""Rules that the grammar's tables cannot express: unique names, valid policies, loops with one source, needed fields.

A tree goes in, problems come out. Parts of a wrong shape are skipped, because the matcher has reported them.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from noetl.language.grammar.problems import Problems, suggest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.model import Place
from noetl.language.playbook.parts import items_at, tasks_in, word_at
from noetl.language.templates.template import is_template

PREVIOUS = "previous"
_ONLY_RETRY = ("attempts", "backoff", "delay")


def hold_to_rules(root: Node, problems: Problems, kinds: Collection[str] = ()) -> None:
    """Note what breaks a rule of the language; `kinds` are further kinds of tasks."""
    _Rules(problems, kinds).playbook(root)


class _Rules:
    def __init__(self, problems: Problems, kinds: Collection[str]) -> None:
        self._problems = problems
        self._kinds = {*KINDS, *kinds}

    def playbook(self, root: Node) -> None:
        for kind in items_at(root, "executor", "requires", "tools"):
            if kind.text is not None and kind.text not in self._kinds:
                said = f"this build has no tool of kind {kind.text}, which the playbook requires"
                hint = suggest(kind.text, self._kinds)
                self._problems.error("kind_not_supported", said, kind.place, hint)
        steps = items_at(root, "workflow")
        self._once("step", (step.get("step") for step in steps))
        self._once("keychain entry", (entry.get("name") for entry in items_at(root, "keychain")))
        entries = items_at(root, "workbook")
        self._once("workbook task", (entry.get("name") for entry in entries))
        for entry in entries:
            self._tasks(entry.get("tool"))
        for step in steps:
            self._tasks(step.get("tool"))
            self._loop(step.get("loop"))
            self._admission(step.get("spec", "policy", "admit", "rules"))

    def _once(self, what: str, names: Iterable[Node | None]) -> None:
        seen: dict[str, Place] = {}
        for name in names:
            if name is None or name.text is None:
                continue
            if name.text in seen:
                hint = f"the other one stands in line {seen[name.text].line}"
                code = f"duplicate_{what.replace(' ', '_')}"
                self._problems.error(code, f"there is already a {what} {name.text}", name.place, hint)
            seen.setdefault(name.text, name.place)

    def _tasks(self, tool: Node | None) -> None:
        if tool is None:
            return
        tasks = tool.items if isinstance(tool.value, list) else [tool]
        is_sequence = isinstance(tool.value, list)
        if is_sequence:
            self._once("task", (task.get("name") for task in tasks))
        labels = [name.text for task in tasks if is_sequence and (name := task.get("name")) and name.text]
        for index, task in enumerate(tasks):
            self._kind(task)
            policy = task.get("spec", "policy")
            if policy is None:
                continue
            for rule in self._ruled(policy.get("rules")):
                self._then(rule, labels, is_first=index == 0)

    def _kind(self, task: Node) -> None:
        kind = task.get("kind")
        word = None if kind is None else kind.text
        if word == "workbook" and "name" not in task.mapping and "task" not in task.mapping:
            self._problems.error(
                "missing_field", "the name of the workbook's task is needed", task.place, "write name: NAME"
            )
        if word == "playbook" and "payload" in task.mapping and "input" in task.mapping:
            place = task.key_place("payload")
            self._problems.error("given_twice", "payload and input stand for one thing", place, "write input")
        if word == "mcp":
            self._asks(task)
        framework = word_at(task, "framework")
        if word == "agent" and framework not in ("", "noetl", "custom") and not is_template(framework):
            hint = "write framework: custom and entrypoint: module:function, and let the function run the agent"
            said = f"there is no framework {framework}: an agent is of noetl or custom"
            self._problems.error("framework_not_supported", said, task.mapping["framework"].place, hint)
        for key, value in task.mapping.items():
            if (
                key.endswith("_b64")
                and word in ("postgres", "duckdb")
                and value.text is not None
                and not _decodes(value.text)
            ):
                self._problems.error("wrong_value", f"{key} must be UTF-8 text in base64", value.place)
        fetches = word == "result_fetch" or (word == "artifact" and (task.get("action") or task).text != "put")
        if fetches and "ref" not in task.mapping and not {"result_ref", "ref"} & _keys(task.get("input")):
            hint = 'write input: {result_ref: "{{ step._ref }}"}'
            self._problems.error("missing_field", f"{word} needs a reference", task.place, hint)

    def _asks(self, task: Node) -> None:
        """Look whether a task says which server it asks, and which tool of it."""
        given = task.mapping.keys()
        if not {"endpoint", "url", "command", "server"} & given:
            hint = "write endpoint, command, or server with the name of a credential of type mcp"
            self._problems.error("missing_field", "mcp needs a server", task.place, hint)
        if word_at(task, "method") in ("", "tools/call") and not {"tool", "params"} & given:
            self._problems.error("missing_field", "tools/call needs the name of a tool", task.place, "write tool: NAME")

    def _ruled(self, rules: Node | None) -> list[Node]:
        """Return what the rules lead to, having looked at how each is put together."""
        found = []
        ended: Node | None = None
        for rule in [] if rules is None else rules.items:
            if not isinstance(rule.value, dict):
                continue
            if ended is not None:
                hint = f"the rule in line {ended.place.line} always holds"
                self._problems.warning("unreachable_rule", "this rule is never reached", rule.place, hint)
            if "else" in rule.mapping and len(rule.mapping) == 1:
                ended, then = rule, rule.get("else", "then")
            elif "when" in rule.mapping and "then" in rule.mapping and "else" not in rule.mapping:
                then = rule.get("then")
            else:
                hint = "write {when: …, then: …} or {else: {then: …}}"
                self._problems.error("rule_incomplete", "a rule has when and then, or else alone", rule.place, hint)
                continue
            if then is not None:
                found.append(then)
        return found

    def _then(self, then: Node, labels: list[str], *, is_first: bool) -> None:
        verb = then.get("do")
        word = "continue" if verb is None else verb.text
        for key in _ONLY_RETRY:
            if key in then.mapping and word != "retry":
                self._problems.error("misplaced_field", f"{key} is for do: retry", then.key_place(key), "remove it")
        to = then.get("to")
        if word != "jump":
            if to is not None:
                self._problems.error("misplaced_field", "to is for do: jump", then.key_place("to"), "remove it")
            return
        if to is None:
            self._problems.error("missing_field", "do: jump needs to", then.place, "write to: LABEL")
        elif to.text == PREVIOUS and is_first:
            self._problems.error("unknown_label", "there is no task before the first", to.place, suggest("", labels))
        elif to.text is not None and to.text != PREVIOUS and to.text not in labels:
            hint = suggest(to.text, labels) or "only a task in a list of tasks can be jumped to"
            self._problems.error("unknown_label", f"there is no task {to.text} in this step", to.place, hint)

    def _admission(self, rules: Node | None) -> None:
        self._ruled(rules)

    def _loop(self, loop: Node | None) -> None:
        if loop is None or not isinstance(loop.value, dict):
            return
        given = [key for key in ("in", "cursor") if key in loop.mapping]
        if len(given) != 1:
            said = "a loop has either in or cursor" + (", not both" if given else "")
            self._problems.error("loop_source", said, loop.place, "keep the one that gives the rows")
            return
        mode = loop.get("spec", "mode")
        word = "sequential" if mode is None else mode.text
        if (word == "cursor") != (given == ["cursor"]):
            place = loop.place if mode is None else mode.place
            hint = "write spec: {mode: cursor}" if given == ["cursor"] else "write mode: sequential, parallel or fanout"
            self._problems.error("loop_mode", "mode: cursor and cursor belong together", place, hint)
        kind = loop.get("cursor", "kind")
        if kind is not None and kind.text is not None and kind.text != "postgres":
            said = f"cursors of kind {kind.text} are not supported by this build"
            self._problems.error("kind_not_supported", said, kind.place, "write kind: postgres")


def _keys(node: Node | None) -> set[str]:
    return set() if node is None else set(node.mapping)


def _decodes(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=False).decode())
    except ValueError:
        return False


_OF_ENDS: Final = {"http": ("url",), **dict.fromkeys(("postgres", "duckdb", "snowflake"), ("table", "query"))}
"""One of these an end of a transfer must have; a target the first."""
_OF_SECRETS: Final = {
    "static": ("data",),
    "secret_manager": ("provider",),
    "bearer": ("auth", "token", "access_token"),
    "token": ("auth",),
    "oauth2": ("endpoint", "auth"),
    "google_id_token": ("target_audience", "audience", "endpoint"),
}
"""One of these an entry of the keychain must have."""


def hold_to_needs(root: Node, problems: Problems) -> None:
    """Note which secrets, containers and ends of transfers lack what a run would look for."""
    for entry in items_at(root, "keychain"):
        kind = word_at(entry, "kind")
        _one_of(entry, _OF_SECRETS.get(kind, ()), f"a keychain entry of kind {kind}", problems)
        data = entry.get("data")
        if kind == "static" and data is not None and not isinstance(data.value, dict) and not is_template(data.value):
            said = "data of a static keychain entry must be a mapping of its fields"
            problems.error("wrong_value", said, data.place, "write data: {field: value}")
    for task in tasks_in(root):
        _has_an_image(task, problems)
        if word_at(task, "kind") != "transfer":
            continue
        for name, most in (("source", None), ("target", 1)):
            end = task.get(name)
            if end is not None:
                system = word_at(end, "type")
                _one_of(end, _OF_ENDS.get(system, ())[:most], f"{name} of type {system}", problems)


def _has_an_image(task: Node, problems: Problems) -> None:
    kind, described = word_at(task, "kind"), task.get("runtime")
    if kind == "script" and task.get("job") is not None:
        _one_of(task.mapping["job"], ("image",), "job of a script", problems)
    elif kind == "container" and (described is None or described.get("image") is None):
        _one_of(task, ("image",), "a container task", problems)


def _one_of(node: Node, names: Sequence[str], what: str, problems: Problems) -> None:
    if names and not set(names) & node.mapping.keys():
        problems.error("missing_field", f"{what} needs {' or '.join(names)}", node.place, f"write {names[0]}: …")
