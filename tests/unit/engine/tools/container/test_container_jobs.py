"""Containers as Kubernetes Jobs: the real client against a stand-in of the cluster's API."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.tools.container.cluster_stand_in import StandIn, cluster_stand_in

from noetl.engine.tools.container.manifest import HOLDER
from noetl.engine.tools.container.tool import ContainerTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.programs.script import ScriptTool

CallOf = Callable[..., Call]
tool = ContainerTool()


@pytest.fixture
async def cluster(credentials: dict[str, Credential]) -> AsyncIterator[StandIn]:
    async with cluster_stand_in() as (stand_in, url):
        data = {"server": url, "token": "let-me-in", "namespace": "work"}
        credentials["cluster"] = Credential("cluster", "kubernetes", data)
        yield stand_in


def job_in(cluster: StandIn) -> dict[str, Any]:
    (job,) = cluster.jobs.values()
    return job


def error_of(outcome: Outcome) -> tuple[str, str | None, bool]:
    assert outcome.error is not None, outcome
    return outcome.error.kind, outcome.error.code, outcome.error.retryable


async def test_a_container_runs_as_a_job_and_tells_its_output(cluster: StandIn, call_of: CallOf) -> None:
    call = call_of(
        "container",
        auth="cluster",
        image="ok",
        command=["/bin/sh", "-c"],
        args=["echo", 5],
        service_account="worker",
        backoff_limit=2,
        restart_policy="Never",
        resources={"requests": {"cpu": "20m"}, "limits": {"memory": "128Mi"}},
        node_selector={"disk": "fast"},
        tolerations=[{"key": "only", "operator": "Exists"}],
        volumes=[{"name": "tmp", "mount_path": "/tmp", "emptyDir": {}}],
        timeout=90.4,
    )
    outcome = await tool.run(call)
    assert outcome.status == "ok", outcome
    job = job_in(cluster)
    taken = {name: outcome.data[name] for name in ("status", "runtime", "exit_code", "output", "namespace", "reason")}
    assert taken == {
        "status": "completed",
        "runtime": "kubernetes",
        "exit_code": 0,
        "output": "ok said\n",
        "namespace": "work",
        "reason": None,
    }
    assert outcome.data["job_name"] == job["metadata"]["name"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (2, 91, 600)
    assert pod["serviceAccountName"] == "worker"
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert pod["containers"][0]["args"] == ["echo", "5"]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert job["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "noetl",
        "noetl.io/execution": "1",
        "noetl.io/tenant": "acme",
        "noetl.io/organization": "sales",
    }


async def test_no_value_of_the_environment_stands_in_the_job(cluster: StandIn, call_of: CallOf, tmp_path: Path) -> None:
    """INV-173: values travel in a Secret that goes when the Job goes."""
    script = tmp_path / "load.py"
    script.write_text("print('hidden-in-script')")
    env = [{"name": "TOKEN", "value": "s3cret"}, {"name": "N", "value": 7}, {"name": "NONE", "value": None}]
    given = {
        "image": "waits",
        "env": [*env, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    call = call_of("container", auth="cluster", script=str(script), input={"day": "s3cret too"}, **given)
    running = asyncio.ensure_future(tool.run(call))
    await cluster.until(lambda: cluster.objects["pods"])
    (job,), (secret,) = cluster.jobs.values(), cluster.objects["secrets"].values()
    assert not {"s3cret", "hidden-in-script"} & set(json.dumps(job).replace('"', " ").split())
    assert "s3cret" not in json.dumps(job)
    values = {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
    assert values["TOKEN"] == "s3cret"
    assert values["N"] == "7"
    assert json.loads(values["NOETL_INPUT"]) == {"day": "s3cret too"}
    assert values["noetl.script"] == "print('hidden-in-script')"
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-1] == 'exec python3 /noetl/main.py "$NOETL_INPUT"'
    assert {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in container["env"]
    await cluster.finish(job["metadata"]["name"], 0, "Completed")
    assert (await running).status == "ok"
    await cluster.drop("jobs", job["metadata"]["name"])
    assert not cluster.objects["secrets"]


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ("exit-3", ("unknown", "exit_3", False)),
        ("oom", ("storage_quota", "oom_killed", False)),
        ("no-image", ("not_found", "image_pull_back_off", False)),
        ("deadline", ("timeout", "deadline_exceeded", True)),
        ("evicted", ("server_error", "evicted", True)),
    ],
)
async def test_a_failure_has_the_kind_of_its_reason(
    cluster: StandIn, call_of: CallOf, story: str, expected: tuple[str, str, bool]
) -> None:
    outcome = await tool.run(call_of("container", auth="cluster", image=story))
    assert error_of(outcome) == expected
    assert outcome.data["status"] == "failed"
    assert outcome.data["output"] == f"{story} said\n"
    assert not cluster.jobs


async def test_a_worker_that_takes_over_finds_the_job_of_the_first(cluster: StandIn, call_of: CallOf) -> None:
    """INV-172: the same try is one Job, and the worker that lost it leaves it to the one that follows it."""
    call = call_of("container", auth="cluster", image="waits", env={"A": "1"})
    first = asyncio.ensure_future(tool.run(call))
    await cluster.until(lambda: cluster.objects["pods"])
    held = job_in(cluster)["metadata"]["annotations"][HOLDER]
    second = asyncio.ensure_future(tool.run(call))
    await cluster.until(lambda: job_in(cluster)["metadata"]["annotations"][HOLDER] != held)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    (name,) = cluster.jobs
    await cluster.finish(name, 0, "Completed")
    assert (await second).data["job_name"] == name
    # Done is done: a third worker, which does not know of it, gets the result and starts nothing.
    assert (await tool.run(call)).data["output"] == "waits said\n"
    assert len([path for method, path, _ in cluster.seen if method == "POST" and path.endswith("/jobs")]) == 3
    assert list(cluster.jobs) == [name]
    again = await tool.run(call_of("container", auth="cluster", image="ok", scope={"_attempt": 2}))
    assert again.data["job_name"] != name


async def test_a_job_that_failed_before_is_run_anew(cluster: StandIn, call_of: CallOf) -> None:
    call = call_of("container", auth="cluster", image="exit-3", cleanup=False)
    assert error_of(await tool.run(call))[1] == "exit_3"
    uid = job_in(cluster)["metadata"]["uid"]
    cluster.logs.clear()
    assert error_of(await tool.run(call))[1] == "exit_3"
    assert job_in(cluster)["metadata"]["uid"] != uid


async def test_cancelling_deletes_the_job(cluster: StandIn, call_of: CallOf) -> None:
    running = asyncio.ensure_future(tool.run(call_of("container", auth="cluster", image="waits", env={"A": "1"})))
    await cluster.until(lambda: cluster.objects["pods"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cluster.objects == {"jobs": {}, "pods": {}, "secrets": {}}


async def test_a_container_that_takes_too_long_is_deleted_and_tells_its_output(
    cluster: StandIn, call_of: CallOf
) -> None:
    outcome = await tool.run(call_of("container", auth="cluster", image="waits", timeout=0.5))
    assert error_of(outcome) == ("timeout", "deadline_exceeded", True)
    assert outcome.data["output"] == "waits said\n"
    assert not cluster.jobs


async def test_a_watch_that_ends_is_begun_anew(cluster: StandIn, call_of: CallOf) -> None:
    running = asyncio.ensure_future(tool.run(call_of("container", auth="cluster", image="waits")))
    await cluster.until(lambda: cluster.objects["pods"])
    await cluster.hang_up()
    (name,) = cluster.jobs
    await cluster.finish(name, 0, "Completed")
    assert (await running).status == "ok"


async def test_a_job_that_somebody_deletes_is_told(cluster: StandIn, call_of: CallOf) -> None:
    running = asyncio.ensure_future(tool.run(call_of("container", auth="cluster", image="waits")))
    await cluster.until(lambda: cluster.objects["pods"])
    await cluster.drop("jobs", next(iter(cluster.jobs)))
    assert error_of(await running) == ("unknown", "job_deleted", True)


async def test_what_a_cluster_refuses_is_an_error_of_its_kind(
    cluster: StandIn, call_of: CallOf, credentials: dict[str, Credential]
) -> None:
    forbidden = await tool.run(call_of("container", auth="cluster", image="ok", namespace="closed"))
    assert error_of(forbidden) == ("auth", "kubernetes_403", False)
    wrong = {"server": credentials["cluster"].data["server"], "token": "guess"}
    assert error_of(await tool.run(call_of("container", auth=wrong, image="ok")))[:2] == ("auth", "kubernetes_401")
    nowhere = {"server": "http://127.0.0.1:1", "token": "t"}
    assert error_of(await tool.run(call_of("container", auth=nowhere, image="ok"))) == (
        "connection",
        "cluster_unreachable",
        True,
    )
    odd = await tool.run(call_of("container", auth="cluster", image="ok", tolerations=[{"colour": "s3cret"}]))
    assert error_of(odd) == ("schema", "manifest_invalid", False)
    assert "s3cret" not in str(odd.error)
    cluster.failures = 1
    assert error_of(await tool.run(call_of("container", auth="cluster", image="ok"))) == (
        "server_error",
        "kubernetes_503",
        True,
    )
    no_image = await tool.run(call_of("container", auth="cluster"))
    assert error_of(no_image)[0] == "schema"


async def test_a_script_with_a_job_runs_in_a_container(cluster: StandIn, call_of: CallOf, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("echo done")
    job = {"image": "ok", "namespace": "etl", "ttlSecondsAfterFinished": 300, "backoffLimit": 3, "env": {"A": "b"}}
    call = call_of("script", auth="cluster", script={"uri": str(tmp_path / "x.sh")}, job=job, input={"a": 1})
    outcome = await ScriptTool().run(call)
    assert outcome.data["output"] == "ok said\n"
    assert outcome.data["namespace"] == "etl"
    spec = job_in(cluster)["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (3, 300)
    assert spec["template"]["spec"]["containers"][0]["command"][-1] == 'exec /bin/sh /noetl/main.sh "$NOETL_INPUT"'
