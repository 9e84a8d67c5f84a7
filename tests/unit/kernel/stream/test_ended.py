"""Tasks are ended also where a cancellation is swallowed on the way."""

from __future__ import annotations

import asyncio

from noetl.kernel.stream.cancellation import ended


class Stubborn:
    """A task that swallows cancellations until it has had so many."""

    def __init__(self, most: int) -> None:
        self.most, self.swallowed = most, 0
        self.begun = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                self.begun.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.swallowed += 1
                if self.swallowed == self.most:
                    raise


async def test_a_task_that_swallowed_a_cancellation_is_cancelled_again() -> None:
    stubborn = Stubborn(3)
    task = asyncio.create_task(stubborn.run())
    await stubborn.begun.wait()
    await ended(task)
    assert (task.cancelled(), stubborn.swallowed) == (True, 3)


async def test_no_task_is_left_behind_when_the_caller_is_cancelled_again_and_again() -> None:
    stubborn = Stubborn(4)
    task = asyncio.create_task(stubborn.run())
    ending = asyncio.create_task(ended(task))
    await stubborn.begun.wait()
    await ended(ending)
    assert (task.done(), task.cancelled(), ending.cancelled(), stubborn.swallowed) == (True, True, True, 4)


async def test_what_has_ended_or_failed_is_not_waited_for() -> None:
    async def fails() -> None:
        raise ValueError("on its own")

    failed, done = asyncio.create_task(fails()), asyncio.create_task(asyncio.sleep(0))
    await asyncio.wait([failed, done])
    await ended(failed, done)
    assert isinstance(failed.exception(), ValueError)
