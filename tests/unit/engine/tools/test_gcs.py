"""The gcs kind: obstore's client of Google Cloud Storage against a stand-in of its XML interface."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.tools.gcs import GcsTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Credential

CallOf = Callable[..., Call]
tool = GcsTool()
NOW = "Thu, 01 Jan 2026 00:00:00 GMT"


class Bucket:
    """Objects by key, with the headers they were put with."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}

    async def handle(self, request: web.Request) -> web.Response:
        key = unquote(request.match_info.get("key", ""))
        if request.match_info["bucket"] == "closed":
            return web.Response(status=403)
        if request.method == "PUT":
            data = await request.read()
            self.objects[key] = data, dict(request.headers)
            return web.Response(headers={"ETag": hashlib.md5(data).hexdigest()})
        if not key:
            return self._list(request.query.get("prefix", ""))
        if key not in self.objects:
            return web.Response(status=404)
        if request.method == "DELETE":
            del self.objects[key]
            return web.Response(status=204)
        data, headers = self.objects[key]
        known = {"ETag": hashlib.md5(data).hexdigest(), "Last-Modified": NOW, "Content-Type": headers["Content-Type"]}
        return web.Response(body=data, headers=known)

    def _list(self, prefix: str) -> web.Response:
        items = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>{len(data)}</Size>"
            f"<ETag>e</ETag></Contents>"
            for key, (data, _) in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
        return web.Response(text=text, content_type="application/xml")


@pytest.fixture
async def bucket(credentials: dict[str, Credential], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bucket]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    objects, app = Bucket(), web.Application()
    app.router.add_route("*", "/{bucket}/{key:.*}", objects.handle)
    app.router.add_route("*", "/{bucket}", objects.handle)
    async with TestServer(app) as server:
        account = {"gcs_base_url": str(server.make_url("")).rstrip("/"), "disable_oauth": True}
        whole = {**account, "client_email": "x", "private_key": "", "private_key_id": ""}
        credentials["store"] = Credential("store", "service_account", whole)
        yield objects


def error_of(outcome: Outcome) -> tuple[str, bool]:
    assert outcome.error is not None, outcome
    return outcome.error.kind, outcome.error.retryable


async def test_objects_are_put_read_listed_and_deleted(bucket: Bucket, call_of: CallOf, tmp_path: Path) -> None:
    async def done(**options: Any) -> dict[str, Any]:
        outcome = await tool.run(call_of("gcs", auth="store", **options))
        assert outcome.error is None, outcome.error
        data: dict[str, Any] = outcome.data
        return data

    file = tmp_path / "out.csv"
    file.write_text("a,b\n1,2\n")
    put = await done(source=str(file), uri="gs://demo/data/out.csv", metadata={"Cache-Control": "no-store"})
    assert put == {
        "status": "ok",
        "uri": "gs://demo/data/out.csv",
        "bucket": "demo",
        "object": "data/out.csv",
        "size": 8,
    }
    data, headers = bucket.objects["data/out.csv"]
    assert (data, headers["Content-Type"], headers["Cache-Control"]) == (b"a,b\n1,2\n", "text/csv", "no-store")
    await done(bucket="demo", object="data/x.json", data={"n": [1]}, content_type="application/json")
    got = await done(operation="get", uri="gs://demo/data/x.json")
    assert (got["content"], got["encoding"], got["size"]) == ('{"n":[1]}', "utf-8", 9)
    bucket.objects["data/raw"] = b"\xff\x00", {"Content-Type": "x/y"}
    assert (await done(operation="get", bucket="demo", object="data/raw"))["content"] == "/wA="
    listed = await done(operation="list", bucket="demo", prefix="data", limit=2)
    assert [one["object"] for one in listed["objects"]] == ["data/out.csv", "data/raw"]
    assert listed["count"] == 2
    await done(operation="delete", uri="gs://demo/data/raw")
    assert sorted(bucket.objects) == ["data/out.csv", "data/x.json"]


async def test_what_goes_wrong_has_its_kind(
    bucket: Bucket, call_of: CallOf, credentials: dict[str, Credential]
) -> None:
    async def error(auth: Any = "store", **options: Any) -> tuple[str, bool]:
        return error_of(await tool.run(call_of("gcs", auth=auth, **options)))

    assert await error(operation="get", uri="gs://demo/none") == ("not_found", False)
    assert await error(operation="get", uri="gs://closed/x") == ("auth", False)
    assert await error(operation="move", uri="gs://demo/x") == ("schema", False)
    assert await error(uri="s3://demo/x", data="a") == ("schema", False)
    assert await error(uri="gs://demo/x") == ("schema", False)
    assert await error(uri="gs://demo/x", source="/no/such/file") == ("schema", False)
    assert await error(auth="gone", uri="gs://demo/x", data="a") == ("not_found", False)
    credentials["pg"] = Credential("pg", "postgres", {})
    assert await error(auth="pg", uri="gs://demo/x", data="a") == ("schema", False)
    credentials["bad"] = Credential("bad", "service_account", {"service_account_json": "{s3cret"})
    bad = await tool.run(call_of("gcs", auth="bad", uri="gs://demo/x", data="a"))
    assert error_of(bad) == ("schema", False)
    assert "s3cret" not in str(bad.error)
