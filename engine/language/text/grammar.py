"""The grammar of the text language: that of the file, and the words of the operators in their shapes."""

from collections.abc import Iterator
from importlib import resources
from typing import Final

from engine.language.forms.form import Content, Form, Shape
from engine.language.forms.table import FORMS

_RULES: Final = {
    Shape.PREFIX: ("prefixed", "{word} prefixed"),
    Shape.PREFIX_WITHIN: ("prefixed", '{word} "within" window prefixed'),
    Shape.PREFIX_FOR: ("prefixed", '{word} "for" window boundary? prefixed'),
    Shape.INFIX: ("link", "prefixed {word} prefixed"),
    Shape.INFIX_WITHIN: ("link", 'prefixed {word} "within" window prefixed'),
    Shape.CALL_OF_CONDITION: ("predicate", '{word} "(" disjunction ")" span comparison {value}'),
    Shape.CALL_OF_FACT: ("predicate", '{word} "(" operand ")" span comparison {value}'),
}
"""The rule that each shape extends, and with what. The transformer has a method for each shape."""


def grammar() -> str:
    """Return the whole grammar, for lark."""
    own = resources.files("engine.language.text").joinpath("grammar.lark").read_text(encoding="utf-8")
    return "\n".join([own, *dict.fromkeys(_lines())])


def _lines() -> Iterator[str]:
    for form in FORMS.values():
        if form.shape is not None:
            # The word of an addition is lexed as WORD. The reader finds out where it is a keyword.
            terminal = form.word.upper()
            yield f"%declare {terminal}" if form.is_addition else f'{terminal}: "{form.word}"'
            rule, expansion = _RULES[form.shape]
            made = expansion.format(word=terminal, value=_value(form))
            yield f"%extend {rule}: {made} -> {form.shape.name.lower()}"


def _value(form: Form) -> str:
    return "amount" if form.fields.get("value") is Content.AMOUNT else "literal"
