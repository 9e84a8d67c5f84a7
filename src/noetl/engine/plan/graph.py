"""The graph of a workflow: which steps lead where. Pure, made once per playbook."""

from __future__ import annotations

from collections.abc import Mapping

from noetl.language.playbook.model import Step


class Graph:
    """Answers which step can still lead to which, and which of two comes first."""

    def __init__(self, steps: Mapping[str, Step], entry: str) -> None:
        self.targets: dict[str, tuple[str, ...]] = {
            name: tuple(dict.fromkeys(arc.step for arc in step.router.arcs)) if step.router else ()
            for name, step in steps.items()
        }
        self.sources: dict[str, frozenset[str]] = {
            name: frozenset(source for source, targets in self.targets.items() if name in targets) for name in steps
        }
        self._onward = _without_ways_back(self.targets, entry)
        self._reach: dict[tuple[str, str], bool] = {}
        self._before: dict[tuple[str, str], bool] = {}

    def is_reduce(self, step: str) -> bool:
        """Tell whether several steps lead to this one, so that it waits for all of them that may still come."""
        return len(self.sources[step] - {step}) >= 2

    def reaches(self, start: str, goal: str) -> bool:
        """Tell whether a run of `start` may still lead to `goal`."""
        known = self._reach.get((start, goal))
        if known is None:
            known = self._reach[start, goal] = _leads(self.targets, start, goal)
        return known

    def is_before(self, start: str, goal: str) -> bool:
        """Tell whether `start` leads to `goal` without going back, so that of two steps at most one is before the other."""
        known = self._before.get((start, goal))
        if known is None:
            known = self._before[start, goal] = _leads(self._onward, start, goal)
        return known


def _leads(targets: Mapping[str, tuple[str, ...]], start: str, goal: str) -> bool:
    seen: set[str] = set()
    left = [start]
    while left:
        for target in targets.get(left.pop(), ()):
            if target == goal:
                return True
            if target not in seen:
                seen.add(target)
                left.append(target)
    return False


def _without_ways_back(targets: Mapping[str, tuple[str, ...]], entry: str) -> dict[str, tuple[str, ...]]:
    """Return the graph without the arcs that close a ring, as they are met on the way from the entry, in order."""
    onward: dict[str, tuple[str, ...]] = {}
    under_way: dict[str, list[str]] = {}
    for root in (entry, *targets):
        path = [root] if root in targets and root not in onward else []
        while path:
            step = path[-1]
            if step not in under_way:
                under_way[step] = []
                onward[step] = ()
            following = next((name for name in targets.get(step, ()) if name not in under_way[step]), None)
            if following is None:
                path.pop()
                continue
            under_way[step].append(following)
            if following in path:
                continue
            onward[step] += (following,)
            if following not in onward:
                path.append(following)
    return onward
