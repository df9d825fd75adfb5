"""What parsing an untrusted condition costs: work that grows with the body and no faster."""

import pytest

from api.http.handling.condition_bodies import parse_condition
from engine.language.diagnostics import Refusal
from engine.language.limits import DEFAULT_LIMITS
from tests.work_growth import grows_linearly

SHAPES: dict[str, tuple[bytes, bytes, bytes]] = {
    "escapes without an end": (b'{"condition": "', rb"\"", b""),
    "escapes": (b'{"condition": "', rb"\"", b'"}'),
    "backslashes": (b'{"condition": "', b"\\", b""),
    "quotes": (b'{"condition": ', b'"', b""),
    "strings": (b'{"condition": [', b'"",', b'""]}'),
    "brackets": (b'{"condition": ', b"[", b""),
    "objects": (b'{"condition": ', b'{"":', b""),
    "members": (b"{", b'"condition": 1,', b'"condition": "a == 1"}'),
    "other members": (b"{", b'"a": 1,', b'"condition": "a == 1"}'),
    "blanks": (b'{"condition": ', b" ", b'"a == 1"}'),
    "numbers": (b'{"condition": {"all": [', b"1,", b"1]}}"),
    "digits": (b'{"condition": ', b"1", b"}"),
    "no end": (b'{"condition": "', b"a", b""),
    "no text": (b'{"condition": "', b"\xff", b'"}'),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_parse_is_linear_in_the_bytes_of_its_body(shape: str) -> None:
    start, unit, end = SHAPES[shape]

    def work(size: int) -> None:
        body = start + unit * (size // len(unit)) + end
        try:
            parse_condition(body, DEFAULT_LIMITS)
        except Refusal as refusal:
            str(refusal)

    # The longest is still read: past 64 KiB a condition is only counted.
    assert grows_linearly(work, 12_000)
