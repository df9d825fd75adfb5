"""What is said of an event beforehand: where conditions are not judged as their authors may expect."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from engine.evaluation.programs import NAME_CHARS_SHOWN, RELATIONS_NAMED_MAX, Programs
from engine.language.diagnostics import Entry
from engine.language.limits import Limits


def remarks_on(
    fields: Mapping[str, Any], sent: Mapping[str, Any], programs: Programs, limits: Limits
) -> Iterator[Entry]:
    """Say which relations are not there, and on which texts patterns are not tried."""
    yield from _on_relations(sent, programs)
    chars_max = limits.pattern_text_chars_max
    cut = programs.patterns.begin(fields, sent)
    for said, bytes_max, text in programs.texts.found_in(fields, sent):
        if len(text) > chars_max:
            tried = f"patterns are tried on at most {chars_max}"
        elif 4 * len(text) > bytes_max < len(text.encode("utf-8", "surrogatepass")):
            # Up to four bytes a character: most texts need not be encoded to know that they are short.
            tried = f"the largest of its patterns is tried on at most {bytes_max} bytes"
        elif programs.patterns.is_untried(said):
            tried = "its patterns are not tried: together they would take too long"
        elif said in cut:
            tried = "the slow ones among its patterns are not tried: together they would take too long"
        else:
            continue
        yield Entry(2004, f"`{_shown(said)}` has {len(text)} characters; {tried}")


def _on_relations(sent: Mapping[str, Any], programs: Programs) -> Iterator[Entry]:
    missing = len(programs.relations) - sum(name in programs.relations for name in sent)
    named = islice((name for name in programs.relation_names if name not in sent), RELATIONS_NAMED_MAX)
    for name in named:
        yield Entry(2003, f"the relation `{_shown(name)}` is neither stored nor sent, and holds nothing")
    if missing > RELATIONS_NAMED_MAX:
        more = missing - RELATIONS_NAMED_MAX
        yield Entry(2003, f"{more} more relations are neither stored nor sent, and hold nothing")


def _shown(name: str) -> str:
    return name if len(name) <= NAME_CHARS_SHOWN else name[:NAME_CHARS_SHOWN] + "…"
