"""Worlds of many overlapping rules about prefixes, suffixes and parts of texts, and about networks.

An index finds each rule by a piece of a text, so mistakes show when one text has several pieces.
"""

from engine import parse
from engine.language.condition import All, Condition, Keyed, Not, Once, OnceWithin, Previous
from tests.worlds.many_rules import STEPS_US, ManyRulesWorld
from tests.worlds.scripts import MOSTLY, Choose, Submit, timestamp_ms

FORMS = (
    *("startswith", "endswith", "startswith", "endswith", "startswith", "endswith", "contains", "icontains"),
    *("istartswith", "iendswith", "iequals", "==", "!=", "like", "ilike", "matches"),
)
PIECES = ("a", "a", "ab", "aba", "b", "ba", "bab", "", "k", "\u212a", "a*b", "a?", "x" * 40, "x" * 41)
TEXTS = (*PIECES, "abb", "K", "aBa", "kba", "a.b", "x" * 42, "a\nb")
NETWORKS = (
    *("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "::ffff:10.1.0.0/112", "2001:db8::/32", "0.0.0.0/0", "::/0"),
)
ADDRESSES = (
    *(
        "10.1.2.3",
        "10.1.2.4",
        "10.2.0.1",
        "::ffff:10.1.2.3",
        "2001:db8::1",
        "2001:db9::1",
        "10.1",
        "fe80::1%0",
    ),
)
NAMES = ("x", "x", "x", "x", "y.z", "$v")


class TextTestsWorld(ManyRulesWorld):
    """A world of many such rules, with few forms and pieces, on facts, elements and all strings."""

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self.forms = [choose((*FORMS, "in network", "in network")) for _ in range(2)]
        self.names = [choose(NAMES), choose(NAMES)]
        self.pieces = [choose(PIECES) for _ in range(5)]

    def tested(self, name: str) -> str:
        """Return a predicate about a name."""
        choose = self.choose
        form, pieces = choose(self.forms), [choose(self.pieces) for _ in range(2)]
        several = not choose(MOSTLY)
        match form:
            case "in network":
                networks = [choose(NETWORKS) for _ in range(2)][: 1 + several]
                return f"{name} in network [{', '.join(map(quoted, networks))}]"
            case "matches":
                return f"{name} matches {quoted(choose(('^a', 'b$', 'ab|bb', '^(?:a|ab)$', 'a.b')))}"
            case "==" | "!=":
                return f"{name} {form} {quoted(pieces[0])}"
        wanted = (
            f"[{', '.join(map(quoted, pieces))}]" if several and form != "contains" else quoted(pieces[0])
        )
        return f"{name} {form} {wanted}"

    def condition(self, depth: int) -> Condition:
        """Return a rule."""
        choose = self.choose
        match choose("ppppppsawn"):
            case "s":
                inner = parse(f"some list ({self.tested('it')} or {self.tested('n')})")
            case "w":
                inner = parse(f"anywhere ({self.tested('it')})")
            case "n":
                inner = Not(parse(self.tested(choose(self.names))))
            case "a":
                inner = All(tuple(parse(self.tested(choose(self.names))) for _ in range(2)))
            case _:
                inner = parse(self.tested(choose(self.names)))
        around = (
            lambda c: c,
            lambda c: c,
            Once,
            Previous,
            lambda c: OnceWithin(c, 0.3),
            lambda c: Keyed(Once(c), "k"),
        )
        made: Condition = choose(around)(inner)
        return made

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        """Return an event."""
        choose = self.choose
        time_us = clock_us + choose(STEPS_US)

        def value() -> object:
            return choose((*self.pieces, *self.pieces, *self.pieces, *TEXTS, *ADDRESSES, 1, None, ["a"]))

        elements = [choose((value(), {"n": value()})) for _ in range(choose((0, 1, 2, 3)))]
        fields = {"x": value(), "y": {"z": value()}, "list": elements, "k": choose((1, 2))}
        sent = choose((None, {"v": value()}))
        return Submit(fields, timestamp_ms(time_us), sent), time_us


def quoted(text: str) -> str:
    """Return a text as a literal of the language."""
    return '"' + text.replace("\n", "\\n") + '"'
