import io
import os
from pathlib import Path

from api.cli.replaying.feeding import LiveInput


def test_a_pipe_that_falls_silent_is_told_before_the_read_waits() -> None:
    end, begin = os.pipe()
    # A read that would wait fails.
    os.set_blocking(end, False)
    idle: list[int] = []

    def on_idle() -> None:
        idle.append(len(seen))
        if len(idle) == 1:
            os.write(begin, b"two\n")
        else:
            os.close(begin)

    seen: list[bytes] = []
    os.write(begin, b"one\n")
    lines = io.BufferedReader(LiveInput(end, on_idle))
    while line := lines.readline():
        seen.append(line)
    os.close(end)
    assert seen == [b"one\n", b"two\n"]
    assert idle == [1, 2], "each line was given before the next one was waited for"


def test_a_file_is_never_idle() -> None:
    with Path(__file__).open("rb") as file:
        read = io.BufferedReader(LiveInput(file.fileno(), on_idle=lambda: 1 // 0)).read()
        file.seek(0)
        assert read == file.read() != b""
