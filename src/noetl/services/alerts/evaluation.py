"""Evaluates the rules that organizations applied: each is looked up in the ledger and judged, whatever becomes of others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.language.alert.rule import Rule
from noetl.model.stream import Scope
from noetl.services.alerts.applied_rules import AppliedRules, channels_of, kinds_of, read_applied
from noetl.services.alerts.conditions import look
from noetl.services.alerts.findings import Found, Rules
from noetl.services.alerts.judgement import Judgement, Judging

_log = logging.getLogger(__name__)

OWNER: Final = "rules/"
_SCOPES: Final = """
SELECT tenant_id, organization_id FROM noetl.alert_rules
UNION SELECT tenant_id, organization_id FROM noetl.alert WHERE status = 'open'
"""
_LEFT: Final = """
SELECT DISTINCT owner, rule FROM noetl.alert WHERE status = 'open' AND starts_with(owner, 'rules/')
"""
_JOBS_GONE: Final = """
SELECT DISTINCT a.owner, a.rule, a.part, a.seen_event_id FROM noetl.alert AS a
WHERE a.status = 'open' AND starts_with(a.owner, 'job/') AND NOT EXISTS (
    SELECT FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
    WHERE j.dag = substring(a.owner FROM 5) AND j.name = a.rule AND j.operator = 'alert_evaluate'
      AND v.status IN ('building', 'failed', 'ready', 'active'))
"""


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one round."""

    rules: int = 0
    raised: int = 0
    resolved: int = 0
    failed: int = 0
    """Rules that could not be evaluated; the log says why."""

    def __add__(self, other: Evaluated) -> Evaluated:
        return Evaluated(
            rules=self.rules + other.rules,
            raised=self.raised + other.raised,
            resolved=self.resolved + other.resolved,
            failed=self.failed + other.failed,
        )


class Evaluating:
    """Evaluates for all organizations of one database; any number may do so at once."""

    def __init__(self, database: Database, applied: AppliedRules, judging: Judging) -> None:
        self._database = database
        self._applied = applied
        self._judging = judging

    async def all(self, evaluation: str) -> Evaluated:
        """Evaluate every rule of every organization, once; `evaluation` names this round."""
        async with self._database.transaction(None, "reaper") as connection:
            scopes = [Scope(row[0], row[1]) for row in await connection.fetch(_SCOPES)]
        total = Evaluated()
        for scope in scopes:
            total += await self.scope(scope, evaluation)
        return total

    async def scope(self, scope: Scope, evaluation: str) -> Evaluated:
        """Evaluate every rule of one organization, and resolve what rules left behind that are no more."""
        async with self._database.transaction(scope) as connection:
            applied = await read_applied(connection)
            left = {Rules(row["owner"], row["rule"]) for row in await connection.fetch(_LEFT)}
            gone = await connection.fetch(_JOBS_GONE)
        kinds, total = kinds_of(channels_of(applied)), Evaluated()
        for one in applied:
            for rule in one.document.parsed():
                rules = Rules(f"{OWNER}{one.document.name}", rule.name)
                left.discard(rules)
                total += await self._tried(scope, rules, rule, evaluation, kinds)
        over = [Judgement(rules=rules, evaluation=evaluation, found=()) for rules in left]
        over += [
            Judgement(
                rules=Rules(row["owner"], row["rule"]), evaluation=evaluation, found=(), part=row["part"],
                seen_event_id=row["seen_event_id"],
            )
            for row in gone
        ]  # fmt: skip
        for judgement in over:
            total += Evaluated(resolved=(await self._judging.judge(scope, judgement, kinds)).resolved)
        return total

    async def _tried(
        self, scope: Scope, rules: Rules, rule: Rule, evaluation: str, kinds: Mapping[str, str]
    ) -> Evaluated:
        try:
            async with self._database.transaction(scope) as connection:
                looked = await look(connection, rule.condition)
            judgement = Judgement(
                rules=rules,
                evaluation=evaluation,
                found=[as_said(one, rule) for one in looked.found],
                holds=None if looked.holds is None else {rules.alert_id(one) for one in looked.holds},
                route=rule.route,
            )
            judged = await self._judging.judge(scope, judgement, kinds)
        except NoetlError as problem:
            _log.warning("the rule %s of %s could not be evaluated: %s", rule.name, rules.owner, problem.message)
            return Evaluated(rules=1, failed=1)
        except Exception:
            _log.exception("the rule %s of %s could not be evaluated", rule.name, rules.owner)
            return Evaluated(rules=1, failed=1)
        return Evaluated(rules=1, raised=judged.raised, resolved=judged.resolved)


def as_said(found: Found, rule: Rule) -> Found:
    """Give what was found the severity and the title of its rule."""
    return msgspec.structs.replace(found, severity=rule.severity, title=rule.title or found.title)
