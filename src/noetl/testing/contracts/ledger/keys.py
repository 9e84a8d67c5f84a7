"""What every ledger must do with idempotency keys, as tests: a repetition writes nothing and gets the first answer."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.errors import KeyReused
from noetl.kernel.ledger.port import Ledger
from noetl.model.event import Appended
from noetl.model.stream import Scope
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.samples.drafts import PRODUCER, Drafts


class KeyContract:
    """Tests for idempotency keys."""

    async def test_a_repetition_gets_the_first_answer_whatever_version_it_expects(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        """INV-06."""
        run, loop = drafts.mint(), drafts.mint()
        items = [drafts.loop_item(run, loop, index, idempotency_key=f"k{index}") for index in range(2)]
        first = await ledger.append(items[0].stream, items, expected_version=0)
        await ledger.append(items[0].stream, [drafts.loop_item(run, loop, 9)])
        for expected in (None, 0, 3, 77):
            again = [drafts.again(item, producer=f"{PRODUCER}/elsewhere", correlation_id="c9") for item in items]
            answer = await ledger.append(items[0].stream, again, expected_version=expected)
            assert answer == msgspec.structs.replace(first, repeated=True)
        assert len(await everything(ledger)) == 3

    async def test_a_repetition_is_recognised_by_any_of_its_keys_order(self, ledger: Ledger, drafts: Drafts) -> None:
        run, loop = drafts.mint(), drafts.mint()
        unkeyed = drafts.loop_item(run, loop, 0)
        keyed = drafts.loop_item(run, loop, 1, idempotency_key="z")
        also = drafts.loop_item(run, loop, 2, idempotency_key="a")
        first = await ledger.append(keyed.stream, [unkeyed, keyed, also])
        answer = await ledger.append(keyed.stream, [drafts.again(each) for each in (unkeyed, keyed, also)])
        assert answer == msgspec.structs.replace(first, repeated=True)

    @pytest.mark.parametrize(
        "change",
        [
            {"current_item": {"row": 1}},
            {"status": "error"},
            {"current_index": 1},
            {"context": {"x": 1}},
            {"error": "E"},
            {"node_name": "other"},
        ],
        ids=str,
    )
    async def test_a_key_with_other_content_is_refused(
        self, ledger: Ledger, drafts: Drafts, change: dict[str, object]
    ) -> None:
        """INV-06."""
        draft = drafts.loop_item(drafts.mint(), drafts.mint(), 0, idempotency_key="k")
        await ledger.append(draft.stream, [draft])
        with pytest.raises(KeyReused):
            await ledger.append(draft.stream, [drafts.again(draft, **change)])
        assert len(await everything(ledger)) == 1

    async def test_a_key_on_another_stream_is_other_content(self, ledger: Ledger, drafts: Drafts) -> None:
        run = drafts.mint()
        first = drafts.loop_item(run, drafts.mint(), 0, idempotency_key="k")
        second = drafts.loop_item(run, drafts.mint(), 0, idempotency_key="k")
        await ledger.append(first.stream, [first])
        with pytest.raises(KeyReused):
            await ledger.append(second.stream, [second])

    async def test_only_some_of_an_appends_keys_are_refused_and_the_others_stay_free(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        run, loop = drafts.mint(), drafts.mint()
        first, second = (drafts.loop_item(run, loop, index, idempotency_key=f"k{index}") for index in range(2))
        await ledger.append(first.stream, [first])
        with pytest.raises(KeyReused):
            await ledger.append(first.stream, [drafts.again(first), second])
        answer = await ledger.append(first.stream, [drafts.again(second)])
        assert (answer.first_version, answer.repeated) == (2, False)

    async def test_one_key_of_a_larger_append_alone_is_refused(self, ledger: Ledger, drafts: Drafts) -> None:
        run, loop = drafts.mint(), drafts.mint()
        items = [drafts.loop_item(run, loop, index, idempotency_key=f"k{index}") for index in range(2)]
        await ledger.append(items[0].stream, items)
        with pytest.raises(KeyReused):
            await ledger.append(items[0].stream, [drafts.again(items[1])])

    async def test_a_refused_append_does_not_use_its_keys_up(self, ledger: Ledger, drafts: Drafts) -> None:
        draft = drafts.loop_item(drafts.mint(), drafts.mint(), 0, idempotency_key="k")
        with pytest.raises(Exception, match="version"):
            await ledger.append(draft.stream, [draft], expected_version=5)
        answer = await ledger.append(draft.stream, [drafts.again(draft, current_item="other")])
        assert not answer.repeated

    async def test_a_repeated_fact_that_may_stand_once_is_a_repetition(self, ledger: Ledger, drafts: Drafts) -> None:
        done = drafts.loop(drafts.mint(), drafts.mint(), "loop.done", idempotency_key="done")
        first = await ledger.append(done.stream, [done])
        assert await ledger.append(done.stream, [drafts.again(done)]) == msgspec.structs.replace(first, repeated=True)

    async def test_keys_belong_to_an_organization(self, ledger: Ledger, drafts: Drafts) -> None:
        run, loop = drafts.mint(), drafts.mint()
        scopes = [drafts.scope, Scope(drafts.scope.tenant_id, "other"), Scope("other", drafts.scope.organization_id)]
        for scope in scopes:
            draft = Drafts(scope, drafts.mint).loop_item(run, loop, 0, idempotency_key="k")
            answer = await ledger.append(draft.stream, [draft])
            assert (answer.first_version, answer.repeated) == (1, False)

    async def test_of_many_equal_appends_at_once_one_is_written_and_all_get_its_answer(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        draft = drafts.loop_item(drafts.mint(), drafts.mint(), 0, idempotency_key="k")
        answers: list[Appended] = await asyncio.gather(
            *(ledger.append(draft.stream, [drafts.again(draft)]) for _ in range(16))
        )
        assert sorted(answer.repeated for answer in answers) == [False] + [True] * 15
        assert len({(answer.first_position, answer.event_ids) for answer in answers}) == 1
        assert len(await everything(ledger)) == 1
