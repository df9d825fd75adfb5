"""Messages between processes that are lost although the connection continues."""

from typing import Any

import msgspec
import pytest

from engine.runtime.contract.requests.calls import REPORT, Report, decode_report
from engine.runtime.transport.link import Ask, Link, Message, Note

REPORTED = [field.name for field in msgspec.structs.fields(Report) if field.name != "epoch"]
"""The possible contents of a report."""


class Loss:
    """Loses the first message of a kind: `ask` or `answer` with a method, `note` with a name, or a class."""

    def __init__(self, kind: str) -> None:
        self._what, _, self._name = kind.partition(" ")
        self.lost = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send = Link.send

        def lossy(link: Link, message: Message, *, at_once: bool = False) -> None:
            if not self._loses(link, message):
                send(link, message, at_once=at_once)

        monkeypatch.setattr(Link, "send", lossy)

    def _loses(self, link: Link, message: Message) -> bool:
        if self.lost:
            return False
        match self._what, message:
            case "answer", Ask(method=self._name):
                self._lose_answer(link, message.number)
                return False
            case "ask", Ask(method=self._name):
                self.lost += 1
            case "note", Note(name=name, body=body):
                self.lost += self._name in (
                    [f"report of {one}" for one in told(body)] if name == REPORT else [name]
                )
            case what, _ if what == type(message).__name__:
                self.lost += 1
        return self.lost > 0

    def _lose_answer(self, link: Link, number: int) -> None:
        """Lose what this end receives in the first call."""
        take, self._what = link.take, "nothing"

        def without_answer(messages: Any) -> None:
            left = [one for one in messages if getattr(one, "number", None) != number]
            if len(left) < len(messages):
                self.lost += 1
                link.take = take
            take(left)

        link.take = without_answer


def told(body: bytes) -> list[str]:
    """Return the fields of a report that are not empty."""
    report, nothing = decode_report(body), Report(0)
    return [one for one in REPORTED if getattr(report, one) != getattr(nothing, one)]
