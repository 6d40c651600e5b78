"""HTTP: submissions one by one and in batches, and workers that hold their jobs by leases."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, NamedTuple
from urllib.parse import quote

from torture.peers.load import (
    FUNCTIONS,
    HOST,
    KEYED_FUNCTION,
    LEASE_SECONDS,
    PATIENCE_SECONDS,
    Load,
    Surprise,
    number_of,
    token_of,
)
from torture.peers.tcp import Connection

CREATED, NO_CONTENT = 201, 204


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class HttpConnection(Connection):
    """Requests, and answers in their order."""

    def request(self, method: str, target: str, body: bytes = b"", **headers: str) -> None:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def answer(self, patience: float = PATIENCE_SECONDS) -> Answer:
        status = int((await self.receive_line(patience)).split()[1])
        headers = {}
        while line := (await self.receive_line()).strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if "transfer-encoding" in headers:
            raise Surprise(f"an answer of {status} in chunks")
        return Answer(status, headers, await self.receive(int(headers.get("content-length", 0))))

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        self.request(method, target, body, **headers)
        return await self.answer()


def connection(load: Load, role: str) -> HttpConnection:
    return HttpConnection(load, load.ports.http, "http " + role)


# --- submitters ---


async def submitter(load: Load) -> None:
    """Some requests at a time; a few have a key of their own, and are repeated under it."""
    async with connection(load, "submitter") as peer:
        while True:
            waiting: deque[str] = deque()
            for _ in range(load.chance.randint(1, 10)):
                if load.is_full():
                    await asyncio.sleep(0.02)
                waiting.append(_submit(load, peer))
            while waiting:
                token = waiting.popleft()
                answer = await peer.answer()
                if answer.status in (CREATED, 200):
                    load.history.record("acknowledged", token, json.loads(answer.body)["id"], peer.name)
                else:
                    load.history.record("refused", token, reason(answer), peer.name)


def _submit(load: Load, peer: HttpConnection) -> str:
    token = load.token()
    function = load.chance.choice(FUNCTIONS)
    unique = load.chance.choice(("", token)) if function != "dwork" else ""
    limit = load.chance.choice((-1, -1, 1, 3))
    load.history.record("submitting", token, function, unique, limit, 0)
    query = "&".join([*([f"unique={unique}"] if unique else []), *([f"attempts_limit={limit}"] if limit > 0 else [])])
    body = load.payload(token)
    target = f"/v1/functions/{function}/jobs?{query}"
    headers = {} if unique or load.chance.random() < 0.8 else {"Idempotency_Key": token}
    peer.request("POST", target, body, **headers)
    return token


async def batch_submitter(load: Load) -> None:
    """Some jobs at a time, all of them or none."""
    async with connection(load, "batch submitter") as peer:
        while True:
            if load.is_full():
                await asyncio.sleep(0.02)
            tokens = [load.token() for _ in range(load.chance.randint(1, 5))]
            lines = []
            for token in tokens:
                function = load.chance.choice(FUNCTIONS)
                load.history.record("submitting", token, function, "", -1, 0)
                lines.append(json.dumps({"function": function, "payload": load.payload(token).decode()}))
            answer = await peer.ask("POST", "/v1/jobs/batch?atomic=1", "\n".join(lines).encode())
            rows = [json.loads(row) for row in answer.body.splitlines()] if answer.status < 300 else []
            for token, row in zip(tokens, rows):
                load.history.record("acknowledged", token, row["id"], peer.name)
            for token in tokens[len(rows) :]:
                load.history.record("refused", token, reason(answer), peer.name)


def reason(answer: Answer) -> str:
    return f"{answer.status} {answer.body.decode('utf-8', 'replace')}"


# --- workers ---


async def worker(load: Load) -> None:
    """Takes one job after the other by itself; now and then it vanishes with one."""
    async with connection(load, "worker") as peer:
        while True:
            function = load.chance.choice((*FUNCTIONS, KEYED_FUNCTION))
            asked_at = load.history.now
            answer = await peer.ask("POST", f"/v1/functions/{function}/take?lease={LEASE_SECONDS}")
            if answer.status != 200:
                await asyncio.sleep(0.01)
                continue
            handle, attempt = answer.headers["switchgear-job"], answer.headers["switchgear-attempt"]
            token = token_of(answer.body)
            number = number_of(handle.encode())
            load.history.record("assigned", token, number, 0, peer.name, asked_at, load.lease_seconds)
            if load.chance.random() < 0.01:
                return
            await _report(load, peer, token, handle, attempt)


async def registered_worker(load: Load) -> None:
    """Is registered, and polls for several jobs of any function at a time."""
    async with connection(load, "registered worker") as peer:
        functions = [*FUNCTIONS, KEYED_FUNCTION]
        answer = await peer.ask("POST", "/v1/workers", json_body(functions=functions, lease=LEASE_SECONDS))
        if answer.status != CREATED:
            await asyncio.sleep(0.05)
            return
        worker_id = json.loads(answer.body)["id"]
        while True:
            asked_at = load.history.now
            answer = await peer.ask("POST", f"/v1/workers/{worker_id}/poll?max={load.chance.randint(1, 4)}")
            if answer.status != 200:
                return
            jobs = json.loads(answer.body)["jobs"]
            for job in jobs:
                number = number_of(job["handle"].encode())
                token = token_of(text_of(job["payload"]))
                load.history.record("assigned", token, number, 0, peer.name, asked_at, load.lease_seconds)
            for job in jobs:
                await _report(load, peer, token_of(text_of(job["payload"])), job["handle"], str(job["attempt"]))
            if not jobs:
                await asyncio.sleep(0.01)


async def _report(load: Load, peer: HttpConnection, token: str, handle: str, attempt: str) -> None:
    job = f"/v1/jobs/{quote(handle)}"
    draw = load.chance.random()
    if draw < 0.05:
        load.history.record("releasing", token, peer.name)
        await peer.ask("POST", f"{job}/release", Switchgear_Attempt=attempt)
        return
    load.history.record("reporting", token, "fail" if draw < 0.1 else "result", peer.name)
    question = load.history.record("asks", peer.name)
    if draw < 0.1:
        answer = await peer.ask("POST", f"{job}/fail", json_body(error="no"), Switchgear_Attempt=attempt)
    else:
        answer = await peer.ask("PUT", f"{job}/result", b"done", Switchgear_Attempt=attempt)
    # Otherwise somebody has cancelled it, or the server was restarted and another worker has it.
    load.history.record("answered" if answer.status == NO_CONTENT else "unanswered", question)


def text_of(value: Any) -> bytes:
    """A payload in JSON; those of this load are text."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def json_body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()
