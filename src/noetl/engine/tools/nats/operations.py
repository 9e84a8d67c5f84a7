"""What the `nats` kind can do: a client and a call go in, what the server answered comes out as a mapping."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js import errors as js_errors

from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.errors import InputError

MAX_OBJECT = 64 * 1024 * 1024
MAX_BATCH = 1_000
_ANSWER_SECONDS = 5.0


def _needed(call: Call, *names: str) -> str:
    for name in names:
        if call.options.get(name) not in (None, ""):
            return str(call.options[name])
    raise InputError(f"operation {call.options['operation']} needs {names[0]}")


def _number(call: Call, name: str, default: float, most: float) -> float:
    value = call.options.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number <= most:
        raise InputError(f"{name} is a number above 0 and at most {most:g}")
    return number


def _bytes(call: Call) -> bytes:
    """Return what is to be written: texts as they are, everything else as JSON."""
    for where in (call.options, call.input):
        for name in ("value", "data", "payload", "message"):
            if name in where:
                value = where[name]
                return value.encode() if isinstance(value, str) else orjson.dumps(plain(value))
    raise InputError(f"operation {call.options['operation']} needs value")


def _value(data: bytes | None) -> Any:
    """Return what was read: JSON objects and arrays as such, other texts as they are, other bytes in base64."""
    if not data:
        return ""
    if data[:1] in b"{[":
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _stream(client: Client, call: Call) -> JetStreamContext:
    return client.jetstream(timeout=_number(call, "timeout", _ANSWER_SECONDS, 3600))


async def _kv_get(client: Client, call: Call) -> Any:
    bucket, key = _needed(call, "bucket"), _needed(call, "key")
    entry = await (await _stream(client, call).key_value(bucket)).get(key)
    return {"bucket": bucket, "key": key, "value": _value(entry.value), "revision": entry.revision}


async def _kv_put(client: Client, call: Call) -> Any:
    bucket, key, value = _needed(call, "bucket"), _needed(call, "key"), _bytes(call)
    revision = await (await _stream(client, call).key_value(bucket)).put(key, value)
    return {"bucket": bucket, "key": key, "revision": revision}


async def _kv_keys(client: Client, call: Call) -> Any:
    bucket = _needed(call, "bucket")
    store = await _stream(client, call).key_value(bucket)
    watcher = await store.watch(str(call.options.get("key") or ">"), ignore_deletes=True, meta_only=True)
    keys = []
    try:
        async for entry in watcher:
            if entry is None:  # the end of what is there; what comes after would be news
                break
            keys.append(entry.key)
    finally:
        await watcher.stop()  # type: ignore[no-untyped-call]
    return {"bucket": bucket, "keys": sorted(keys), "count": len(keys)}


async def _kv_delete(client: Client, call: Call) -> Any:
    bucket, key = _needed(call, "bucket"), _needed(call, "key")
    await (await _stream(client, call).key_value(bucket)).delete(key)
    return {"bucket": bucket, "key": key, "deleted": True}


async def _object_get(client: Client, call: Call) -> Any:
    bucket, name = _needed(call, "bucket"), _needed(call, "name", "key")
    store = await _stream(client, call).object_store(bucket)
    info = await store.get_info(name)
    if (info.size or 0) > MAX_OBJECT:
        raise InputError(f"the object {name} takes {info.size} bytes, more than the {MAX_OBJECT} a task may hold")
    found = await store.get(name)
    return {"bucket": bucket, "name": name, "value": _value(found.data), "size": info.size}


async def _object_put(client: Client, call: Call) -> Any:
    bucket, name, value = _needed(call, "bucket"), _needed(call, "name", "key"), _bytes(call)
    info = await (await _stream(client, call).object_store(bucket)).put(name, value)
    return {"bucket": bucket, "name": name, "size": info.size, "digest": info.digest}


async def _object_list(client: Client, call: Call) -> Any:
    bucket = _needed(call, "bucket")
    store = await _stream(client, call).object_store(bucket)
    try:
        found = await store.list(ignore_deletes=True)
    except js_errors.NotFoundError:
        found = []
    objects = [{"name": info.name, "size": info.size, "modified": info.mtime} for info in found]
    return {"bucket": bucket, "objects": objects, "count": len(objects)}


async def _object_delete(client: Client, call: Call) -> Any:
    bucket, name = _needed(call, "bucket"), _needed(call, "name", "key")
    await (await _stream(client, call).object_store(bucket)).delete(name)
    return {"bucket": bucket, "name": name, "deleted": True}


async def _publish(client: Client, call: Call) -> Any:
    subject = _needed(call, "subject")
    data = _bytes(call)
    await client.publish(subject, data, headers=_headers(call))
    # A message counts as published when the server has it.
    await client.flush(timeout=int(_ANSWER_SECONDS))
    return {"subject": subject, "bytes": len(data)}


async def _js_publish(client: Client, call: Call) -> Any:
    subject = _needed(call, "subject")
    # Another try at the same task of the same row is the same message to the stream.
    headers = {"Nats-Msg-Id": call.key, **(_headers(call) or {})}
    ack = await _stream(client, call).publish(subject, _bytes(call), stream=call.options.get("stream"), headers=headers)
    return {"stream": ack.stream, "sequence": ack.seq, "duplicate": bool(ack.duplicate)}


def _headers(call: Call) -> dict[str, str] | None:
    given = call.options.get("headers") or {}
    if not isinstance(given, Mapping):
        raise InputError("headers is a mapping of names to texts")
    return {str(name): str(value) for name, value in given.items()} or None


async def _js_get_msg(client: Client, call: Call) -> Any:
    stream, sequence, subject = _needed(call, "stream"), call.options.get("sequence"), call.options.get("subject")
    if sequence is None and subject is None:
        raise InputError("operation js_get_msg needs sequence, or subject for its last message")
    number = None if sequence is None else int(_number(call, "sequence", 0, float(2**53)))
    found = await _stream(client, call).get_msg(stream, seq=number, subject=None if number else str(subject))
    return {
        "subject": found.subject,
        "sequence": found.seq,
        "value": _value(found.data),
        "headers": dict(found.headers or {}),
        "time": found.time,
    }


async def _js_consume(client: Client, call: Call) -> Any:
    stream, consumer = _needed(call, "stream"), call.options.get("consumer") or call.options.get("durable")
    batch = int(_number(call, "batch", 10, MAX_BATCH))
    seconds = _number(call, "timeout", 1.0, 3600)
    context = client.jetstream(timeout=_ANSWER_SECONDS)
    subscription = await context.pull_subscribe(
        str(call.options.get("subject") or ">"), durable=None if consumer is None else str(consumer), stream=stream
    )
    try:
        try:
            messages = await subscription.fetch(batch, timeout=seconds)
        except errors.TimeoutError:
            messages = []
        if call.options.get("ack") is not False:
            for message in messages:
                await message.ack_sync(timeout=_ANSWER_SECONDS)
    finally:
        with suppress(errors.Error):
            await subscription.unsubscribe()
    return {"stream": stream, "messages": [_message(each) for each in messages], "count": len(messages)}


def _message(message: Msg) -> dict[str, Any]:
    told = message.metadata
    return {
        "subject": message.subject,
        "sequence": told.sequence.stream,
        "deliveries": told.num_delivered,
        "value": _value(message.data),
        "headers": dict(message.headers or {}),
        "time": told.timestamp,
    }


OPERATIONS: dict[str, Callable[[Client, Call], Awaitable[Any]]] = {
    "kv_get": _kv_get,
    "kv_put": _kv_put,
    "kv_keys": _kv_keys,
    "kv_delete": _kv_delete,
    "object_get": _object_get,
    "object_put": _object_put,
    "object_list": _object_list,
    "object_delete": _object_delete,
    "publish": _publish,
    "js_publish": _js_publish,
    "js_get_msg": _js_get_msg,
    "js_consume": _js_consume,
}
