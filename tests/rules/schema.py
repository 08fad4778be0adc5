"""Holds rules files against the JSON Schema: a line of JSON in (a text), a line out: valid, invalid or unreadable, and why.

Reads YAML with PyYAML, which shares nothing with the service's reader, told the few things in which the reference's own
reader (yaml.v2) differs: y and n are truths, 0o7 is a number, and a date or a lone = is text.
"""

import json
import re
import sys

import jsonschema
import yaml


class Reader(yaml.SafeLoader):
    pass


TEXTS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
Reader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in TEXTS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Reader.bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
Reader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))
Reader.add_implicit_resolver("tag:tollgate,2026:octal", re.compile("^0o[0-7_]+$"), ["0"])
Reader.add_constructor("tag:tollgate,2026:octal", lambda _, node: int(node.value.replace("_", ""), 8))


def said(validator, text):
    try:
        documents = yaml.load_all(text, Reader)
        document = next(iter(documents), None)
        error = next(validator.iter_errors(document), None)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"unreadable: {error}"
    if error is None:
        return "valid"
    return f"invalid: at {list(error.absolute_path)}: {error.message}"


def main():
    sys.setrecursionlimit(5_000)
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for line in sys.stdin:
        answer = said(validator, json.loads(line))
        print(json.dumps(answer[:500]), flush=True)


main()
