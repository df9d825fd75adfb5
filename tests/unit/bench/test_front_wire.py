"""Responses are read as they were sent, in whatever pieces they come."""

import itertools

import h11
import pytest

from tests.bench.front.load import world
from tests.bench.front.load.wire import Garbled, LinesReader, Response, ResponseReader


def sent(*bodies: bytes, status: int = 200, length: int | None = None) -> bytes:
    """What a server sends: a body with a length, or in chunks where that is None."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    while not isinstance(server.next_event(), h11.EndOfMessage):
        pass
    headers = [("content-type", "application/json"), ("date", "now")]
    if length is not None:
        headers.insert(1, ("content-length", str(length)))
    events = [
        h11.Response(status_code=status, headers=headers),
        *(h11.Data(data=body) for body in bodies),
        h11.EndOfMessage(),
    ]
    return b"".join(server.send(event) or b"" for event in events)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 5_000, b"\r\n\r\ncontent-length: 7"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1_000, 10_000])
def test_a_response_is_given_with_its_last_piece_and_not_before(body: bytes, size: int) -> None:
    reader = ResponseReader()
    for status in (200, 429):
        given = [
            reader.received(piece) for piece in pieces(sent(body, status=status, length=len(body)), size)
        ]
        assert given == [None] * (len(given) - 1) + [Response(status, body)]


def test_what_comes_behind_a_response_is_noticed() -> None:
    with pytest.raises(Garbled, match="more than the response"):
        ResponseReader().received(sent(b"{}", length=2) + b"H")


def test_a_response_without_a_length_is_noticed() -> None:
    with pytest.raises(Garbled, match="without a length"):
        ResponseReader().received(sent(b"{}"))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 10_000])
def test_lines_are_counted_however_they_are_cut(size: int) -> None:
    reader = LinesReader()
    data = sent(b'{"a":1}\n{"b":', b'2}\n{"c":3}\n', b"\n", b'{"done":3}\n')
    counted = sum(reader.received(piece) for piece in pieces(data, size))
    assert counted == reader.lines == 5
    assert reader.ended
    assert reader.status == 200
    assert reader.last == b'{"done":3}'


def test_lines_are_told_as_soon_as_they_have_come() -> None:
    reader = LinesReader()
    data = sent(b"one\n", b"two\nthree\n")
    place = data.index(b"\n", data.index(b"one")) + 1
    assert reader.received(data[:place]) == 1
    assert not reader.ended
    assert reader.received(data[place:]) == 2


def test_lines_that_are_no_chunks_or_behind_the_last_one_are_noticed() -> None:
    with pytest.raises(Garbled, match="not in chunks"):
        LinesReader().received(sent(b"{}", length=2))
    with pytest.raises(Garbled, match="more than the response"):
        LinesReader().received(sent(b"{}\n") + b"HTTP")
    with pytest.raises(Garbled, match="no end of a chunk"):
        LinesReader().received(sent(b"{}\n").replace(b"\n\r\n0", b"\nxx0"))


def test_requests_are_those_that_h11_reads_and_their_times_grow() -> None:
    server = h11.Connection(h11.SERVER)
    times = []
    for number, request in enumerate(itertools.islice(world.single_requests("/x", "token", prepared=3), 7)):
        server.receive_data(request)
        head = server.next_event()
        assert isinstance(head, h11.Request)
        assert dict(head.headers)[b"authorization"] == b"Bearer token"
        body = server.next_event()
        assert isinstance(body, h11.Data)
        times.append(int(body.data[-len("1700000000000}}") : -2]))
        assert body.data == world.body_of(request)
        expected = world.event(number % 3) | {"timestamp_ms": times[-1]}
        assert world.msgspec.json.decode(body.data) == {"event": expected}
        assert isinstance(server.next_event(), h11.EndOfMessage)
        server.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        server.send(h11.EndOfMessage())
        server.start_next_cycle()
    assert times == [world.FIRST_MS + world.EVENT_STEP_MS * number for number in range(7)]


def test_every_rule_but_few_are_true_at_some_event() -> None:
    events = world.events(0, 60_000)
    detector = world.detector()
    fired = [
        rule.name
        for rules in detector.evaluate_many([(one["fields"], one["timestamp_ms"], None) for one in events])
        for rule in rules
    ]
    assert len(set(fired)) >= len(world.RULES) - 1, set(fired)
    assert 0.05 < len(fired) / len(events) < 1
