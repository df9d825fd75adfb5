"""The front end's work in its benchmarks: rules, events, and requests of about 300 bytes."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.language.limits import Limits

RULES: Final = (
    "action == 'transfer' and amount > 240",
    "action == 'transfer' and country not in ['DE', 'FR', 'IT']",
    "path == '/admin/keys' and ok == false",
    "action == 'export' and once within 1m path == '/admin/keys'",
    "action == 'transfer' and per user (once within 10m (action == 'login' and ok == false))",
    "action == 'transfer' and per user (ok == true since within 1h amount between 200 and 220)",
    "country == 'NO' and per user ((not action == 'logout') since within 8h action == 'login')",
    "action == 'export' and per user (historically for 1m amount < 100)",
    "action == 'login' and per ip (once within 5m (path == '/admin/keys' and ok == false))",
    "amount > 249 and per ip (historically for 30s strong ok == false)",
)
"""Rules of each kind: on the event alone, with memory, and with memory for each key."""

USERS: Final = 1_000
EVENT_STEP_MS: Final = 10
FIRST_MS: Final = 1_700_000_000_000
_COUNTRIES: Final = ("DE", "FR", "IT", "DE", "FR", "IT", "DE", "NO")
_ACTIONS: Final = ("view", "login", "view", "transfer", "view", "view", "logout", "view", "view", "export")
_AGENT: Final = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 a-client/4.711"

Document = dict[str, Any]


def event(number: int) -> Document:
    """Return one event of a stream, as in a request."""
    drawn = number * 7919
    return {
        "fields": {
            "user": f"user-{drawn % USERS:04d}",
            "session": f"{drawn * 2654435761 % 2**32:08x}",
            "action": _ACTIONS[(number + number // USERS) % len(_ACTIONS)],
            "ok": drawn % 11 > 1,
            "amount": drawn % 1000 / 4,
            "country": _COUNTRIES[drawn % len(_COUNTRIES)],
            "ip": f"203.0.113.{drawn % 251}",
            "path": "/admin/keys" if drawn % 97 == 0 else f"/accounts/{drawn % 1000:04d}/view",
            "agent": _AGENT,
        },
        "timestamp_ms": FIRST_MS + EVENT_STEP_MS * number,
    }


def events(first: int, count: int) -> list[Document]:
    """Return the events of a stream that follow the first ones."""
    return [event(number) for number in range(first, first + count)]


def detector() -> Detector:
    """Return a detector with the rules, in this process, for which no recorded past is too long ago."""
    made = Detector(limits=Limits(ahead_ms_max=0))
    for number, rule in enumerate(RULES):
        made.add_rule(f"rule {number}", rule)
    return made


def head(path: str, token: str, content_type: str, length: int) -> bytes:
    """Return the head of a POST as callers send it."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {token}",
        f"Content-Type: {content_type}",
        f"Content-Length: {length}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def single_requests(path: str, token: str, *, prepared: int = 2_000) -> Iterator[bytes]:
    """Yield one request after another, an event in each, without end.

    All but their times is prepared, so that to make one costs next to nothing.
    """
    time = str(FIRST_MS).encode()
    parts = []
    for document in events(0, prepared):
        body = msgspec.json.encode({"event": document | {"timestamp_ms": FIRST_MS}})
        before, _, after = (head(path, token, "application/json", len(body)) + body).rpartition(time)
        parts.append((before, after))
    times_ms = itertools.count(FIRST_MS, EVENT_STEP_MS)
    for (before, after), time_ms in zip(itertools.cycle(parts), times_ms, strict=False):
        yield b"%b%d%b" % (before, time_ms, after)


def body_of(request: bytes) -> bytes:
    """Return the body of a request with a length."""
    return request.partition(b"\r\n\r\n")[2]
