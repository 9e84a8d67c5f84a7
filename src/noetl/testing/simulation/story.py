"""A broken invariant as a story that people read: who was there, what was asked for, what went wrong, and what happened."""

from __future__ import annotations

from noetl.testing.simulation.faults import AnyFault, Fault
from noetl.testing.simulation.running import Outcome

SHOWN = 60
"""Lines before the end that are shown; what went wrong is always shown whole."""


def told(outcome: Outcome, *, whole: bool = False, mutation: str | None = None) -> str:
    """Return a story, or one sentence where nothing is broken."""
    scenario, broken = outcome.scenario, outcome.broken
    again = f"python -m noetl.testing.simulation --seed {scenario.seed}"
    if mutation is not None:
        again += f" --mutation {mutation}"
    if broken is None:
        ends = ", ".join(f"{name} {how}" for name, how in outcome.ends)
        return f"seed {scenario.seed}: all invariants held through {outcome.events} events in {outcome.seconds:g} s: {ends}\n"
    lines = [f"seed {scenario.seed} breaks an invariant: {broken.invariant}", f"  {broken.what}", ""]
    lines += ["There are " + ", ".join(scenario.processes) + ".", "Asked for:"]
    lines += [f"  {one.at:8.2f}  {one}" for one in scenario.wanted]
    lines += [f"  {one.at:8.2f}  {one}" for one in scenario.acts]
    lines += (
        ["Going wrong:", *(f"  {_when(one)}  {one}" for one in scenario.faults)]
        if scenario.faults
        else ["Nothing goes wrong."]
    )
    left = outcome.lines if whole else outcome.lines[-SHOWN:]
    skipped = len(outcome.lines) - len(left)
    lines += ["", "What happened:", *([f"  … {skipped} lines before"] if skipped else [])]
    lines += [f"  {line.at:8.3f}  {line.who:<12} {line.what}" for line in left]
    return "\n".join([*lines, "", f"again: {again}", ""])


def _when(fault: AnyFault) -> str:
    return f"{fault.at:8.2f}" if isinstance(fault, Fault) else " " * 8
