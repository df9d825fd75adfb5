"""Records which tests enter which functions, so that those that can notice a mutant judge it."""

import functools
import sys
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from tests.mutation.mutants import Mutant


class Reach(NamedTuple):
    """What each test entered, by its id, and the processor seconds that it took."""

    entered: dict[str, frozenset[tuple[str, str]]]
    """The functions, each by its file below the room's folder and its name there."""
    seconds: dict[str, float]

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that enter a mutant's function, the shortest first; all, if it is in none."""
        place = (mutant.file, mutant.where)
        found = [test for test, entered in self.entered.items() if place in entered]
        return sorted(found or self.entered, key=self.seconds.__getitem__)


class Recorder:
    """Records which functions each test enters, as a plugin of pytest.

    It must be made before the product is imported, because it replaces the decorators that cache results.
    """

    def __init__(self, folder: Path) -> None:
        self._below = f"{folder}/"
        self._caches = list[Any]()
        self.reach = Reach({}, {})
        make = functools.lru_cache

        def noted(cache: Any) -> Any:
            self._caches.append(cache)
            return cache

        def cached(*size: Any, **options: Any) -> Any:
            if size and callable(size[0]):
                return noted(make(size[0]))
            return lambda function: noted(make(*size, **options)(function))

        functools.lru_cache = cached  # type: ignore[assignment]
        functools.cache = cached(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        entered = set[CodeType]()

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                entered.add(frame.f_code)

        # A test that finds a cached result does not enter the function that it depends on.
        for cache in self._caches:
            cache.cache_clear()
        started = time.process_time()
        sys.setprofile(note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.reach.seconds[item.nodeid] = time.process_time() - started
            self.reach.entered[item.nodeid] = frozenset(
                (code.co_filename.removeprefix(self._below), code.co_qualname.replace(".<locals>", ""))
                for code in entered
                if code.co_filename.startswith(self._below)
            )


class Selection:
    """Runs only these tests, in this order, as a plugin of pytest."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._place = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._place]
        items[:] = sorted(chosen, key=lambda item: self._place[item.nodeid])
