"""Numbers with their nouns."""


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
