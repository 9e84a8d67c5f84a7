"""A stand-in for the part of the Kubernetes API that runs Jobs: it checks what it is sent and plays what an image says.

The image names the story: `ok`, `exit-3`, `oom`, `no-image`, `deadline`, `evicted`, or `waits`, which runs until told.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.models import V1DeleteOptions, V1Job, V1Secret

_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
NOW = "2026-01-01T00:00:00Z"

Object = dict[str, Any]


class Refused(Exception):
    """An answer with a status above 400."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class StandIn:
    """The objects of one cluster and the requests it saw."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {"jobs": {}, "pods": {}, "secrets": {}}
        self.seen: list[tuple[str, str, Any]] = []
        self.logs: dict[str, str] = {}
        self.changed = asyncio.Condition()
        self.history: list[tuple[int, str, str, Object]] = []
        self._versions = itertools.count(1)
        self.failures = 0
        """Requests to refuse with 503 before going on."""
        self.watches = 0

    @property
    def jobs(self) -> dict[str, Object]:
        return self.objects["jobs"]

    async def until(self, is_true: Any) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(is_true)

    async def hang_up(self) -> None:
        """End all watches, as a server does from time to time."""
        async with self.changed:
            self.watches += 1
            self.changed.notify_all()

    async def put(self, kind: str, item: Object, event: str = "MODIFIED") -> None:
        item["metadata"]["resourceVersion"] = version = str(next(self._versions))
        self.objects[kind][item["metadata"]["name"]] = item
        await self._tell(int(version), kind, event, item)

    async def drop(self, kind: str, name: str) -> None:
        item = self.objects[kind].pop(name)
        await self._tell(next(self._versions), kind, "DELETED", item)
        for other in ("pods", "secrets"):
            for dependent in list(self.objects[other].values()):
                owners = dependent["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] == item["metadata"].get("uid") for owner in owners):
                    await self.drop(other, dependent["metadata"]["name"])

    async def _tell(self, version: int, kind: str, event: str, item: Object) -> None:
        async with self.changed:
            self.history.append((version, kind, event, json.loads(json.dumps(item))))
            self.changed.notify_all()

    async def play(self, job: Object) -> None:
        """Do what the controller and a node do with a Job that may start."""
        name, story = job["metadata"]["name"], job["spec"]["template"]["spec"]["containers"][0]["image"]
        if job["spec"].get("suspend") or name in self.logs:
            return
        self.logs[name] = f"{story} said\n"
        pod = {
            "metadata": {
                "name": f"{name}-pod",
                "labels": {"job-name": name},
                "creationTimestamp": NOW,
                "ownerReferences": [_owner(job)],
            },
            "status": {"phase": "Pending", "containerStatuses": []},
        }
        await self.put("pods", pod, "ADDED")
        if story == "no-image":
            await self._state(pod, {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling"}})
        elif story == "deadline":
            await self.end(name, "Failed", "DeadlineExceeded")
        elif story == "evicted":
            pod["status"]["reason"] = "Evicted"
            await self.put("pods", pod)
            await self.end(name, "Failed", "BackoffLimitExceeded")
        elif story != "waits":
            code = {"exit-3": 3, "oom": 137}.get(story, 0)
            reason = {"oom": "OOMKilled", "exit-3": "Error"}.get(story, "Completed")
            await self.finish(name, code, reason)

    async def finish(self, name: str, code: int, reason: str) -> None:
        """End the pod of a Job, and the Job."""
        await self._state(self.objects["pods"][f"{name}-pod"], {"terminated": {"exitCode": code, "reason": reason}})
        await self.end(name, *(("Failed", "BackoffLimitExceeded") if code else ("Complete", None)))

    async def end(self, name: str, kind: str, reason: str | None) -> None:
        job = self.jobs[name]
        job["status"] = {"conditions": [{"type": kind, "status": "True", "reason": reason}]}
        await self.put("jobs", job)

    async def _state(self, pod: Object, state: Object) -> None:
        status = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        pod["status"]["containerStatuses"] = [status]
        await self.put("pods", pod)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        kind, name = request.match_info["kind"], request.match_info.get("name")
        body = await request.json() if request.can_read_body else None
        self.seen.append((request.method, request.path, body))
        try:
            if self.failures:
                self.failures -= 1
                raise Refused(503, "ServiceUnavailable", "starting")
            if request.headers.get("Authorization") != "Bearer let-me-in":
                raise Refused(401, "Unauthorized", "who are you?")
            if request.match_info["namespace"] == "closed":
                raise Refused(403, "Forbidden", 'jobs.batch is forbidden in the namespace "closed"')
            if request.path.endswith("/log"):
                limit = int(request.query["limitBytes"])
                return web.Response(text=self.logs[request.match_info["name"].removesuffix("-pod")][:limit])
            if name is None and request.method == "GET":
                return await self._list(request, kind)
            return web.json_response(await self._one(request, kind, name, body))
        except Refused as refused:
            status = {"kind": "Status", "status": "Failure", "code": refused.status, "reason": refused.reason}
            return web.json_response({**status, "message": refused.message}, status=refused.status)

    async def _one(self, request: web.Request, kind: str, name: str | None, body: Any) -> Object:
        if request.method == "POST":
            return await self._create(kind, body)
        found = self.objects[kind].get(name or "")
        if found is None:
            raise Refused(404, "NotFound", f'{kind} "{name}" not found')
        if request.method == "DELETE":
            V1DeleteOptions.model_validate(body)
            assert body["propagationPolicy"] == "Background"
            for field, value in body["preconditions"].items():
                if found["metadata"][field] != value:
                    raise Refused(409, "Conflict", f"the {field} differs")
            await self.drop(kind, name or "")
        elif request.method == "PATCH":
            assert request.content_type == "application/merge-patch+json"
            expected = body.get("metadata", {}).get("resourceVersion")
            if expected not in (None, found["metadata"]["resourceVersion"]):
                raise Refused(409, "Conflict", "the object has been modified")
            found["metadata"].setdefault("annotations", {}).update(body.get("metadata", {}).get("annotations", {}))
            found["spec"].update(body.get("spec", {}))
            await self.put(kind, found)
            await self.play(found)
        return found

    async def _create(self, kind: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        if not _DNS.fullmatch(name) or len(name) > 63:
            raise Refused(422, "Invalid", f"{name} is no name")
        if name in self.objects[kind]:
            raise Refused(409, "AlreadyExists", f'{kind} "{name}" already exists')
        assert all(len(text) <= 63 and _LABEL.fullmatch(text) for text in body["metadata"]["labels"].values())
        if kind == "secrets":
            V1Secret.model_validate(body)
            owner = body["metadata"]["ownerReferences"][0]
            assert self.jobs[owner["name"]]["metadata"]["uid"] == owner["uid"]
            assert all(base64.b64decode(text, validate=True) is not None for text in body["data"].values())
        else:
            _check_job(body)
            body["status"] = {}
        body["metadata"] |= {"uid": f"uid-{next(self._versions)}", "creationTimestamp": NOW, "namespace": "work"}
        await self.put(kind, body, "ADDED")
        if kind == "jobs":
            await self.play(body)
        return body

    async def _list(self, request: web.Request, kind: str) -> web.StreamResponse:
        fields = dict(part.split("=") for part in request.query.get("fieldSelector", "").split(",") if part)
        labels = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)

        def chosen(item: Object) -> bool:
            own = item["metadata"].get("labels") or {}
            named = fields.get("metadata.name", item["metadata"]["name"]) == item["metadata"]["name"]
            return named and all(own.get(key) == value for key, value in labels.items())

        if request.query.get("watch") != "true":
            items = [item for item in self.objects[kind].values() if chosen(item)]
            version = str(next(self._versions))
            return web.json_response({"metadata": {"resourceVersion": version}, "items": items})
        answer = web.StreamResponse()
        await answer.prepare(request)
        at, place, watch = int(request.query["resourceVersion"]), 0, self.watches
        while True:
            async with self.changed:
                await self.changed.wait_for(lambda place=place: len(self.history) > place or self.watches > watch)
                if self.watches > watch:
                    return answer
                fresh, place = self.history[place:], len(self.history)
            for version, changed, event, item in fresh:
                if version > at and changed == kind and chosen(item):
                    await answer.write(json.dumps({"type": event, "object": item}).encode() + b"\n")


def _check_job(body: Object) -> None:
    V1Job.model_validate(body)
    pod = body["spec"]["template"]["spec"]
    if pod["restartPolicy"] not in ("Never", "OnFailure"):
        raise Refused(422, "Invalid", "restartPolicy: Unsupported value")
    (container,) = pod["containers"]
    names = {volume["name"] for volume in pod.get("volumes", ())}
    if not {mount["name"] for mount in container.get("volumeMounts", ())} <= names:
        raise Refused(422, "Invalid", "volumeMounts: Not found")
    assert all(isinstance(word, str) for word in (*container.get("command", ()), *container.get("args", ())))


def _owner(job: Object) -> Object:
    named = job["metadata"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": named["name"], "uid": named["uid"]}


@asynccontextmanager
async def cluster_stand_in() -> AsyncIterator[tuple[StandIn, str]]:
    """Run one and tell its address."""
    stand_in = StandIn()
    app = web.Application()
    core, batch = "/api/v1/namespaces/{namespace}", "/apis/batch/v1/namespaces/{namespace}"
    for prefix, kinds in ((core, "secrets|pods"), (batch, "jobs")):
        app.router.add_route("*", f"{prefix}/{{kind:{kinds}}}", stand_in.handle)
        app.router.add_route("*", f"{prefix}/{{kind:{kinds}}}/{{name}}", stand_in.handle)
        app.router.add_route("*", f"{prefix}/{{kind:{kinds}}}/{{name}}/log", stand_in.handle)
    server = TestServer(app, shutdown_timeout=0)
    await server.start_server()
    try:
        yield stand_in, str(server.make_url("")).rstrip("/")
    finally:
        await server.close()
