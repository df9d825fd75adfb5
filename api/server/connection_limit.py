"""All open connections: how many there may be, and which one goes where one more comes."""

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

_log = logging.getLogger(__name__)

_SAY_AGAIN_S: Final = 60.0
"""Between two lines in the log that tell the same."""

STATE: Final = "place"
"""Under this name a request's ASGI state holds the place of its connection."""


class Ways(NamedTuple):
    """What can be done to a connection from outside: cut it at once, or have it end soon if it is idle."""

    cut: Callable[[], None]
    end_if_idle: Callable[[], None]


class Crowd:
    """The connections that are open, at most `most` of them.

    Where there is no room for one more, one is cut: of those that never had a request which a token let
    pass, the oldest; else, of those that wait for their next request, the one whose last was let pass longest
    ago. One with such a request under way is never cut for another. So who opens connections without end has
    them push each other out, and does not keep out anybody who has a token.
    """

    def __init__(self, most: int) -> None:
        assert most > 0, "somebody must be served"
        self.most = most
        self._strangers: dict[Place, None] = {}
        """In order of arrival."""
        self._guests: dict[Place, None] = {}
        """In order of the last request that was let pass."""
        self._all: set[Place] = set()
        self._said_s = -_SAY_AGAIN_S
        self.leaving = False
        """Whether every reply is to be the last on its connection, and to say so."""
        self.ending = False
        """Whether nobody is to wait long for another request."""

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, ways: Ways) -> "Place":
        """Give a connection its place; another loses its own where there is no room."""
        place = Place(self, ways)
        self._all.add(place)
        self._strangers[place] = None
        if len(self._all) > self.most:
            stranger = next(iter(self._strangers))
            # The one that comes goes again only where nobody else can.
            out = stranger if stranger is not place else next(iter(self._guests), place)
            self.forget(out)
            out.ways.cut()
            self._say()
        return place

    def _say(self) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= _SAY_AGAIN_S:
            self._said_s = now_s
            _log.warning(
                "%d connections are open, which is all there may be; others are closed for more", self.most
            )

    def hold(self, place: "Place") -> None:
        """Keep a place while a request is under way that was let pass."""
        self._strangers.pop(place, None)
        self._guests.pop(place, None)

    def rest(self, place: "Place") -> None:
        """Take note that a connection waits for its next request."""
        if place in self._all and place not in self._strangers and place not in self._guests:
            self._guests[place] = None

    def forget(self, place: "Place") -> None:
        """Take a connection for gone; it may be so already."""
        self._all.discard(place)
        self.hold(place)

    def leave(self) -> None:
        """Have every reply say from now on that it is the last on its connection."""
        self.leaving = True

    def end(self) -> None:
        """Have all connections end that have been idle for a little while, now and from now on."""
        self.leaving = True
        self.ending = True
        for place in list(self._all):
            place.ways.end_if_idle()


class Place:
    """The place of one connection."""

    __slots__ = ("_crowd", "ways")

    def __init__(self, crowd: Crowd, ways: Ways) -> None:
        self._crowd = crowd
        self.ways = ways

    def hold(self) -> None:
        """Say that a request was let pass, and is under way until `rest`."""
        self._crowd.hold(self)

    def rest(self) -> None:
        """Say that the connection waits for its next request."""
        self._crowd.rest(self)

    def leave(self) -> None:
        """Say that the connection is gone."""
        self._crowd.forget(self)
