"""The older `retry` of a task: it goes in as it was written, the rule of the task's policy that means the same comes out."""

from __future__ import annotations

from typing import Any, Final

from noetl.language.grammar.problems import Problems, Say, suggest
from noetl.language.grammar.tree import Node
from noetl.language.templates.template import is_template

_KINDS: Final = {
    "timeout": ("timeout", "db_timeout"),
    "connection": ("connection", "db_connection"),
    "connection_error": ("connection", "db_connection"),
    "deadlock": ("db_deadlock",),
    **{
        kind: (kind,)
        for kind in (
            "rate_limit", "auth", "not_found", "client_error", "server_error", "schema", "parse", "transform",
            "db_connection", "db_constraint", "db_deadlock", "db_timeout", "storage_quota", "storage_access", "unknown",
        )
    },
}  # fmt: skip
"""The kinds of errors that a word of `retry_on` stands for."""
_CONDITIONS: Final = ("retry_when", "stop_when")
_WORDS: Final = ("none", "fixed", "linear", "exponential")
_FIELDS: Final = (
    "max_attempts", "attempts", "initial_delay", "delay", "backoff", "backoff_multiplier", "max_delay", "jitter",
    "retry_on", "retry_on_status", "backoff_seconds",
)  # fmt: skip
_RULE: Final = 'write spec: {{policy: {{rules: [{{when: "{when}", then: {then}}}]}}}}'


def with_retry(task: Node, say: Say, problems: Problems) -> Node:
    """Return a task whose `retry` has become a rule; what has no meaning today is told, with what to write."""
    if "retry" not in task.mapping:
        return task
    retry, at, task = task.mapping["retry"], task.key_place("retry"), task.without("retry")
    if retry.value is False or retry.value is None:
        say("retry", "remove it: a task is tried once unless a rule says more", at)
        return task
    if task.get("spec", "policy") is not None:
        said = "retry stands beside spec.policy, and nobody can tell which of them comes first"
        problems.error(
            "given_twice", said, at, "write it as one of the rules: {when: …, then: {do: retry, attempts: 3}}"
        )
        return task
    given = _given(retry, problems)
    if given is None:
        return task
    when, then = _condition(given), _consequence(given)
    shown = ", ".join(f"{key}: {_written(node)}" for key, node in then.mapping.items())
    say(f"retry{_changed(given)}", _RULE.format(when=when, then=f"{{{shown}}}"), at)
    rule = Node({"when": Node(when, at), "then": then}, at)
    policy = Node({"rules": Node([rule], at)}, at)
    return task.with_entry("spec", (task.get("spec") or Node({}, at)).with_entry("policy", policy, at))


def _given(retry: Node, problems: Problems) -> Node | None:
    """Return the mapping that a `retry` stands for, or None where it cannot be read."""
    if retry.value is True:
        return Node({}, retry.place)
    if isinstance(retry.value, int):
        return Node({"max_attempts": retry}, retry.place)
    if not isinstance(retry.value, dict):
        hint = "write retry: {max_attempts: 3}, or better a rule of spec.policy"
        problems.error("wrong_value", "retry must be true, a number of tries or a mapping", retry.place, hint)
        return None
    found = len(problems.errors)
    for key in retry.mapping:
        _hold(retry, key, problems)
    return retry if len(problems.errors) == found else None


def _hold(retry: Node, key: str, problems: Problems) -> None:
    """Note what a field of a `retry` says that no rule can mean."""
    at, value = retry.key_place(key), retry.mapping[key]
    if key in _CONDITIONS:
        said = f"retry.{key} asks names that rules do not have"
        hint = 'write a rule of spec.policy: {when: "{{ output.error.kind == … }}", then: {do: retry}}'
        problems.error("removed_field", said, at, f"{hint}; output.http.status is the status of an answer")
    elif key not in _FIELDS:
        problems.error("unknown_field", f"retry.{key} is not a field of a retry", at, suggest(key, _FIELDS))
    elif key == "retry_on":
        for word in value.items or [value]:
            if word.text not in _KINDS:
                said = "retry.retry_on names no kind of error"
                problems.error("wrong_value", said, word.place, suggest(str(word.value), _KINDS))
    elif key == "retry_on_status":
        if not all(isinstance(status.value, int) for status in value.items or [value]):
            problems.error("wrong_value", "retry.retry_on_status lists no statuses", at, "write [429, 503]")
    elif key == "backoff_seconds" and not (_is_number(value) or is_template(value.value)):
        problems.error("wrong_value", "retry.backoff_seconds is no number", value.place, "write the seconds")
    elif key == "backoff" and not _is_number(value) and value.text not in _WORDS:
        hint = f"one of {', '.join(_WORDS)}, or the seconds between two tries"
        problems.error("wrong_value", "retry.backoff is neither a way to grow nor a number", value.place, hint)


def _condition(given: Node) -> str:
    words, statuses, asked = given.get("retry_on"), given.get("retry_on_status"), []
    if words is not None:
        kinds = dict.fromkeys(kind for word in (words.items or [words]) for kind in _KINDS[str(word.value)])
        asked.append(f"output.error.kind in {list(kinds)}")
    if statuses is not None:
        asked.append(f"output.error.http_status in {[status.value for status in statuses.items or [statuses]]}")
    if not asked:
        return "{{ output.status == 'error' }}"
    which = asked[0] if len(asked) == 1 else f"({' or '.join(asked)})"
    return f"{{{{ output.status == 'error' and {which} }}}}"


def _consequence(given: Node) -> Node:
    place = given.place
    seconds = given.get("backoff")
    attempts = given.get("max_attempts") or given.get("attempts") or Node(3, place)
    delay = given.get("initial_delay") or given.get("delay") or Node(1, place)
    if seconds is not None and _is_number(seconds):
        delay = seconds
    delay = given.get("backoff_seconds") or delay
    word = _backoff(given)
    return Node({"do": Node("retry", place), "attempts": attempts, "backoff": Node(word, place), "delay": delay}, place)


def _backoff(given: Node) -> str:
    growth, factor = given.get("backoff"), given.get("backoff_multiplier")
    if growth is not None:
        return "fixed" if _is_number(growth) else str(growth.value)
    if "backoff_seconds" in given.mapping and factor is None:
        return "fixed"
    return "fixed" if factor is not None and factor.value == 1 else "exponential"


def _changed(given: Node) -> str:
    """Say what of a `retry` a rule does in another way."""
    factor, left = given.get("backoff_multiplier"), [key for key in ("max_delay", "jitter") if key in given.mapping]
    doubled = factor is not None and factor.value not in (1, 2)
    said = [*(["its delay doubles"] if doubled else []), *([f"{' and '.join(left)} have no effect"] if left else [])]
    return f" ({'; '.join(said)})" if said else ""


def _written(node: Node) -> str:
    return f'"{node.text}"' if is_template(node.value) else str(node.value)


def _is_number(node: Node) -> bool:
    value: Any = node.value
    return isinstance(value, int | float) and not isinstance(value, bool)
