"""What follows a task's outcome: a policy, the names with `output` and the number of tries go in, a verdict comes out."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from noetl.engine.tools.outcome import Outcome
from noetl.errors import TemplateFailed
from noetl.language.playbook.model import Backoff, Policy, Rule, Verb
from noetl.language.templates.origins import origins_at
from noetl.language.templates.scopes import CompiledSet, Names, compile_set
from noetl.language.templates.template import CompiledValue, compile_value, holds

DELAY_MAX = 300.0
_DOUBLINGS_MAX = 64


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. `rule_index` counts from 0 and is None where no rule decided."""

    do: Verb
    delay_seconds: float = 0.0
    to: str | None = None
    set: CompiledSet = ()
    rule_index: int | None = None
    is_exhausted: bool = False
    """The rule says retry, but all tries are used up."""


CONTINUE = Verdict(do="continue")
FAIL = Verdict(do="fail")


class CompiledRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule ready to be asked often."""

    when: CompiledValue | None
    do: Verb
    attempts: CompiledValue
    backoff: Backoff
    delay: CompiledValue
    to: str | None
    set: CompiledSet
    verdict: Verdict | None
    """What it says, where that is the same every time."""
    where: str


class CompiledPolicy(msgspec.Struct, frozen=True):
    """A policy ready to be asked often."""

    rules: tuple[CompiledRule, ...]
    on_unmatched: Literal["continue", "fail"] | None


def compile_policy(policy: Policy, where: str) -> CompiledPolicy:
    """Return a policy ready to be asked often."""
    rules = tuple(_compile_rule(rule, index, f"{where}, rule {index + 1}") for index, rule in enumerate(policy.rules))
    return CompiledPolicy(rules, policy.on_unmatched)


def _compile_rule(rule: Rule, index: int, where: str) -> CompiledRule:
    then, below = rule.then, origins_at(rule.origins, "then")
    when, written = origins_at(rule.origins, "when"), compile_set(then.set, where, origins_at(below, "set"))
    return CompiledRule(
        when=None if rule.when is None else compile_value(rule.when, f"{where}, field when", when, reading="condition"),
        do=then.do,
        attempts=compile_value(then.attempts, f"{where}, field attempts", origins_at(below, "attempts")),
        backoff=then.backoff,
        delay=compile_value(then.delay, f"{where}, field delay", origins_at(below, "delay")),
        to=then.to,
        set=written,
        verdict=None if then.do == "retry" else Verdict(do=then.do, to=then.to, set=written, rule_index=index),
        where=where,
    )


def decide(policy: CompiledPolicy | None, names: Names, outcome: Outcome, attempt: int) -> Verdict:
    """Return what the first matching rule says about the outcome of a try; `names` hold it as `output`."""
    if policy is not None:
        for index, rule in enumerate(policy.rules):
            if rule.when is None or holds(rule.when.render(names), "policy"):
                return _verdict(rule, index, names, outcome, attempt)
        if policy.on_unmatched is not None:
            return CONTINUE if policy.on_unmatched == "continue" else FAIL
    return CONTINUE if outcome.status == "ok" else FAIL


def _verdict(rule: CompiledRule, index: int, names: Names, outcome: Outcome, attempt: int) -> Verdict:
    if rule.verdict is not None:
        return rule.verdict
    if attempt >= _number(rule.attempts.render(names), rule.where, "attempts", least=1):
        return Verdict(do="fail", rule_index=index, is_exhausted=True)
    delay = _number(rule.delay.render(names), rule.where, "delay", least=0)
    wanted = 0.0 if outcome.error is None else outcome.error.retry_after or 0.0
    seconds = max(backed_off(rule.backoff, delay, attempt), wanted)
    return Verdict(do="retry", delay_seconds=min(seconds, DELAY_MAX), set=rule.set, rule_index=index)


def backed_off(backoff: Backoff, delay: float, tries: int) -> float:
    """Return how long to wait after so many tries, before any cap."""
    if backoff == "none":
        return 0.0
    if backoff == "linear":
        return delay * tries
    if backoff == "exponential":
        return delay * 2.0 ** min(tries - 1, _DOUBLINGS_MAX)
    return delay


def _number(value: Any, where: str, field: str, *, least: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not number >= least:
        place = f"{where}, field {field}"
        raise TemplateFailed(f"{place}: a number of at least {least} is needed", where=place)
    return number
