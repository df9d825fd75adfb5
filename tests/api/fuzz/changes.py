"""Inputs that are nearly valid, as changed examples are, and the bound on what answering one may take."""

from collections.abc import Callable, Iterator, Sequence
from time import thread_time
from typing import Final

import hypothesis
from hypothesis import strategies as st

INPUT_BYTES_MAX: Final = 60_000
"""To which an input grows by repetition. Work that is quadratic in this takes seconds."""
CPU_S_MAX: Final = 1.0
"""What one input may take of a processor. Nobody may hold for longer what others share."""
_TRIES: Final = 3
_PIECES: Final = (
    *(b"", b"\0", b"\n", b"\r\n", b"\r", b" ", b"\t", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\ud800"),
    *(bytes([mark]) for mark in b"\"'[]{}(),:;-+./*#%$\\"),
    *(b"&a", b"*a", b"!!x", b"0", b"1e999", b"-0", b"9" * 400, b"NaN", b"null", b"true", b"1e-400"),
    *(b"18446744073709551616", b"not ", b"per a (", b"once within 5m ", b"a == 1 and ", b"matches "),
    *(b"(a+)+", b"[^a]{1000}", b"rel(x)"),
)

_edits = st.tuples(
    st.sampled_from(("insert", "replace", "remove", "flip", "repeat", "splice", "cut")),
    st.integers(0, 2**16 - 1),
    st.integers(0, 40),
    st.sampled_from(_PIECES),
)


def changed(examples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Draw one of these examples with up to five changes."""

    def apply(example: bytes, other: bytes, edits: list[tuple[str, int, int, bytes]]) -> bytes:
        for kind, place, count, piece in edits:
            at = place * len(example) >> 16
            example = example[:at] + _edited(example[at:], other, kind, count, piece)
        return example

    example = st.sampled_from(list(examples))
    return st.builds(apply, example, example, st.lists(_edits, max_size=5))


def _edited(data: bytes, other: bytes, kind: str, count: int, piece: bytes) -> bytes:
    """Change the beginning of these bytes."""
    match kind:
        case "insert":
            return piece + data
        case "replace":
            return piece + data[len(piece) :]
        case "remove":
            return data[count:]
        case "flip":
            return bytes(byte ^ 1 << count % 8 for byte in data[:1]) + data[1:]
        case "repeat":
            repeated = data[:count] or piece or b"a"
            times = min(1 << count % 16, (INPUT_BYTES_MAX - len(data)) // len(repeated))
            return repeated * times + data
        case "splice":
            return other[-len(data) or len(other) :]
    return b""


def fuzz(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the settings of a test with this many inputs where .ci/run tries six of a property.

    Every change tries the same inputs, those of its seed; `python -m tests.long_run fuzz` tries others.
    """
    profile = hypothesis.settings.default.max_examples
    return hypothesis.settings(
        max_examples=max(20, examples * profile // 6),
        # All inputs of a test may go to one service.
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def tries() -> Iterator[None]:
    """Bound what the body of a loop over this, which answers one input, takes of a processor.

    It is asked again, a few times, if the machine may have been busy.
    """
    taken_s = []
    for _ in range(_TRIES):
        start = thread_time()
        yield
        taken_s.append(thread_time() - start)
        if taken_s[-1] <= CPU_S_MAX:
            return
    raise AssertionError(f"one input takes {min(taken_s):.1f} s of a processor")
