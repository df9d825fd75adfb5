"""The grammar of the text language: that of the file, and the words of the operators in their shapes."""

from collections.abc import Iterator
from importlib import resources
from typing import Final

from engine.language.forms.form import Shape
from engine.language.forms.table import FORMS
from engine.language.forms.terms import AGGREGATE_WORDS
from engine.language.text.lexical.names import contextual_keywords
from engine.language.text.sugar import SUGAR

_RULES: Final = {
    Shape.PREFIX: ("prefixed", "{word} prefixed"),
    Shape.PREFIX_WITHIN: ("prefixed", '{word} "within" ages prefixed'),
    Shape.PREFIX_FOR: ("prefixed", '{word} "for" ages boundary? prefixed'),
    Shape.INFIX: ("link", "prefixed {word} prefixed"),
    Shape.INFIX_WITHIN: ("link", 'prefixed {word} "within" ages prefixed'),
    Shape.CALL_OF_CONDITION: ("predicate", '{word} "(" disjunction ")" span comparison literal'),
    Shape.CALL_SINCE: ("predicate", '{word} "(" disjunction ")" SINCE prefixed comparison literal'),
    Shape.CALL_OF_FACT: ("predicate", '{word} "(" filtered ")" span comparison literal'),
}
"""The rule that each shape extends, and with what. The transformer has a method for each shape."""


def grammar() -> str:
    """Return the whole grammar, for lark."""
    own = resources.files("engine.language.text").joinpath("grammar.lark").read_text(encoding="utf-8")
    return "\n".join([own, *dict.fromkeys(_lines())])


def _lines() -> Iterator[str]:
    # These are lexed as WORD. The reader finds out where they are keywords.
    yield f"%declare {' '.join(sorted(contextual_keywords())).upper()}"
    yield f"sugar: {' | '.join(SUGAR).upper()}"
    for form in FORMS.values():
        if form.shape is not None:
            terminal = form.word.upper()
            if not form.is_addition:
                yield f'{terminal}: "{form.word}"'
            if form.word not in AGGREGATE_WORDS or form.shape is Shape.CALL_SINCE:
                # The others are read as comparisons of terms.
                rule, expansion = _RULES[form.shape]
                yield f"%extend {rule}: {expansion.format(word=terminal)} -> {form.shape.name.lower()}"
