"""A world: servers, workers, projectors and people, wired on the adapters in memory, and whatever goes wrong among them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any

from noetl.api.access.admission import Admission
from noetl.engine.catalog.plan_cache import Plans
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.stores import EngineStores, memory_stores
from noetl.engine.plan.planned import Plan
from noetl.engine.tools.resources import WorkerResources
from noetl.engine.worker.compiled_step import CompiledSteps
from noetl.engine.worker.services import Services
from noetl.engine.worker.worker import Worker
from noetl.errors import Unavailable
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.folds.organization.fold import FoldedRows
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.pipelines.tasks.outbox import Outbox
from noetl.services.credentials.memory_tokens import MemoryTokens
from noetl.services.schedule.drafts import ScheduleDrafts
from noetl.services.schedule.handlers.starts import StartPlaybook
from noetl.services.schedule.meter import NoMeter
from noetl.services.schedule.slot_runner import RunningSlots
from noetl.services.schedule.spec import Spec
from noetl.testing.engines.memory import SCOPE, NoSecrets
from noetl.testing.samples.drafts import PRODUCER
from noetl.testing.simulation.checks.transitions import types_in
from noetl.testing.simulation.checks.watch import Watch
from noetl.testing.simulation.checks.watched_ledger import WatchedLedger
from noetl.testing.simulation.faults import MessageFault, WriteFault
from noetl.testing.simulation.scenario import Scenario
from noetl.testing.simulation.world.clock import DatabaseClock
from noetl.testing.simulation.world.loop import SimulatedLoop
from noetl.testing.simulation.world.network import Door, SimulatedDispatch, Wire, checked
from noetl.testing.simulation.world.outboxes import KIND, LEASE_SECONDS, Deferred, Deliveries, MemoryOutbox
from noetl.testing.simulation.world.playbooks import CHILD, TEXTS
from noetl.testing.simulation.world.process import Edge, Process
from noetl.testing.simulation.world.schedules import (
    LAST,
    MemoryClaiming,
    MemorySlotLeases,
    MemorySlots,
    MemoryTakingBack,
)
from noetl.testing.simulation.world.tool import Effects, SimulatedTool

COMMAND_LEASE_SECONDS = 4.0
SCHEDULE = Spec(
    expression="rate(4 seconds)",
    mode="every_plan",
    catch_up_seconds=12.0,
    run_timeout_seconds=3.0,
    stale_timeout_seconds=5.0,
    heartbeat_seconds=1.5,
    retry_backoff=(1.0, 2.0),
).checked()
IDLE_SECONDS = 3.0
_STEPS = CompiledSteps()


class World:
    """Everything that lives under one seed."""

    def __init__(
        self, scenario: Scenario, loop: SimulatedLoop, clock: DatabaseClock, change: Callable[[Any], Any]
    ) -> None:
        self.scenario = scenario
        self.loop = loop
        self.clock = clock
        self.ledger = MemoryLedger(clock, FoldedRows)
        self.stores = memory_stores(self.ledger.work, self.ledger)
        self.payloads = MemoryPayloadStore(clock)
        self.projections = MemoryProjectionStore()
        self.tokens = MemoryTokens(clock)
        self.effects = Effects()
        self.watch = Watch(self.ledger, loop, self.effects)
        self.outbox = MemoryOutbox(clock, self.watch.fail)
        self.watch.on_end = self.outbox.add if "outbox-1" in scenario.processes else lambda name: None
        self.store_away_until = 0.0
        self.living: dict[str, Process] = {}
        self.doors: dict[str, Door] = {}
        self.workers: dict[str, Worker] = {}
        self._change = change
        self._lives: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._of_write = {(one.event_type, one.number): one for one in scenario.faults if isinstance(one, WriteFault)}
        self._of_message = {(one.who, one.number): one for one in scenario.faults if isinstance(one, MessageFault)}
        self.slots = MemorySlots(self.ledger, clock, SCHEDULE, "sim/chain")
        if "scheduler-1" not in scenario.processes:
            self.slots.next_plan = LAST + timedelta(days=1)
        self._roles = {
            "server": self._server,
            "worker": self._worker,
            "projector": self._projector,
            "scheduler": self._scheduler,
            "outbox": self._outbox,
        }

    async def begin(self) -> None:
        """Register the playbooks and start every process."""
        first = self._engine(Process("setup", self.loop, "setup"), 1)
        for text in dict.fromkeys([CHILD, TEXTS["chain"], *(one.text for one in self.scenario.wanted)]):
            await first.catalog.register_checked(SCOPE, checked(text))
        for name in self.scenario.processes:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a process, for the first time or again."""
        self._lives[name] += 1
        process = Process(name, self.loop, f"{self.scenario.seed}/{name}/{self._lives[name]}")
        self.living[name] = process
        process.spawn(self._roles[name.partition("-")[0]](process), name)

    async def _server(self, process: Process) -> None:
        number = int(process.name.rpartition("-")[2])
        engine = self._engine(process, 10 * self._lives[process.name] + number)
        tokens = Edge(process, self._change(self.tokens))
        admission = Admission(tokens, required=None, default_scope=SCOPE, clock=self.loop.time)  # type: ignore[arg-type]
        payloads = engine.catalog._payloads
        self.doors[process.name] = Door(process, engine, admission, self.ledger.work, SCOPE, payloads)
        engine.reaper.start()

    def _engine(self, process: Process, node: int) -> Engine:
        ids = SnowflakeGenerator(node, self.clock.milliseconds)
        stores = self.stores
        edges = EngineStores(
            *(Edge(process, one) for one in (stores.entries, stores.work, stores.running, stores.facts))
        )
        engine = Engine(
            self._change(edges),
            self._change(WatchedLedger(process, self.ledger, self.watch, self._late)),
            Edge(process, self.payloads, self._refuse),
            ids.mint,
            ids.mint_many,
            f"{PRODUCER}/{process.name}",
            idle_seconds=IDLE_SECONDS,
            command_lease_seconds=COMMAND_LEASE_SECONDS,
        )
        engine.catalog.plans = SharedPlans()
        return engine

    def engines(self) -> list[tuple[Process, Engine]]:
        """Return the servers that are up."""
        return [(door.process, door.engine) for door in self.doors.values() if door.process.is_alive]

    def _refuse(self) -> None:
        if self.loop.time() < self.store_away_until:
            raise Unavailable("the payload store does not answer")

    async def _worker(self, process: Process) -> None:
        name = f"{process.name}.{self._lives[process.name]}"
        way = Wire(
            process,
            lambda: list(self.doors.values()),
            lambda: self._fault_of(process.name),
            self.watch.sent,
            self.watch.acknowledged,
        )
        dispatch = SimulatedDispatch(way)
        services = Services(
            scope=SCOPE,
            tools={"python": SimulatedTool(process, self.effects)},
            secrets=NoSecrets(),
            store=Edge(process, self.payloads, self._refuse),
            resources=WorkerResources(),
            find=dispatch.reference,
            steps=_STEPS,
            monotonic=self.loop.time,
        )
        worker = Worker(name, dispatch, services, slots=2, heartbeat_seconds=1.3, poll_seconds=5.0)
        self.workers[process.name] = worker
        await worker.run()

    def _late(self, transition: Transition) -> float:
        """Return for how many seconds a write is held up on its way."""
        seconds = 0.0
        for kind in sorted(types_in(transition)) if self._of_write else ():
            self._writes[kind] += 1
            fault = self._of_write.get((kind, self._writes[kind]))
            if fault is not None:
                self.watch.tell("*", str(fault))
                seconds += fault.seconds
        return seconds

    def _fault_of(self, worker: str) -> MessageFault | None:
        self._messages[worker] += 1
        return self._of_message.get((worker, self._messages[worker]))

    async def _scheduler(self, process: Process) -> None:
        node = 500 + 10 * self._lives[process.name] + int(process.name.rpartition("-")[2])
        engine = self._engine(process, node)
        runner = f"{process.name}.{self._lives[process.name]}"
        ids = SnowflakeGenerator(node + 200, self.clock.milliseconds)
        drafts, meter = ScheduleDrafts(ids.mint_many, f"{PRODUCER}/{process.name}"), NoMeter()
        ledger = self._change(WatchedLedger(process, self.ledger, self.watch))
        slots = Edge(process, self.slots)
        claiming = MemoryClaiming(slots, ledger, drafts, runner, meter)
        taking_back = MemoryTakingBack(slots, claiming, meter)
        leases = MemorySlotLeases(self.slots, ledger, drafts, self.loop.time)
        running = RunningSlots(leases, {"playbook": StartPlaybook(engine)}, {"playbook": 2}, runner, meter)
        running.start()
        while True:
            for held in [*(await taking_back.take_back(10))[1], *await claiming.claim_due(10)]:
                running.add(held)
            await asyncio.sleep(0.5)

    async def _outbox(self, process: Process) -> None:
        rows = Deferred(process, self._change(self.outbox))
        deliveries = {KIND: Deliveries(process, self.outbox)}
        outbox = Outbox(rows, deliveries, lease_seconds=LEASE_SECONDS, every_seconds=0.5)  # type: ignore[arg-type]
        outbox.start()

    async def _projector(self, process: Process) -> None:
        store, payloads = Edge(process, self._change(self.projections)), Edge(process, self.payloads, self._refuse)
        await Projector(
            self.ledger,
            store,
            FoldRegistry(),
            Upcasters(),
            payloads=payloads,
            batch_events=40,
        ).run()


class SharedPlans(Plans):
    """Plans that all worlds share: a text is read once."""

    async def get(self, scope: Scope, catalog_id: str, text: Callable[[], Any]) -> Plan:
        """Return the plan of a version."""
        key = (scope, catalog_id)
        if (found := self._kept.get(key)) is not None:
            return found
        source: str = await text()
        return self._kept.keep(key, _plan(source), len(source))


@lru_cache(64)
def _plan(text: str) -> Plan:
    return Plan(checked(text).playbook)
