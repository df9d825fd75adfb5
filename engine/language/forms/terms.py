"""The table of the forms of terms, which are the sides of `compare`."""

from collections.abc import Mapping
from typing import Any, Final

from engine.language import terms
from engine.language.forms.form import INNER, WHERE, WINDOW, Content, Form

PARTS: Final = ("hour", "minute", "weekday", "day", "month", "clock")
"""The parts of the local time. Each is also the word of its term in the text language."""

_NAME: Final = {"fact": Content.NAME}


def _bare(make: type[Any], name: str, fields: Mapping[str, Content]) -> Form:
    return Form(make=make, name=name, fields=fields, is_bare=True, looks_back=terms.is_past(make))


def _aggregate(make: type[Any], name: str, text: str, over: Mapping[str, Content] = _NAME | WHERE) -> Form:
    fields = {**over, **WINDOW, "earlier": Content.EARLIER}
    optional = frozenset({*WHERE, *WINDOW, "earlier"} & fields.keys())
    return Form(make=make, name=name, fields=fields, optional=optional, text=text, looks_back=True)


TERM_FORMS: Final[dict[str, Form]] = {
    form.name: form
    for form in (
        _bare(terms.Fact, "fact", _NAME),
        _bare(terms.Prev, "prev", _NAME),
        Form(
            make=terms.Last,
            name="last",
            fields=_NAME | WHERE,
            optional=frozenset(WHERE),
            looks_back=True,
            text="The fact's value at the latest event before now at which it was a string, number or "
            "boolean, and `where` was true.",
        ),
        _bare(terms.Add, "add", {"operands": Content.TERMS}),
        _bare(terms.Mul, "mul", {"operands": Content.TERMS}),
        _bare(terms.Sub, "sub", {"operands": Content.TWO_TERMS}),
        _bare(terms.Div, "div", {"operands": Content.TWO_TERMS}),
        _bare(terms.Abs, "abs", {"operand": Content.TERM}),
        _bare(terms.Length, "length", _NAME),
        Form(
            make=terms.Now,
            name="now",
            fields={},
            text="The time of the event, in seconds since 1970.",
        ),
        _bare(terms.Time, "time", _NAME),
        Form(
            make=terms.Clock,
            name="clock",
            fields={"part": Content.PART, "zone": Content.ZONE},
            optional=frozenset({"zone"}),
            text="A part of the event's time in a zone; UTC if none. `weekday` is 1 (Monday) to 7, and "
            "`clock` the text `HH:MM`.",
        ),
        _bare(terms.Age, "age", INNER),
        _aggregate(
            terms.CountTerm,
            "count",
            "How many events so far, no older than the window, at which inner was true.",
            INNER,
        ),
        _aggregate(
            terms.SumTerm,
            "sum",
            "The sum of the fact over the events so far, no older than the window, at which it was a number "
            "and `where` was true.",
        ),
        _aggregate(terms.AvgTerm, "avg", "The mean of the fact over the same events as those of a sum."),
        _aggregate(terms.MinTerm, "min", "The least value of the fact over the same events."),
        _aggregate(terms.MaxTerm, "max", "The greatest value of the fact over the same events."),
    )
}
"""The forms by their names in JSON, in the order of the closed union `Term`."""

TERM_FORM_OF: Final[dict[type, Form]] = {form.make: form for form in TERM_FORMS.values()}
"""The same forms by their classes."""


TERM_WORDS: Final = frozenset({*TERM_FORMS, *PARTS} - {"fact", "add", "mul", "sub", "div"})
"""The words of terms in the text language, each of which precedes a parenthesis."""
AGGREGATE_WORDS: Final = frozenset(form.name for form in TERM_FORMS.values() if "earlier" in form.fields)
"""The words of terms that may have a window, and `earlier` before them."""
