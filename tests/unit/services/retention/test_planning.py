"""Which data go is decided by rules that another, slower way of saying them agrees with, whatever the history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from noetl.services.retention.decisions import GenerationFate, planned
from noetl.services.retention.facts import Facts, Generation, Held, Version
from noetl.services.retention.policy import Policy

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = 40


def at(day: float) -> datetime:
    return START + day * DAY


@st.composite
def generations(draw: st.DrawFn, name: str) -> Generation:
    """A generation with partitions that were committed at whole days, and spans in which it served."""
    versions = []
    for key in draw(st.sets(st.sampled_from("ab"), min_size=1)):
        commits = sorted(draw(st.sets(st.integers(0, NOW), min_size=1, max_size=4)))
        for number, (begun, ended) in enumerate(zip(commits, [*commits[1:], None], strict=True), 1):
            superseded = None if ended is None else at(ended)
            versions.append(
                Version(partition_key=key, version=number, committed_at=at(begun), superseded_at=superseded)
            )
    moments = sorted(draw(st.sets(st.integers(0, NOW), max_size=4)))
    spans = [(at(begun), at(ended)) for begun, ended in zip(moments[::2], moments[1::2], strict=False)]
    uses = draw(st.sets(st.sampled_from(["current", "candidate", "rollback target", "1 open task"]), max_size=2))
    last = max([version.committed_at for version in versions] + [ended for _, ended in spans])
    return Generation(
        dataset_version=name, dataset_uuid=draw(st.sampled_from(["orders", "sales"])), dataset="d", dag="shop",
        generation=name, location=f"t/o/datasets/d/gen={name}/", created_at=START, uses=tuple(sorted(uses)),
        served=tuple(spans), last_used_at=last, retired=not uses and draw(st.booleans()), versions=tuple(versions),
    )  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> tuple[Facts, Policy]:
    """Some generations, who needs what by name, and a policy."""
    every = tuple(draw(generations(f"g{number}")) for number in range(draw(st.integers(1, 4))))
    keys = [(one.dataset_version, version.partition_key, version.version) for one in every for version in one.versions]
    pinned, read = (draw(st.lists(st.sampled_from(keys), max_size=3)) for _ in range(2))
    days = st.none() | st.integers(0, NOW)
    policy = Policy(
        as_of_days=draw(days),
        generation_days=draw(days),
        keep_generations=draw(st.integers(0, 2)),
        grace_hours=draw(st.sampled_from([0, 24, 72])),
    )
    held = Held(pinned=dict.fromkeys(pinned, "p"), read=dict.fromkeys(read, "t"))
    return Facts(now=at(NOW), generations=every, held=held), policy


def seen_by_a_reader(one: Generation, version: Version, since: datetime) -> bool:
    """Look at every half day whether a reader saw the version then."""
    for half in range(2 * NOW + 1):
        moment = at(half / 2)
        visible = version.committed_at <= moment and (version.superseded_at is None or moment < version.superseded_at)
        served = any(begun <= moment and (ended is None or moment < ended) for begun, ended in one.served)
        if moment >= since and visible and served:
            return True
    return False


def spared(facts: Facts, policy: Policy) -> set[str]:
    found = set()
    for dataset in ("orders", "sales"):
        rest = [one for one in facts.generations if one.dataset_uuid == dataset and not one.uses and not one.retired]
        rest.sort(key=lambda one: (one.last_used_at, one.dataset_version))
        found |= {one.dataset_version for one in rest[len(rest) - policy.keep_generations :]}
    return found if policy.keep_generations else set()


@given(histories())
def test_what_something_needs_never_goes_and_all_the_rest_does(history: tuple[Facts, Policy]) -> None:
    """INV-81."""
    facts, policy = history
    keeping = spared(facts, policy)
    for fate in planned(facts, policy):
        one = fate.generation
        unused_long = policy.generation_days is not None and facts.now - one.last_used_at > (
            policy.generation_days * DAY + policy.grace
        )
        never_asked = policy.as_of_days is not None or not one.served
        may_end = one.retired or (unused_long and never_asked and one.dataset_version not in keeping)
        assert fate.usable == (bool(one.uses) or not may_end)
        for version, outcome in zip(one.versions, fate.versions, strict=True):
            assert outcome.kept == needed(one, version, facts, policy, usable=fate.usable), (version, outcome)
            assert outcome.why


def needed(one: Generation, version: Version, facts: Facts, policy: Policy, *, usable: bool) -> bool:
    key = (one.dataset_version, version.partition_key, version.version)
    if key in facts.held.pinned or key in facts.held.read or (usable and version.superseded_at is None):
        return True
    if version.superseded_at is not None and facts.now - version.superseded_at <= policy.grace:
        return True
    if policy.as_of_days is None:
        return usable or bool(one.served)
    return seen_by_a_reader(one, version, facts.now - policy.as_of_days * DAY - policy.grace)


@given(histories())
def test_a_generation_is_purged_whole_or_loses_single_versions_never_both(history: tuple[Facts, Policy]) -> None:
    for fate in planned(*history):
        kept = [outcome.version for outcome in fate.versions if outcome.kept]
        if fate.purged:
            assert not kept
            assert not fate.usable
            assert fate.trimmed == ()
        else:
            assert {*fate.trimmed, *kept} == {outcome.version for outcome in fate.versions}
            assert fate.usable or kept
        if fate.usable:
            assert all(version.superseded_at is not None for version in fate.trimmed)


@given(histories())
def test_carrying_a_plan_out_leaves_nothing_for_the_next(history: tuple[Facts, Policy]) -> None:
    """INV-83: what was decided holds still when it is done."""
    facts, policy = history
    fates = planned(facts, policy)
    left = Facts(now=facts.now, generations=tuple(_left(fate) for fate in fates if not fate.purged), held=facts.held)
    for fate in planned(left, policy):
        assert not fate.trimmed
        assert not fate.purged
        assert fate.usable != fate.generation.retired or fate.generation.uses


def _left(fate: GenerationFate) -> Generation:
    one = fate.generation
    kept = tuple(outcome.version for outcome in fate.versions if outcome.kept)
    return Generation(
        **{name: getattr(one, name) for name in one.__struct_fields__ if name not in ("versions", "retired")},
        versions=kept,
        retired=not fate.usable,
    )


def test_reasons_name_who_needs_it() -> None:
    version = Version(partition_key="a", version=1, committed_at=at(1), superseded_at=at(2))
    last = Version(partition_key="a", version=2, committed_at=at(2))
    one = Generation(
        dataset_version="g", dataset_uuid="d", dataset="sales", dag="shop", generation="g", location="", created_at=START,
        uses=("current", "rollback target"), served=((at(1), None),), last_used_at=at(NOW), versions=(version, last),
    )  # fmt: skip
    policy = Policy(as_of_days=1, generation_days=1, grace_hours=24)

    def whys(**held: dict[tuple[str, str, int], str]) -> list[str]:
        (fate,) = planned(Facts(now=at(NOW), generations=(one,), held=Held(**held)), policy)
        return [outcome.why for outcome in fate.versions]

    assert whys() == ["superseded", "current, rollback target"]
    assert whys(pinned={("g", "a", 1): "1b9d6bcd (audit)"})[0] == "pinned by 1b9d6bcd (audit)"
    assert whys(read={("g", "a", 1): "task 7 of shop.clean"})[0] == "read by task 7 of shop.clean"
