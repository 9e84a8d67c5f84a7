"""Runs seeds: `python -m noetl.testing.simulation --seeds 300`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from noetl.testing.simulation.mutations import BY_NAME, MUTATIONS, NONE, Mutation
from noetl.testing.simulation.running import Outcome, simulate
from noetl.testing.simulation.scenario import scenario_of
from noetl.testing.simulation.shrinking import shrunk
from noetl.testing.simulation.story import told

_EXAMPLES = """\
examples:
  python -m noetl.testing.simulation --seeds 300              run seeds 0 to 299, stop at the first that breaks an invariant
  python -m noetl.testing.simulation --seed 42                run one seed, and tell its whole story
  python -m noetl.testing.simulation --from 5000 --seeds 500  run other seeds
  python -m noetl.testing.simulation --mutation ring-of-steps put a bug back in, and see it found
  python -m noetl.testing.simulation --list                   list the bugs that can be put back in

exit code: 0 where all invariants held, 1 where one is broken (with --mutation the other way round), 2 for a wrong option.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for, and return the exit code."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        _say("\n".join(f"{one.name:<52} {one.says}" for one in MUTATIONS))
        return 0
    mutation = NONE if asked.mutation is None else BY_NAME[asked.mutation]
    first, count = (asked.seed, 1) if asked.seed is not None else (asked.first, asked.seeds)
    began = time.monotonic()
    ran, outcome = _run(range(first, first + count), mutation, quiet=asked.json)
    seconds = time.monotonic() - began
    is_broken = outcome is not None and outcome.broken is not None
    if outcome is not None and is_broken and not asked.as_is:
        outcome = shrunk(outcome, mutation)
    if asked.json:
        _say(json.dumps(_described(outcome, ran, seconds)))
    elif outcome is not None and (is_broken or asked.seed is not None):
        _say(told(outcome, whole=asked.seed is not None, mutation=asked.mutation).rstrip())
    if not asked.json and not is_broken:
        _say(f"{ran} seeds, all invariants held, {seconds:.1f} s")
    return int(is_broken is (asked.mutation is None))


def _run(seeds: range, mutation: Mutation, *, quiet: bool) -> tuple[int, Outcome | None]:
    outcome = None
    for ran, seed in enumerate(seeds, 1):
        outcome = simulate(scenario_of(seed, mutation.only, mutation.late), mutation)
        if outcome.broken is not None:
            return ran, outcome
        if not quiet and ran % 50 == 0 and sys.stderr.isatty():
            sys.stderr.write(f"\r{ran} of {len(seeds)} seeds")
    if not quiet and sys.stderr.isatty():
        sys.stderr.write("\n")
    return len(seeds), outcome


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _described(outcome: Outcome | None, ran: int, seconds: float) -> dict[str, object]:
    found: dict[str, object] = {"seeds": ran, "seconds": round(seconds, 3), "broken": None}
    if outcome is not None and outcome.broken is not None:
        found["broken"] = {
            "seed": outcome.scenario.seed,
            "invariant": outcome.broken.invariant,
            "what": outcome.broken.what,
            "story": [[round(line.at, 3), line.who, line.what] for line in outcome.lines],
        }
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m noetl.testing.simulation",
        description="Run NoETL under a virtual clock with seeded faults, and check its invariants at every step.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=300, metavar="N", help="how many seeds to run (300)")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="the first of them (0)")
    parser.add_argument("--seed", type=int, metavar="N", help="run this one seed and tell its story")
    parser.add_argument("--mutation", choices=sorted(BY_NAME), metavar="NAME", help="put a bug back in, by its name")
    parser.add_argument("--as-is", action="store_true", help="do not make a failing seed smaller")
    parser.add_argument("--list", action="store_true", help="list the bugs that can be put back in")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
