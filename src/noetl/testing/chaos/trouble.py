"""Lets the planned incidents happen to an installation, each in its time, several at once where they overlap."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from noetl.testing.chaos.installation import SERVERS, Installation
from noetl.testing.chaos.plan import Incident

LOOK_SECONDS = 1.0


class Trouble:
    """One run of incidents. A target has one incident at a time; a second one on it is left out and counted as such."""

    def __init__(self, installation: Installation, say: Callable[[str], None]) -> None:
        self._installation = installation
        self._say = say
        self._busy: set[str] = set()
        self.happened: dict[str, int] = {}
        self.left_out = 0
        self.killed_in_grace: list[str] = []
        """Roles that did not end in time when they were asked to."""

    async def happen(self, incidents: tuple[Incident, ...], seconds: float) -> None:
        """Return when all are over and the time of the run is up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        watching = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as tasks:
                for incident in incidents:
                    await asyncio.sleep(max(0.0, began + incident.at - loop.time()))
                    if incident.target in self._busy:
                        self.left_out += 1
                        continue
                    self._busy.add(incident.target)
                    self._say(f"{incident.at:7.1f} s  {incident.kind} {incident.target} for {incident.seconds:g} s")
                    tasks.create_task(self._one(incident))
                await asyncio.sleep(max(0.0, began + seconds - loop.time()))
        finally:
            watching.cancel()

    async def _one(self, incident: Incident) -> None:
        try:
            await self._inflict(incident)
            name = f"{incident.kind} {incident.target}"
            self.happened[name] = self.happened.get(name, 0) + 1
        finally:
            self._busy.discard(incident.target)

    async def _inflict(self, incident: Incident) -> None:
        here, target = self._installation, incident.target
        if target in SERVERS:
            await here.take_away(target, crash=incident.kind == "kill")
            await asyncio.sleep(incident.seconds)
            await here.bring_back(target)
        elif target == "spark":
            here.spark(signal.SIGSTOP if incident.kind == "pause" else signal.SIGKILL)
            if incident.kind == "pause":
                await asyncio.sleep(incident.seconds)
                here.spark(signal.SIGCONT)
        elif incident.kind == "full_disk":
            await asyncio.to_thread(here.disk.fill)
            await asyncio.sleep(incident.seconds)
            here.disk.free()
        elif incident.kind == "clock":
            here.clocks.set(target, incident.step)
            await asyncio.sleep(incident.seconds)
            here.clocks.set(target, 0.0)
        else:
            await self._to_role(incident)

    async def _to_role(self, incident: Incident) -> None:
        role = self._installation.roles[incident.target]
        if incident.kind == "pause":
            role.pause()
            await asyncio.sleep(incident.seconds)
            role.resume()
            return
        if incident.kind == "kill":
            await asyncio.to_thread(role.kill)
        elif not await asyncio.to_thread(role.stop):
            self.killed_in_grace.append(role.name)
        await asyncio.sleep(incident.seconds)
        role.start()

    async def _watch(self) -> None:
        """Start roles again that ended by themselves, as an orchestrator does."""
        while True:
            for role in self._installation.roles.values():
                if role.name not in self._busy:
                    role.look()
            await asyncio.sleep(LOOK_SECONDS)
