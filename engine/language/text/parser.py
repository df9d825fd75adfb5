"""Text to conditions: the text language or JSON, told apart by the first character. The only user of lark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from functools import cache
from importlib import resources
from typing import NoReturn

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from engine.language.condition import Condition
from engine.language.diagnostics import Source
from engine.language.json.spans import LocatedObject
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.language.literals import explain_string, number_value, string_value
from engine.language.text.names import is_reserved
from engine.language.text.suggestions import WORDS_BACK_MAX, Word, explain, explain_character
from engine.language.text.transformer import Part, Sentences, split_duration
from engine.language.validation.document import condition_from_document, condition_from_json
from engine.language.validation.size import check_size, check_text_size, too_deep
from engine.language.validation.validator import judge

_OPENERS = {"NOT", "ONCE", "HISTORICALLY", "PER", "ALL", "ANY"}
_JOINTS = {"AND", "OR", "SINCE"}


def parse(source: str | Mapping[str, object], limits: Limits = DEFAULT_LIMITS) -> Condition:
    """Give the condition that a text, or a decoded JSON document, is.

    A text whose first character that is no blank is `{` is JSON, any other is in the text language. Raises
    ConditionError: 1303 before anything else; 1300 with line, column and caret where a text cannot be read;
    else every 1301 and 1302 with its place.
    """
    if not isinstance(source, str):
        return condition_from_document(source, limits)
    if source.lstrip(" \t\r\n").startswith("{"):
        return condition_from_json(source, limits)
    check_text_size(source, limits)
    text = Source(source)
    return judge(_Reader(text, limits).read(), limits, text)


@cache
def _parser() -> Lark:
    """Give the parser, built when it is first needed (some 50 ms) and never changed by parsing."""
    grammar = resources.files("engine.language.text").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", transformer=Sentences(), maybe_placeholders=False)


class _Reader:
    """Reads one text. Keeps its tokens, so that an error can try what the text may have been meant to say."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._tokens: list[Token] = []
        self._state = _parser().parse_interactive(source.text)

    def read(self) -> LocatedObject:
        """Give the document of the text, or raise ConditionError."""
        stopped = None
        try:
            for token in _lexed(self._state):
                self._feed(token)
        except UnexpectedCharacters as error:
            stopped = error.pos_in_stream
        if stopped is not None:
            self._refuse_character(stopped)
        end = self._source.end()
        document = self._feed(Token("$END", "", start_pos=end, end_pos=end))
        assert isinstance(document, LocatedObject)
        return document

    def _feed(self, token: Token) -> object:
        """Read one token on; gives what the whole text builds where that was its end."""
        self._tokens.append(token)
        built: object = None
        taken = token.type != "WORD" or not is_reserved(token)
        if taken:
            try:
                built = self._state.feed_token(token)
            except UnexpectedToken:
                taken = False
        if not taken:
            self._refuse()
        self._check_literal(token)
        return built

    def _check_literal(self, token: Token) -> None:
        """Refuse a literal that is well-formed, but that JSON could not say."""
        match token.type:
            case "NUMBER":
                number_value(token, token.start_pos or 0, self._limits, self._fail)
            case "DURATION":
                amount, _ = split_duration(token)
                number_value(amount, token.start_pos or 0, self._limits, self._fail)
            case "STRING":
                string_value(token, token.start_pos or 0, self._fail)

    def _refuse(self) -> NoReturn:
        """Refuse the text at its last token, or at the word before it that is at fault."""
        failed = len(self._tokens) - 1
        self._fail(*explain(self._source.text, self._words(), failed, _Trials(self._tokens)))

    def _refuse_character(self, offset: int) -> NoReturn:
        if self._source.text[offset] == '"':
            explain_string(self._source.text, offset, self._fail)
        self._fail(*explain_character(self._source.text, self._words(), offset, _Trials(self._tokens)))

    def _words(self) -> list[Word]:
        return [Word(token.type, str(token), token.start_pos or 0) for token in self._tokens]

    def _fail(self, offset: int, sentence: str) -> NoReturn:
        """Refuse the text; but what stands before is too deep, whatever follows, comes first."""
        _check_depth(self._state.parser_state.value_stack, self._limits)
        raise self._source.refusal(offset, sentence)


class _Trials:
    """The parser's states around the place where a text failed, for trying other tokens in them."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._states: dict[int, InteractiveParser] = {}

    def accepted(self, index: int) -> AbstractSet[str]:
        accepts: Callable[[], set[str]] = self._before(index).accepts
        return accepts()

    def goes_on(self, index: int, terminal: str, past: int) -> bool:
        state = _copied(self._before(index))
        try:
            for token in (Token(terminal, ""), *self._tokens[index + 1 : past + 1]):
                state.feed_token(token)
        except UnexpectedToken:
            return False
        return True

    def _before(self, index: int) -> InteractiveParser:
        """Give the state before a token, which only tells what it takes: it builds nothing."""
        if index not in self._states:
            before = max((known for known in self._states if known < index), default=None)
            if before is None:
                # The first to be asked for is nearly the last; those before it are asked for next.
                before = max(0, index - WORDS_BACK_MAX)
                self._states[before] = self._fed(self._blank(), 0, before)
            self._states[index] = self._fed(_copied(self._states[before]), before, index)
        return self._states[index]

    def _fed(self, state: InteractiveParser, start: int, stop: int) -> InteractiveParser:
        for token in self._tokens[start:stop]:
            state.feed_token(token)
        return state

    @staticmethod
    def _blank() -> InteractiveParser:
        state = _parser().parse_interactive("")
        state.parser_state.parse_conf = copy(state.parser_state.parse_conf)
        state.parser_state.parse_conf.callbacks = {}
        return state


def _lexed(state: InteractiveParser) -> Iterator[Token]:
    lex: Callable[[object], Iterator[Token]] = state.lexer_thread.lex
    return lex(state.parser_state)


def _copied(state: InteractiveParser) -> InteractiveParser:
    """Give a second state to feed, which leaves the first as it is. The values in it are shared."""
    copied: Callable[..., InteractiveParser] = state.copy
    return copied(deepcopy_values=False)


def _check_depth(values: Sequence[object], limits: Limits) -> None:
    """Refuse, as too deep or too large, the beginning of a condition that no ending could make small enough.

    `values` is the parser's stack: documents that are complete, and the words that opened what is not.
    """
    opened = 0
    for index, value in enumerate(values):
        match value:
            case LocatedObject():
                check_size(value, limits, opened)
            case Tree(children=children) if str(value.data).startswith(("__disjunction", "__conjunction")):
                # The members of an `and` or `or` from the second on; the first stands before them.
                opened += 1
                for document in (values[index - 1], *children):
                    check_size(document, limits, opened)
            case Tree(children=children):
                for document in children:
                    if isinstance(document, LocatedObject):
                        check_size(document, limits, opened)
            case Token(type=terminal) if terminal in _JOINTS and not isinstance(values[index - 1], Tree):
                opened += 1
                check_size(values[index - 1], limits, opened)
            case Token(type=terminal) if terminal in _OPENERS and not _is_operator(values, index):
                opened += 1
    if opened >= limits.depth_max:
        raise too_deep(limits)


def _is_operator(values: Sequence[object], index: int) -> bool:
    """Tell whether a `not` is that of `not in`: behind a name that is neither a key nor a window."""
    match values[max(0, index - 2) : index]:
        case [Token(type="PER" | "WITHIN" | "FOR"), Part()]:
            return False
        case [*_, Part()]:
            return True
        case _:
            return False
