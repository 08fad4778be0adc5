"""Reads rendered manifests and holds each object against the strict schema of its Kubernetes.

Why one process for many renders: reading the schemas takes longer than using them. An object that was seen before, in the
same Kubernetes, is not looked at again. Objects of other people's kinds go to crds.mjs, all at once.

What it deliberately does not do: ask a server. What only a server knows (two fields that exclude one another, say) is for
the chart's guards.

    validate.py NODE_MODULES < renders.json > read.json

A render is {"kubernetes": "1.30", "text": "…"}; what comes back, in the same order, is {"objects": […], "complaints": […]}.
"""

import functools
import json
import pathlib
import re
import subprocess
import sys

import yaml
from jsonschema.validators import Draft202012Validator
from kubernetes_validate import utils
from referencing import Registry, Resource

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def contents(folder: str, name: str, version: str):
    return utils.schema_contents(f"kubernetes-json-schema/{folder}/{name}.json", version)


@functools.cache
def folder_of(version: str) -> str:
    """The newest schemas that are not newer than this Kubernetes, as kubernetes-validate chooses them."""
    known = [known for known in utils.all_versions() if utils.Version(known) <= utils.Version(version + ".999")]
    return f"v{known[-1]}-local-strict"


@functools.cache
def definitions(version: str) -> Resource:
    return Resource.from_contents(contents(folder_of(version), "_definitions", version))


@functools.cache
def validator(kind: str, api_version: str, version: str):
    """The validator of a kind; none where Kubernetes has no such kind."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    try:
        schema = contents(folder_of(version), f"{kind.lower()}-{group}", version)
    except FileNotFoundError:
        return None
    return Draft202012Validator(schema, registry=definitions(version) @ (Resource.from_contents(schema) @ Registry()))


def main() -> None:
    seen = {}
    others = []
    read = []
    for render in json.load(sys.stdin):
        complaints = []
        objects = [object_ for object_ in yaml.load_all(render["text"], Loader=LOADER) if object_]
        for object_ in objects:
            version = render["kubernetes"]
            name = (version, json.dumps(object_, sort_keys=True))
            if name not in seen:
                seen[name] = []
                against = validator(object_["kind"], object_["apiVersion"], version)
                if against is None:
                    others.append((object_, seen[name]))
                else:
                    for error in against.iter_errors(object_):
                        where = "/".join(map(str, error.absolute_path))
                        seen[name].append(f"{object_['kind']}: /{where} {error.message}")
            complaints.append(seen[name])
        read.append((objects, complaints))
    if others:
        crds = pathlib.Path(__file__).with_name("crds.mjs")
        said = subprocess.run(
            ["node", crds, sys.argv[1]], input=json.dumps([object_ for object_, _ in others]),
            check=True, stdout=subprocess.PIPE, text=True,
        )
        for (_, complaints), more in zip(others, json.loads(said.stdout), strict=True):
            complaints.extend(more)
    json.dump([{"objects": objects, "complaints": sum(complaints, [])} for objects, complaints in read], sys.stdout)


main()
