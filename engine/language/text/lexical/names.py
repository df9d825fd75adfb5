"""The keywords of the text language, and names in backquotes, which need not differ from them."""

from typing import Final

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

WORD: Final = "[A-Za-z_@][A-Za-z0-9_@-]*"
"""The pattern of a name, or of its part between dots, that needs no backquotes."""


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


def in_backquotes(name: str) -> str:
    """Spell a name in backquotes. Backquotes inside it are doubled."""
    return "`" + name.replace("`", "``") + "`"


def from_backquotes(text: str) -> str:
    """Return the name that is spelled in backquotes."""
    return text[1:-1].replace("``", "`")
