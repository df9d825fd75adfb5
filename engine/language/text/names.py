"""How names are spelt in the text language, and its keywords."""

import re

KEYWORDS = frozenset(
    {
        *("and", "or", "not", "in", "contains", "matches", "between"),
        *("once", "historically", "since", "within", "for", "per", "strong", "weak"),
        *("all", "any", "true", "false", "null"),
    }
)

_WORD = "[A-Za-z_@][A-Za-z0-9_@-]*"
_PLAIN_WORD = re.compile(_WORD)
_PLAIN_NAME = re.compile(rf"\$?{_WORD}(?:\.{_WORD})*")


def is_reserved(word: str) -> bool:
    """Tell whether the word is a keyword in some letter case, and so no name unless in backquotes."""
    return word.lower() in KEYWORDS


def name_text(name: str) -> str:
    """Give the name of a fact as it is written in the text language."""
    plain = _PLAIN_NAME.fullmatch(name) and not is_reserved(name)
    return name if plain else in_backquotes(name)


def relation_text(name: str) -> str:
    """Give the name of a relation as it is written: no dots and no `$` without backquotes."""
    plain = _PLAIN_WORD.fullmatch(name) and not is_reserved(name)
    return name if plain else in_backquotes(name)


def in_backquotes(name: str) -> str:
    """Give any name between backquotes, those within it doubled."""
    return "`" + name.replace("`", "``") + "`"


def from_backquotes(text: str) -> str:
    """Give the name that stands between backquotes."""
    return text[1:-1].replace("``", "`")
