"""Tasks are ended also where a cancellation is swallowed on the way."""

from __future__ import annotations

import asyncio

from noetl.stream.ended import ended


async def test_a_task_that_swallowed_a_cancellation_is_cancelled_again() -> None:
    swallowed = 0
    begun = asyncio.Event()

    async def goes_round() -> None:
        nonlocal swallowed
        while True:
            try:
                begun.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(goes_round())
    await begun.wait()
    await ended(task)
    assert (task.cancelled(), swallowed) == (True, 3)


async def test_no_task_is_left_behind_when_the_caller_is_cancelled_again_and_again() -> None:
    swallowed = 0
    begun = asyncio.Event()

    async def goes_round() -> None:
        nonlocal swallowed
        while True:
            try:
                begun.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 4:
                    raise

    task = asyncio.create_task(goes_round())
    ending = asyncio.create_task(ended(task))
    await begun.wait()
    await ended(ending)
    assert (task.done(), task.cancelled(), ending.cancelled(), swallowed) == (True, True, True, 4)


async def test_what_has_ended_or_failed_is_not_waited_for() -> None:
    async def fails() -> None:
        raise ValueError("on its own")

    failed, done = asyncio.create_task(fails()), asyncio.create_task(asyncio.sleep(0))
    await asyncio.wait([failed, done])
    await ended(failed, done)
    assert isinstance(failed.exception(), ValueError)
