"""A seed gives the same trouble every time, and every kind of it comes."""

from __future__ import annotations

from noetl.testing.chaos.plan import LONGEST, SETTLE_SECONDS, WEIGHTS, Targets, planned

EVERYTHING = Targets(
    processes=("server", "worker", "spark"), servers=("postgres", "s3"), disks=("node",), clocks=("server",)
)


def test_the_same_seed_gives_the_same_incidents_and_another_gives_others() -> None:
    assert planned(3, 600, EVERYTHING) == planned(3, 600, EVERYTHING)
    assert planned(3, 600, EVERYTHING) != planned(4, 600, EVERYTHING)


def test_every_kind_comes_within_its_bounds() -> None:
    found = planned(1, 3600, EVERYTHING)
    assert {one.kind for one in found} == set(WEIGHTS)
    for one in found:
        assert one.target in EVERYTHING.of(one.kind)
        assert SETTLE_SECONDS <= one.at < 3600
        assert 0 <= one.seconds <= LONGEST[one.kind]
        assert one.at + one.seconds <= 3600.01
        assert (one.step != 0) == (one.kind == "clock")


def test_what_has_no_target_does_not_happen() -> None:
    found = planned(1, 3600, Targets(processes=("worker",), servers=()))
    assert {one.kind for one in found} == {"kill", "pause", "stop"}
