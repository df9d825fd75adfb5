"""A timeline as server-sent events: the verdicts of a rule, sent soon after each event."""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from api.http.handling.event_stream import ALIVE, EventStream, body, event
from api.server.asgi import Send
from engine.runtime.contract.requests.operations import timeline

LOOK_S: Final = 0.5
"""The interval between two looks at the timeline."""


class Continuation(msgspec.Struct):
    """The part of a timeline that says where to continue."""

    class Moment(msgspec.Struct):
        """An event."""

        number: int

    moments: list[Moment]


@dataclass(eq=False)
class TimelineStream(EventStream):
    """One stream. Each server-sent event has what is new; comments show that the stream is alive."""

    rule_id: str = ""
    key: dict[str, Any] = field(default_factory=dict)

    async def tell(self, send: Send) -> None:
        """Send what is new at each look."""
        after: int | None = None
        while not self.ended:
            found = await self.ask(timeline(self.rule_id, self.key, after or 0))
            moments = msgspec.json.decode(found, type=Continuation).moments
            new = event(found) if moments or after is None else ALIVE
            after = moments[-1].number if moments else after or 0
            # While it is not read, it is there once, and nothing more is asked for.
            del found, moments
            await send(body(new))
            del new
            await self.wait(LOOK_S)
