"""The names of what a pipeline makes: pinned, since data that stands is found by them."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

from noetl.model.stream import Scope
from noetl.pipelines.plan import identity

SCOPE = Scope("acme", "sales")
GOLDEN: dict[str, str] = {
    "version": "caf2ff14-bf3d-56f6-ad23-1060f3469c00",
    "above": "53cd2070-82f0-5f9f-8c9c-965bcf0d0418",
    "below": "801a92e1-344a-5efe-ad2a-4826bf74d349",
    "dataset": "fe25d3b0-f26f-5fc8-a632-7e894c83e3be",
    "made": "91655d69-4561-5f35-b746-104c56e516e8",
    "job": "d513536b-8953-57da-9873-c154bc35b555",
    "key": "day=1:653648116ea4fa00:653648116ea4fa00c73efbc16303ba3be9420fe846ce81b431ecfa1dbe33610d",
    "task": "c97efee9-c922-55a3-9148-4211b9f1a03c",
    "memo": "f39cf6ba1d3cacc4e1da90228fe605dba7055334e9a6bf2faf02707751f41f38",
    "wakeup": "de78d90a-bc17-3f19-bdc3-a70fb1195e6c",
    "route": "4fba9462-52d7-90d5-e65a-94f286d13c51",
    "partition": "partition/a2b976e5-69c3-59c5-b980-d95def14fc75",
}


def test_the_ids_never_change() -> None:
    version = identity.dag_version_id(SCOPE, "shop", "ab" * 32)
    above = identity.generation(SCOPE, "shop", "orders", "11" * 32, ())
    below = identity.generation(SCOPE, "shop", "daily", "22" * 32, [above])
    dataset = identity.dataset_uuid(SCOPE, "shop", "daily", 0)
    made = identity.dataset_version(below, 0)
    key = identity.dedupe_key("day=1", [("orders", above, "day=1", 3)], [("orders", above, "day=1", 3)])
    assert {
        "version": version,
        "above": above,
        "below": below,
        "dataset": dataset,
        "made": made,
        "job": identity.job_id(version, "daily"),
        "key": key,
        "task": identity.task_id(below, key),
        "memo": identity.memo_key("22" * 32, "day=1", [("orders", "day=1", "cd" * 32)]),
        "wakeup": identity.wakeup_id("t", 1),
        "route": identity.route_id(made, "day=1", 3),
        "partition": identity.partition_stream(SCOPE, made, "day=1").stream_id,
    } == GOLDEN


def test_the_namespace_has_a_reason() -> None:
    assert uuid5(NAMESPACE_URL, "noetl://datasets") == identity.NAMESPACE


def test_a_generation_depends_on_its_job_its_upstreams_and_nothing_else() -> None:
    plain = identity.generation(SCOPE, "shop", "daily", "h", ["a", "b"])
    assert identity.generation(SCOPE, "shop", "daily", "h", ["b", "a", "b"]) == plain
    others = {
        identity.generation(SCOPE, "shop", "daily", "other", ["a", "b"]),
        identity.generation(SCOPE, "shop", "daily", "h", ["a"]),
        identity.generation(SCOPE, "shop", "daily", "h", ["a", "b"], "version"),
        identity.generation(SCOPE, "shop", "weekly", "h", ["a", "b"]),
        identity.generation(SCOPE, "store", "daily", "h", ["a", "b"]),
        identity.generation(Scope("acme", "support"), "shop", "daily", "h", ["a", "b"]),
    }
    assert plain not in others
    assert len(others) == 6


def test_equal_names_in_two_organizations_never_meet() -> None:
    other = Scope("acme", "support")
    for make in (
        lambda scope: identity.dag_version_id(scope, "shop", "d"),
        lambda scope: identity.dataset_uuid(scope, "shop", "daily", 0),
        lambda scope: identity.storage_location(scope, "d", "v"),
    ):
        assert make(SCOPE) != make(other)


def test_an_input_that_is_only_read_changes_the_key_but_not_the_start() -> None:
    starts = [("orders", "g", "all", 1)]
    before = identity.dedupe_key("all", starts, [*starts, ("rates", "g", "all", 1)])
    after = identity.dedupe_key("all", starts, [("rates", "g", "all", 2), *starts])
    assert before != after
    assert identity.same_start(before) == identity.same_start(after)


def test_an_invalidation_is_a_start_of_its_own() -> None:
    starts = [("orders", "g", "all", 1)]
    plain = identity.dedupe_key("all", starts, starts)
    again = identity.dedupe_key("all", starts, starts, "inv-1")
    assert identity.same_start(plain) != identity.same_start(again)


def test_a_partition_whose_value_holds_a_colon_keeps_its_name_in_the_key() -> None:
    key = identity.dedupe_key("at=12:30", [], [])
    assert identity.same_start(key).rpartition(":")[0] == "at=12:30"


def test_the_place_of_a_generation_names_its_owner_and_ends_like_a_folder() -> None:
    assert identity.storage_location(SCOPE, "d", "v") == "acme/sales/datasets/d/gen=v/"


def test_streams_can_be_named_for_any_partition() -> None:
    streams = [
        identity.partition_stream(SCOPE, "v", "name=a%20b/é=ü"),
        identity.dag_stream(SCOPE, "shop"),
        identity.dataset_stream(SCOPE, "v"),
        identity.task_stream(SCOPE, "t"),
        identity.state_stream(SCOPE, "g"),
    ]
    assert [stream.problems() for stream in streams] == [[]] * 5
