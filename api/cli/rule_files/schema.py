"""The JSON Schema of rules files, for editors, generated from the types and tables of the reader."""

import json
from typing import Any, Final

import msgspec

from api.cli.rule_files.members import Firing, RuleMembers, RuleTest
from api.cli.rule_files.reading import WholeFile
from api.cli.rule_files.relations import RelationFile
from api.schema.condition_schemas import condition_schemas
from api.schema.openapi import field_texts

_REFERENCE: Final = "#/$defs/{name}"
_RULE: Final = {"$ref": "#/$defs/Rule"}
_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_CONDITION: Final = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Condition"}]}
_NAMES: Final = {"minLength": 1, "maxLength": 255}


def rules_file_schema() -> dict[str, Any]:
    """Return the schema: a file with `rules` and more, or a map of names to rules."""
    types = (WholeFile, RuleMembers, RuleTest, Firing, RelationFile)
    _, parts = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    for type_ in types:
        texts = field_texts(type_)
        for field in msgspec.structs.fields(type_):
            if field.name in texts:
                parts[type_.__name__]["properties"][field.encode_name]["description"] = texts[field.name]
    conditions = json.dumps(condition_schemas(), allow_nan=False).replace("#/components/schemas/", "#/$defs/")
    parts |= json.loads(conditions)
    parts["RuleMembers"]["properties"]["condition"] |= _CONDITION
    parts["Firing"]["oneOf"] = [{"required": ["line"]}, {"required": ["time"]}]
    parts["Rule"] = {
        "anyOf": [{"type": "string"}, {"$ref": "#/$defs/RuleMembers"}, {"$ref": "#/$defs/Condition"}]
    }
    rules = {"type": "object", "propertyNames": _NAMES, "additionalProperties": _RULE}
    # Keywords for objects do not apply to arrays, so errors are reported at the rule, not at `rules`.
    listed = {"items": {"type": "object", "required": ["name", "condition"]}}
    tuple_ = {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]}
    relation = {"anyOf": [{"type": "array", "items": tuple_}, {"$ref": "#/$defs/RelationFile"}]}
    properties = parts["WholeFile"]["properties"]
    properties["rules"] |= {**rules, **listed, "type": ["object", "array"]}
    del properties["rules"]["anyOf"]
    properties["relations"]["additionalProperties"] = relation
    properties["define"]["additionalProperties"] = _CONDITION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rules file of the Rule Detector Service",
        "type": "object",
        "if": {"required": ["rules"], "properties": {"rules": {"type": ["object", "array"]}}},
        "then": {"$ref": "#/$defs/WholeFile"},
        "else": {**rules, "minProperties": 1},
        "$defs": parts,
    }
