from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.engine.tools.outcome import Outcome, failed
from noetl.engine.worker.policy import DELAY_MAX, Verdict, backed_off, compile_policy, decide
from noetl.errors import TemplateFailed
from noetl.language.playbook.model import Policy, Rule, Then
from noetl.language.templates.scopes import names_of

OK = Outcome(data={"n": 1})
BUSY = failed("rate_limit", "slow down", retryable=True, retry_after=7.0)


def verdict(policy: Policy | None, outcome: Outcome, attempt: int = 1, **ctx: Any) -> Verdict:
    names = names_of(execution_id=1, ctx=ctx, output=outcome.as_output(attempt=attempt, duration_ms=1.0))
    return decide(None if policy is None else compile_policy(policy, "step s, task t"), names, outcome, attempt)


def policy(*rules: tuple[Any, Then], **fields: Any) -> Policy:
    return Policy(rules=tuple(Rule(when=when, then=then) for when, then in rules), **fields)


def test_without_a_policy_an_ok_continues_and_an_error_fails() -> None:
    assert verdict(None, OK).do == "continue"
    assert verdict(None, BUSY).do == "fail"


@pytest.mark.parametrize("outcome", [OK, BUSY])
def test_without_a_match_it_is_as_without_a_policy_unless_the_policy_says_otherwise(outcome: Outcome) -> None:
    never = (False, Then(do="break"))
    assert verdict(policy(never), outcome).do == verdict(None, outcome).do
    assert verdict(policy(never, on_unmatched="continue"), outcome).do == "continue"
    assert verdict(policy(never, on_unmatched="fail"), outcome).do == "fail"


def test_the_first_rule_that_holds_decides() -> None:
    rules = policy(
        ("{{ output.data.n == 2 }}", Then(do="fail")),
        ("{{ output.data.n == 1 }}", Then(do="jump", to="fetch", set={"ctx.x": 1})),
        (None, Then(do="break")),
    )
    found = verdict(rules, OK)
    assert (found.do, found.to, found.rule_index) == ("jump", "fetch", 1)
    assert [assignment.dotted for assignment in found.set] == ["x"]
    assert verdict(rules, Outcome(data={"n": 3})).rule_index == 2


@pytest.mark.parametrize(
    ("when", "holds"), [(True, True), ("true", True), ("{{ 2 }}", False), ("{{ 'ready' }}", False)]
)
def test_a_rule_holds_only_if_it_is_plainly_true(when: Any, holds: bool) -> None:
    assert (verdict(policy((when, Then(do="break"))), OK).do == "break") is holds


def test_a_retry_counts_all_tries_and_then_fails() -> None:
    rules = policy((None, Then(do="retry", attempts="{{ ctx.tries }}", backoff="fixed", delay="{{ ctx.wait }}")))
    error = failed("timeout", "late")
    assert [verdict(rules, error, attempt, tries=3, wait=2).do for attempt in (1, 2, 3)] == ["retry", "retry", "fail"]
    assert verdict(rules, error, 1, tries=3, wait="0.5").delay_seconds == 0.5
    assert verdict(rules, error, 3, tries=3, wait=2).is_exhausted


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [("none", [0, 0, 0]), ("fixed", [2, 2, 2]), ("linear", [2, 4, 6]), ("exponential", [2, 4, 8])],
)
def test_the_wait_grows_as_the_backoff_says(backoff: Any, delays: list[float]) -> None:
    rules = policy((None, Then(do="retry", attempts=9, backoff=backoff, delay=2)))
    assert [verdict(rules, failed("timeout", "late"), attempt).delay_seconds for attempt in (1, 2, 3)] == delays


def test_the_wait_is_at_least_what_the_other_side_asks_for() -> None:
    assert verdict(policy((None, Then(do="retry"))), BUSY).delay_seconds == 7.0
    assert verdict(policy((None, Then(do="retry", backoff="fixed", delay=9))), BUSY).delay_seconds == 9.0


@pytest.mark.parametrize("field", ["attempts", "delay"])
@pytest.mark.parametrize("value", ["many", None, True, -1, "nan", "{{ ctx }}"])
def test_a_number_that_is_none_is_an_error(field: str, value: Any) -> None:
    with pytest.raises(TemplateFailed, match=f"^step s, task t, rule 1, field {field}: a number"):
        verdict(policy((None, Then(do="retry", **{field: value}))), BUSY)


def test_a_rule_that_cannot_be_rendered_is_an_error_that_names_it() -> None:
    with pytest.raises(TemplateFailed, match=r"^step s, task t, rule 2, field when: 'output\.pg' is undefined"):
        verdict(policy((False, Then()), ("{{ output.pg.code == '1' }}", Then())), OK)


outcomes = st.sampled_from([OK, BUSY, failed("timeout", "late", retry_after=1e9)])
rules = st.builds(
    Rule,
    when=st.sampled_from([None, True, False, "{{ output.status == 'error' }}", "no", "{{ output.meta.attempt > 2 }}"]),
    then=st.builds(
        Then,
        do=st.sampled_from(["continue", "retry", "jump", "break", "fail"]),
        attempts=st.integers(1, 10**6),
        backoff=st.sampled_from(["none", "fixed", "linear", "exponential"]),
        delay=st.floats(0, 1e300),
        to=st.just("x"),
    ),
)


@given(st.lists(rules, max_size=4), st.sampled_from([None, "continue", "fail"]), outcomes, st.integers(1, 10**7))
def test_every_policy_decides_and_no_wait_is_longer_than_the_cap(
    given_rules: list[Rule], on_unmatched: Any, outcome: Outcome, attempt: int
) -> None:
    found = verdict(Policy(rules=tuple(given_rules), on_unmatched=on_unmatched), outcome, attempt)
    assert 0 <= found.delay_seconds <= DELAY_MAX
    if found.do == "retry":
        assert found.rule_index is not None
        assert attempt < given_rules[found.rule_index].then.attempts
    if found.rule_index is None:
        assert found.do == (on_unmatched or ("continue" if outcome.status == "ok" else "fail"))


@given(st.sampled_from(["none", "fixed", "linear", "exponential"]), st.floats(0, 1e6), st.integers(1, 10**9))
def test_no_backoff_ever_shortens_from_one_try_to_the_next(backoff: Any, delay: float, tries: int) -> None:
    assert backed_off(backoff, delay, tries) <= backed_off(backoff, delay, tries + 1)
