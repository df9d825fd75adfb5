"""A service that has nothing but feeds, and what receives firings: as handlers of httpx, or on a socket."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

Handler = Callable[[httpx.Request], Awaitable[httpx.Response]]


class Reset(Exception):
    """The connection is to be reset instead of an answer."""


def firing(seq: int, **members: Any) -> dict[str, Any]:
    given = {"seq": seq, "time_ms": 1_709_542_800_000.0, "ruleId": "r", "name": "forced", "priority": 1}
    return {**given, "keys": {"user": "ada"}, **members}


@dataclass
class Feeds:
    """Detectors by id, with their firings. Requests are answered as the service does."""

    names: dict[str, str] = field(default_factory=dict)
    firings: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    kept: int = 10_000
    look_s: float = 0.5
    """The interval at which a stream looks for what is new."""
    revoked: bool = False
    failing: Callable[[], bool] = lambda: False
    """Whether a request or a stream fails just now."""
    away: set[str] = field(default_factory=set)
    """The ids of the detectors whose feeds cannot be read just now."""

    def detector(self, name: str, before: int = 0) -> str:
        """Create a detector that has fired so many times."""
        detector_id = f"{len(self.names) + 1:032x}"
        self.names[detector_id], self.firings[detector_id] = name, []
        self.fire(detector_id, before)
        return detector_id

    def fire(self, detector_id: str, times: int = 1, **members: Any) -> None:
        there = self.firings[detector_id]
        for _ in range(times):
            there.append(firing(len(there) + 1, **members))

    def delete(self, detector_id: str) -> None:
        del self.names[detector_id], self.firings[detector_id]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.revoked:
            return _refused(401, 1101, "the token is unknown or revoked")
        if self.failing() or self.away & {*request.url.path.split("/")}:
            return _refused(503, 1501, "the detector is starting")
        match request.url.path.split("/")[2:]:
            case ["detectors"]:
                return _done([{"id": one, "name": name} for one, name in self.names.items()])
            case ["detectors", one, "firings"] if one in self.names:
                newest = len(self.firings[one])
                after = int(request.headers.get("Last-Event-ID", newest))
                if after > newest:
                    return _refused(400, 1006, f"after: expected at most {newest}")
                headers = {"Content-Type": "text/event-stream"}
                return httpx.Response(200, headers=headers, content=self._events(one, after))
        return _refused(404, 1200, "there is no such detector")

    async def _events(self, detector_id: str, after: int) -> AsyncIterator[bytes]:
        yield b"id: %d\n\n" % after
        while detector_id in self.firings and not self.revoked:
            there = self.firings[detector_id]
            first = max(1, len(there) - self.kept + 1)
            if after + 1 < first <= len(there):
                gap = json.dumps({"gap": {"from": after + 1, "to": first - 1}}).encode()
                after = first - 1
                yield b"id: %d\ndata: %b\n\n" % (after, gap)
            for entry in there[after:]:
                if self.failing():
                    raise httpx.ReadError("reset")
                after = entry["seq"]
                yield b"id: %d\ndata: %b\n\n" % (after, json.dumps(entry).encode())
            await asyncio.sleep(self.look_s)
            if self.failing():
                raise httpx.ReadError("reset")


def _done(result: Any) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})


def _refused(status: int, code: int, message: str) -> httpx.Response:
    errors = [{"code": code, "message": message}]
    return httpx.Response(status, json={"success": False, "errors": errors, "messages": [], "result": {}})


@dataclass
class Receiver:
    """Takes what is posted. `answer` decides how; it may raise Reset."""

    answer: Callable[[dict[str, Any]], Awaitable[httpx.Response] | httpx.Response] = lambda _body: (
        httpx.Response(200)
    )
    requests: list[httpx.Request] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    """The bodies that were answered with a success."""

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        body = json.loads(request.content)
        answered = self.answer(body)
        response = await answered if isinstance(answered, Awaitable) else answered
        if response.is_success:
            self.taken.append(body)
        return response

    def seqs(self, detector_id: str) -> list[int]:
        """The numbers of the firings of a detector that were taken, as they came."""
        return [body["seq"] for body in self.taken if body["detectorId"] == detector_id]


@contextlib.contextmanager
def served(handler: Handler, port: int = 0) -> Iterator[int]:
    """Serve on a socket of this machine, in a thread; give the port. At the end, connections are reset."""
    loop, started, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[int] = []

    async def run() -> None:
        server = await asyncio.start_server(lambda *ends: _serve(handler, *ends), "127.0.0.1", port)
        found.append(server.sockets[0].getsockname()[1])
        started.set()
        await ended.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    started.wait(30)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()


async def _serve(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    gone = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, Reset, httpx.ReadError)
    with contextlib.suppress(*gone):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(
                    int({k.lower(): v for k, v in headers.items()}.get("content-length", 0))
                )
                request = httpx.Request(method, f"http://s{target}", headers=headers, content=body)
                response = await handler(request)
                lines = "".join(
                    f"{name}: {value}\r\n"
                    for name, value in response.headers.items()
                    if name not in {"content-length", "transfer-encoding"}
                )
                writer.write(
                    f"HTTP/1.1 {response.status_code} X\r\n{lines}Transfer-Encoding: chunked\r\n\r\n".encode()
                )
                async for part in response.aiter_bytes():
                    if part:
                        writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                        await writer.drain()
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        finally:
            writer.transport.abort()
