"""Other engines, if they are installed: for three-leaf rules, and for temporal logic.

Those whose expressions may give a list are measured twice: rule by rule, as rules come and go, and with many
rules joined in one expression, which is the fastest that they can be, though any change compiles it anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any, Self

from tests.bench.measuring.race import Contestant, Event, Verdict
from tests.bench.measuring.rows import Other

NAMES = ("zen-engine", "rule-engine", "cel-expr-python", "common-expression-language", "reelay")
NOT_INSTALLED = "not installed"

JOINED = ", joined"
"""Ends the name of a peer that judges many rules in one expression."""

RULES_PER_EXPRESSION = 100
"""Some refuse expressions of more rules, which are no faster."""


@dataclass(frozen=True, slots=True)
class ThreeLeaves:
    """`amount` within a range, `country` among some, and `email` matching a pattern without quotes in it."""

    low: int
    high: int
    countries: tuple[str, ...]
    pattern: str

    def text(self) -> str:
        """The rule in the product's language."""
        within = f"amount between {self.low} and {self.high}"
        return f"{within} and country in {self._list()} and email matches '{self.pattern}'"

    def zen(self) -> str:
        """The rule for zen-engine."""
        within = f"amount >= {self.low} and amount <= {self.high}"
        return f'{within} and country in {self._list()} and matches(email, "{self.pattern}")'

    def rule_engine(self) -> str:
        """The rule for rule-engine."""
        within = f"amount >= {self.low} and amount <= {self.high}"
        return f'{within} and country in {self._list()} and email =~~ "{self.pattern}"'

    def cel(self) -> str:
        """The rule in the Common Expression Language."""
        within = f"amount >= {self.low} && amount <= {self.high}"
        return f'{within} && country in {self._list()} && email.matches("{self.pattern}")'

    def _list(self) -> str:
        return "[" + ", ".join(f'"{country}"' for country in self.countries) + "]"


Judge = Callable[[dict[str, Any]], list[Any]]
"""Gives the verdicts on the fields of an event."""


def _contestant(name: str, judge: Judge, *, joined: bool) -> Contestant:
    def run(events: list[Event]) -> list[Any]:
        return [judge(fields) for fields, _, _ in events]

    def verdicts(answers: Sequence[Any]) -> list[Verdict]:
        told = [list(chain(*answer)) if joined else answer for answer in answers]
        return [tuple(number for number, true in enumerate(answer) if true) for answer in told]

    return Contestant(f"{name}{JOINED if joined else ''}", run, verdicts)


def _expressions(texts: list[str], *, joined: bool) -> list[str]:
    """Return the texts as they are, or joined, many at a time, to expressions that give a list."""
    if not joined:
        return texts
    starts = range(0, len(texts), RULES_PER_EXPRESSION)
    return ["[" + ", ".join(texts[start : start + RULES_PER_EXPRESSION]) + "]" for start in starts]


def zen_engine(rules: Sequence[ThreeLeaves], *, joined: bool) -> Contestant:
    """zen-engine: expressions in Rust. It compiles the pattern of `matches` anew at each evaluation."""
    zen = import_module("zen")
    texts = _expressions([rule.zen() for rule in rules], joined=joined)
    made = [zen.compile_expression(text).evaluate for text in texts]
    return _contestant("zen-engine", lambda fields: [evaluate(fields) for evaluate in made], joined=joined)


def rule_engine(rules: Sequence[ThreeLeaves]) -> Contestant:
    """rule-engine: rules interpreted in Python."""
    library = import_module("rule_engine")
    made = [library.Rule(rule.rule_engine()).matches for rule in rules]
    return _contestant("rule-engine", lambda fields: [matches(fields) for matches in made], joined=False)


def cel_expr_python(rules: Sequence[ThreeLeaves], *, joined: bool) -> Contestant:
    """cel-expr-python: Google's CEL in C++."""
    cel = import_module("cel_expr_python.cel")
    types = {"amount": cel.Type.INT, "country": cel.Type.STRING, "email": cel.Type.STRING}
    environment = cel.NewEnv(variables=types)
    texts = _expressions([rule.cel() for rule in rules], joined=joined)
    made = [environment.compile(text).eval for text in texts]

    def judge(fields: dict[str, Any]) -> list[Any]:
        activation = environment.Activation(fields)
        return [evaluate(activation).plain_value() for evaluate in made]

    return _contestant("cel-expr-python", judge, joined=joined)


def common_expression_language(rules: Sequence[ThreeLeaves], *, joined: bool) -> Contestant:
    """common-expression-language: CEL in Rust."""
    cel = import_module("cel")
    texts = _expressions([rule.cel() for rule in rules], joined=joined)
    made = [cel.compile(text).execute for text in texts]
    return _contestant(
        "common-expression-language", lambda fields: [execute(fields) for execute in made], joined=joined
    )


@dataclass(slots=True)
class Changes:
    """Reads reelay's answers, which are empty unless the verdict changes."""

    now: bool = False

    def verdicts(self, answers: Sequence[Any]) -> list[Verdict]:
        """Return the verdict of its only rule on each event."""
        told: list[Verdict] = []
        for answer in answers:
            self.now = answer.get("value", self.now)
            told.append((0,) if self.now else ())
        return told


def reelay(pattern: str, *, keyed: bool) -> Contestant:
    """reelay: past-time metric temporal logic in C++, one step of its clock for each event.

    With keys it slows as it meets more of them, so it is given few events, which is in its favour.
    """
    library = import_module("reelay")
    update = library.discrete_timed_monitor(pattern=pattern, semantics="boolean", condense=True).update
    if keyed:
        # Its very first answer ignores what the pattern negates; this event concerns no user of ours.
        update({"alarm": 0, "calm": 1, "user": "nobody"})

    def run(events: list[Event]) -> list[Any]:
        return [update(fields) for fields, _, _ in events]

    return Contestant("reelay", run, Changes().verdicts, 500 if keyed else None)


@dataclass(frozen=True, slots=True)
class Field:
    """The peers of a race: those that are installed, and the reasons why others are not."""

    contestants: list[Contestant]
    absent: dict[str, Other]

    @classmethod
    def of(cls, makers: Mapping[str, Sequence[Callable[[], Contestant]]]) -> Self:
        """Return the peers whose packages are installed. An installed package that fails is an error."""
        there = {name: each for name, each in makers.items() if version_of(name) is not None}
        absent: dict[str, Other] = {name: NOT_INSTALLED for name in makers if name not in there}
        return cls([make() for each in there.values() for make in each], absent)


def version_of(package: str) -> str | None:
    """Return the version of a package that is installed, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def of_three_leaves(rules: Sequence[ThreeLeaves]) -> Field:
    """Return all peers that judge stateless rules."""

    def both(make: Callable[..., Contestant]) -> list[Callable[[], Contestant]]:
        ways = (False, True) if len(rules) > 1 else (False,)
        return [partial(make, rules, joined=joined) for joined in ways]

    return Field.of(
        {
            "zen-engine": both(zen_engine),
            "rule-engine": [partial(rule_engine, rules)],
            "cel-expr-python": both(cel_expr_python),
            "common-expression-language": both(common_expression_language),
        }
    )


def of_temporal(pattern: str, *, keyed: bool) -> Field:
    """Return all peers that judge temporal rules."""
    return Field.of({"reelay": [partial(reelay, pattern, keyed=keyed)]})
