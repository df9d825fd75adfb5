"""The keywords of the text language, and the spelling of names in it."""

import re

from engine.language.forms.table import FORMS, derived
from engine.language.forms.terms import TERM_WORDS
from engine.language.text.sugar import SUGAR

_KEYWORDS = frozenset(
    {
        *("and", "or", "not", "in", "contains", "matches", "between"),
        *("within", "for", "per", "strong", "weak", "all", "any", "true", "false", "null"),
    }
)
"""The keywords that are not the words of operators."""

_OF_PREDICATES = frozenset({"network", "exists", "missing", "some", "anywhere", *SUGAR})
"""The contextual keywords of predicates."""

_WORD = "[A-Za-z_@][A-Za-z0-9_@-]*"
_PLAIN_WORD = re.compile(_WORD)
_PLAIN_NAME = re.compile(rf"\$?{_WORD}(?:\.{_WORD})*")


@derived
def keywords() -> frozenset[str]:
    """Return the words that are never names without backquotes."""
    return _KEYWORDS | {form.word for form in FORMS.values() if form.shape and not form.is_addition}


@derived
def contextual_keywords() -> frozenset[str]:
    """Return the words that are keywords only where the grammar expects them, and names everywhere else."""
    of_forms = {form.word for form in FORMS.values() if form.shape and form.is_addition}
    return frozenset({"where", "compare", *_OF_PREDICATES, *TERM_WORDS, *of_forms})


def is_reserved(word: str) -> bool:
    """Return whether a word is a keyword in any letter case. As a name it needs backquotes."""
    return word.lower() in keywords()


def name_text(name: str) -> str:
    """Spell the name of a fact, in backquotes if it needs them."""
    plain = _PLAIN_NAME.fullmatch(name) and not is_reserved(name)
    return name if plain else in_backquotes(name)


def relation_text(name: str) -> str:
    """Spell the name of a relation. Names with dots or `$` need backquotes, too."""
    plain = _PLAIN_WORD.fullmatch(name) and not is_reserved(name)
    return name if plain else in_backquotes(name)


def in_backquotes(name: str) -> str:
    """Spell a name in backquotes. Backquotes inside it are doubled."""
    return "`" + name.replace("`", "``") + "`"


def from_backquotes(text: str) -> str:
    """Return the name that is spelled in backquotes."""
    return text[1:-1].replace("``", "`")
