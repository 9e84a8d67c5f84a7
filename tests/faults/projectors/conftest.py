"""Projectors as processes on the test's own database, and what their checkpoints did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.faults.projectors.processes import ProjectorProcess

Begin = Callable[..., ProjectorProcess]

_MOVES = """
CREATE TABLE public.checkpoint_move (number bigserial, shard smallint, before bigint, after bigint,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
GRANT INSERT ON public.checkpoint_move TO noetl_projector;
GRANT USAGE ON SEQUENCE public.checkpoint_move_number_seq TO noetl_projector;
CREATE FUNCTION public.note_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.checkpoint_move (shard, before, after) VALUES (new.shard, old.position, new.position);
    RETURN new;
END $$;
CREATE TRIGGER note_move AFTER UPDATE OF position ON noetl.projection_checkpoint
    FOR EACH ROW WHEN (old.position IS DISTINCT FROM new.position) EXECUTE FUNCTION public.note_move();
"""


@pytest.fixture
def moves(owner_url: str) -> Callable[[], dict[int, list[tuple[int, int]]]]:
    """Notes every move of a checkpoint; asked, it tells them shard by shard in the order they were made."""
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute(_MOVES.encode())

    def found() -> dict[int, list[tuple[int, int]]]:
        noted: dict[int, list[tuple[int, int]]] = {}
        with psycopg.connect(owner_url) as owner:
            for shard, before, after in owner.execute(
                "SELECT shard, before, after FROM public.checkpoint_move ORDER BY number"
            ):
                noted.setdefault(shard, []).append((before, after))
        return noted

    return found


@pytest.fixture
def begin(owner_url: str, tmp_path: Path) -> Iterator[Begin]:
    """Starts projectors; none outlives the test."""
    started: list[ProjectorProcess] = []

    def begun(name: str, **environ: str) -> ProjectorProcess:
        started.append(ProjectorProcess(owner_url, name, tmp_path, **environ))
        return started[-1]

    yield begun
    for process in started:
        process.end()
