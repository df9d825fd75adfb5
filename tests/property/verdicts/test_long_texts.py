"""Texts too long for patterns match none of them, and the reply names each such fact."""

from tests.worlds.long_texts import differences


def test_texts_that_are_too_long_match_nothing_and_give_a_warning() -> None:
    assert list(differences()) == []
