"""What is said of an event beforehand: where conditions are not judged as their authors may expect."""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.evaluation.facts import split_name, value_of
from engine.evaluation.programs import Programs
from engine.language.diagnostics import Entry
from engine.language.limits import Limits


def remarks_on(
    fields: Mapping[str, Any], sent: Mapping[str, Any], programs: Programs, limits: Limits
) -> Iterator[Entry]:
    """Say which relations are not there, and on which texts patterns are not tried."""
    yield from (
        Entry(2003, f"the relation `{name}` is neither stored nor sent, and holds nothing")
        for name in sorted(programs.relations)
        if name not in sent
    )
    chars_max = limits.pattern_text_chars_max
    cut = programs.patterns.begin(fields, sent)
    for said, bytes_max in programs.texts.items():
        text = value_of(split_name(said), fields, sent)
        if type(text) is not str:
            continue
        if len(text) > chars_max:
            tried = f"patterns are tried on at most {chars_max}"
        elif 4 * len(text) > bytes_max < len(text.encode("utf-8", "surrogatepass")):
            # Up to four bytes a character: most texts need not be encoded to know that they are short.
            tried = f"the largest of its patterns is tried on at most {bytes_max} bytes"
        elif said in cut:
            tried = "the slow ones among its patterns are not tried: together they would take too long"
        else:
            continue
        yield Entry(2004, f"`{said}` has {len(text)} characters; {tried}")
