"""The docstrings under the fields of a message, which describe them in the OpenAPI document."""

import ast
import inspect
from itertools import pairwise

from msgspec import Struct


def field_texts(message: type[Struct]) -> dict[str, str]:
    """Return the text under each field that has one, by the field's name; fields of bases included."""
    found: dict[str, str] = {}
    bases = [base for base in message.__mro__ if issubclass(base, Struct) and base is not Struct]
    for base in reversed(bases):
        [definition] = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef), "a message is a class"
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    found[name] = " ".join(said.split())
    return found
