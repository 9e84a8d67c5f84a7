"""The graph of a workflow: which steps lead where. Pure, made once per playbook."""

from __future__ import annotations

from collections.abc import Mapping

from noetl.playbook.model import Step


class Graph:
    """Answers which step can still lead to which."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self.targets: dict[str, tuple[str, ...]] = {
            name: tuple(dict.fromkeys(arc.step for arc in step.router.arcs)) if step.router else ()
            for name, step in steps.items()
        }
        self.sources: dict[str, frozenset[str]] = {
            name: frozenset(source for source, targets in self.targets.items() if name in targets) for name in steps
        }
        self._reach: dict[tuple[str, str], bool] = {}

    def is_reduce(self, step: str) -> bool:
        """Tell whether several steps lead to this one, so that it waits for all of them that may still come."""
        return len(self.sources[step] - {step}) >= 2

    def reaches(self, start: str, goal: str) -> bool:
        """Tell whether a run of `start` may still lead to `goal`, by a way that does not pass `goal` before."""
        known = self._reach.get((start, goal))
        if known is None:
            known = self._reach[start, goal] = self._search(start, goal)
        return known

    def _search(self, start: str, goal: str) -> bool:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in self.targets.get(left.pop(), ()):
                if target == goal:
                    return True
                if target not in seen:
                    seen.add(target)
                    left.append(target)
        return False
