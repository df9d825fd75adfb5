"""Writes the sample recording: the same bytes on every run.

    python -m tests.worlds.online_shop

Forty minutes of an online shop: customers log in, look around, pay and log out, now and then mistyping
a password, and four servers report their load. From the twentieth minute one address tries stolen passwords
on one account after another; a few fit, and what those accounts own is moved out.
"""

import gzip
import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from api.cli.sample import RECORDING

START: Final = datetime(2024, 3, 4, 9, 0, tzinfo=UTC)
MINUTES: Final = 40

ATTACKER: Final = "203.0.113.66"
ATTACK_BEGINS_S: Final = 20 * 60
ATTACK_LASTS_S: Final = 150
FITTING: Final = ("u0117", "u0305", "u0442")
"""The accounts whose stolen passwords still fit."""

PAYING: Final = 0.3
LOGGING_OUT: Final = 0.7

SERVERS: Final = ("web-1", "web-2", "login-1", "pay-1")
BROWSERS: Final = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64)",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_3)",
    "Mozilla/5.0 (Linux; Android 14)",
)
COUNTRIES: Final = ("DE", "DE", "DE", "FR", "FR", "NL", "AT")

Event = dict[str, Any]


class Stream:
    """Events as they are made, each with its second since the start."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Event]] = []

    def add(self, at_s: float, **fields: object) -> None:
        """Add an event, unless it is after the end."""
        if at_s < MINUTES * 60:
            self._events.append((round(at_s, 3), len(self._events), dict(fields)))

    def lines(self) -> bytes:
        """The events in order of time, one to a line."""
        return "".join(
            json.dumps({"time": _iso(at_s), **fields}, separators=(",", ":")) + "\n"
            for at_s, _, fields in sorted(self._events, key=lambda entry: entry[:2])
        ).encode()


def _iso(at_s: float) -> str:
    moment = START + timedelta(milliseconds=round(at_s * 1000))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


def customers(stream: Stream, random: Random) -> None:
    """Ordinary visits: a login, perhaps mistyped first, a few pages, sometimes a payment, a logout."""
    for _ in range(300):
        user = {"id": f"u{random.randrange(600):04}", "country": random.choice(COUNTRIES)}
        who = {"user": user, "ip": f"198.51.100.{random.randrange(1, 255)}", "agent": random.choice(BROWSERS)}
        at_s = random.uniform(0, MINUTES * 60 - 120)
        for _ in range(random.choice((0, 0, 0, 0, 1, 2))):
            stream.add(at_s, action="login", ok=False, **who)
            at_s += random.uniform(3, 9)
        stream.add(at_s, action="login", ok=True, **who)
        for _ in range(random.randrange(1, 6)):
            at_s += random.uniform(2, 40)
            stream.add(at_s, action="view", page=f"/article/{random.randrange(4000)}", **who)
        if random.random() < PAYING:
            at_s += random.uniform(5, 60)
            stream.add(at_s, action="payment", amount=round(random.lognormvariate(4, 1), 2), **who)
        if random.random() < LOGGING_OUT:
            at_s += random.uniform(5, 120)
            stream.add(at_s, action="logout", **who)


def servers(stream: Stream, random: Random) -> None:
    """The load of each server every fifteen seconds; the attack keeps the one busy that checks passwords."""
    for step in range(MINUTES * 4):
        at_s = step * 15 + 0.5
        attacked = ATTACK_BEGINS_S + 10 <= at_s <= ATTACK_BEGINS_S + ATTACK_LASTS_S
        for host in SERVERS:
            busy = host == "login-1" and attacked
            cpu = random.uniform(91, 99) if busy else random.uniform(12, 70)
            stream.add(at_s, action="load", host=host, cpu=round(cpu, 1))


def attack(stream: Stream, random: Random) -> None:
    """One address tries hundreds of accounts; where a password fits, it changes that and moves money out."""
    who = {"ip": ATTACKER, "agent": "python-requests/2.31.0"}
    accounts = random.sample(sorted({f"u{number:04}" for number in range(600)} - set(FITTING)), 420)
    for position, account in zip((150, 260, 390), FITTING, strict=True):
        accounts.insert(position, account)
    at_s = float(ATTACK_BEGINS_S)
    for account in accounts:
        at_s += random.uniform(0.2, 0.5)
        user = {"id": account, "country": "XX"}
        stream.add(at_s, action="login", ok=account in FITTING, user=user, **who)
        if account in FITTING:
            later_s = at_s + random.uniform(20, 40)
            stream.add(later_s, action="password_change", user=user, **who)
            stream.add(
                later_s + 45, action="payment", amount=round(random.uniform(2500, 4900), 2), user=user, **who
            )


def recording() -> bytes:
    """The whole recording, uncompressed."""
    stream = Stream()
    customers(stream, Random(1))
    servers(stream, Random(2))
    attack(stream, Random(3))
    return stream.lines()


if __name__ == "__main__":
    # No file name and no time of writing, so that the same events are the same bytes.
    RECORDING.write_bytes(gzip.compress(recording(), mtime=0))
