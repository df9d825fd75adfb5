"""The Kafka consumer of the page: wherever it is killed, each message is evaluated once, in order."""

import asyncio
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from api.http.app import Application
from api.settings import Settings
from rule_detector_client import Client
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.senders.pages import block
from tests.api.wire import served
from tests.local_runtime.service import LocalService

BEGINNING = -2
NONE = -1001
"""The offset that `committed` gives where there is none."""
NOON_MS = 1_709_553_600_000


class Killed(BaseException):
    """The process ends here."""


@dataclass
class TopicPartition:
    topic: str
    partition: int
    offset: int = NONE
    metadata: str | None = None


class Message:
    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset, self._value = offset, value

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> object:
        return None if self._offset >= 0 else "the broker is not there for a moment"


@dataclass
class Broker:
    """A partition, and what was committed. It outlives its consumers, killed at step `kill_at`."""

    log: list[bytes | None]
    drawn: random.Random
    committed: tuple[int, str | None] = (NONE, None)
    steps: int = 0
    kill_at: int = -1
    consumed: list[int] = field(default_factory=list)

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed


class Consumer:
    """What the consumer of the page uses of `confluent_kafka.Consumer`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._at = -1

    def committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, *self._broker.committed) for one in partitions]

    def assign(self, partitions: list[TopicPartition]) -> None:
        [partition] = partitions
        self._at = 0 if partition.offset == BEGINNING else partition.offset

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        assert timeout_s > 0
        self._broker.step()
        if self._at >= len(self._broker.log):
            raise Killed
        if self._broker.drawn.random() < 0.2:
            return self._broker.drawn.choice(([], [Message(-1, None)]))
        # How many are there at once differs from time to time.
        end = min(self._at + self._broker.drawn.randrange(1, count + 1), len(self._broker.log))
        begin, self._at = self._at, end
        return [Message(offset, self._broker.log[offset]) for offset in range(begin, end)]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        [place] = offsets
        self._broker.step()
        self._broker.committed = (place.offset, place.metadata)
        self._broker.step()


class KilledClient(Client):
    """Is killed before it sends, or after it was answered."""

    broker: Broker

    def send(self, call: Any) -> Any:
        self.broker.step()
        result = super().send(call)
        self.broker.step()
        return result


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return the function of the page, over a module that stands for `confluent_kafka`."""
    module = ModuleType("confluent_kafka")
    vars(module).update(TopicPartition=TopicPartition, OFFSET_BEGINNING=BEGINNING)
    monkeypatch.setitem(sys.modules, "confluent_kafka", module)
    names: dict[str, Any] = {}
    exec(compile(block("kafka", 0), "SENDERS.md", "exec"), names)
    return names["feed"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", bootstrap_token=BOOTSTRAP)


def records(count: int) -> list[bytes]:
    return [json.dumps({"time": NOON_MS + n, "n": n}).encode() for n in range(count)]


async def consumed(
    caller: Caller, application: Application, settings: Settings, feed: Callable[..., None], broker: Broker
) -> dict[str, Any]:
    """Consume all, with a new consumer after each kill, and return the state of the detector."""
    await caller.detector("logins")
    await caller.rule("name:logins", "count(exists n) >= 1")
    async with served(application, settings) as wire:

        def consume() -> None:
            while broker.committed != (len(broker.log), ""):
                with KilledClient(f"http://127.0.0.1:{wire.port}", BOOTSTRAP) as client:
                    client.broker = broker
                    try:
                        feed(Consumer(broker), "logins", 0, client, "name:logins", most=4)
                    except Killed:
                        broker.kill_at = -1

        await asyncio.to_thread(consume)
    state = (await caller("GET", "/api/detectors/name:logins/state")).result
    await caller("DELETE", "/api/detectors/name:logins")
    return state


@pytest.mark.slow
async def test_killed_at_any_step_it_evaluates_each_message_once(
    caller: Caller, settings: Settings, service: LocalService, feed: Callable[..., None]
) -> None:
    application = Application(settings, service.backend)
    steps = 0
    for kill_at in range(1, 200):
        broker = Broker(records(9), random.Random(kill_at % 7), kill_at=kill_at)
        state = await consumed(caller, application, settings, feed, broker)
        assert state["events"] == 9, kill_at
        steps = max(steps, broker.steps)
        if broker.steps < kill_at:
            break
    else:
        raise AssertionError("it was killed at every step")
    assert steps > 20


async def test_records_that_are_refused_are_told_and_the_others_go_on(
    caller: Caller,
    settings: Settings,
    service: LocalService,
    feed: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = Broker([*records(2), *[b"no JSON"] * 8, *records(6)[2:]], random.Random(1))
    application = Application(settings, service.backend)
    state = await consumed(caller, application, settings, feed, broker)
    assert state["events"] == 6
    assert "1000 record 0: the record is not JSON" in capsys.readouterr().out


async def test_a_batch_that_is_too_large_is_sent_in_halves_and_a_message_without_a_value_is_none(
    caller: Caller,
    settings: Settings,
    service: LocalService,
    feed: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    large = [json.dumps({"time": NOON_MS + n, "n": n, "x": "x" * 700_000}).encode() for n in range(5)]
    too_large = json.dumps({"time": NOON_MS, "x": "x" * 2_000_000}).encode()
    broker = Broker([*large, None, too_large, *records(8)[6:], b""], random.Random(2))
    application = Application(replace(settings, max_batch_body_bytes=1_500_000), service.backend)
    state = await consumed(caller, application, settings, feed, broker)
    assert state["events"] == 7
    assert "1003" in capsys.readouterr().out
