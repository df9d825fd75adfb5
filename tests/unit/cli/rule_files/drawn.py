"""Rules whose names, texts and members are hard to write and to read."""

from typing import Any

from hypothesis import strategies as st

from engine import Detector, Refusal
from engine import format as canonical
from tests.worlds.conditions import conditions

TRAPS = (
    *("on", "no", "null", "~", "1", "1e3", "0x1", "1:30", "2024-01-01", ".inf", "true", "<<", "=", "-", "?"),
    *("- a", "a: b", " a", "a ", "#", "a #b", "'", '"', "{}", "[", "&a", "*a", "!a", "|", ">", "%", "@", "`"),
    *("\ufeff", "\u2028", "\x85", "😀", "a" * 255, "\t", "a\nb", "\n", "use 'x'", "...", "---"),
    *("define", "rules", "condition"),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(TRAPS)
names = texts.filter(
    lambda name: 0 < len(name) < 256 and not any(ord(char) < 32 and char not in "\t\n" for char in name)
).filter(lambda name: not any("\x7f" <= char <= "\x9f" for char in name))
scalars = texts | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
labels = st.dictionaries(texts.filter(lambda name: 0 < len(name) <= 64), scalars, max_size=2)
comments = st.lists(texts, max_size=3).map(
    lambda lines: "".join(f" # {line}\n" for text in lines for line in text.replace("\r", "\n").split("\n"))
)
every: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {"every_secs": st.integers(1, 600) | st.floats(1e-6, 1e9)},
    optional={"every_by": st.lists(names.filter("$".__ne__), max_size=3)},
)


def add_rules(data: st.DataObject, detector: Detector) -> None:
    """Add some rules, or those of them that the detector takes; some are drafts of others."""
    ids: list[str] = []
    for name in data.draw(st.lists(names, unique=True, max_size=4), "names"):
        text = canonical(data.draw(conditions)) + data.draw(comments)
        of = data.draw(st.none() | st.sampled_from(ids) if ids else st.none())
        given = {
            "notify": data.draw(st.booleans()),
            "shadow": of is not None or data.draw(st.booleans()),
            "description": data.draw(texts),
            "labels": data.draw(labels),
            "timed": data.draw(st.booleans()),
            **data.draw(every),
        }
        try:
            ids.append(detector.add_rule(name, text, draft_of=of, **given))
        except Refusal:
            continue
        if data.draw(st.booleans()):
            detector.change_rule(ids[-1], enabled=False)
