"""Runs steps of a client, by the commands in its commands.json.

Usage: run.py LANGUAGE STEP...

Steps: generate, lint, vectors, test, build. A package is built from a copy of the client whose pages have absolute links. The step
`planted` makes each mistake of the client's planted.json in a copy
of the client, and sees the named vector fail.
"""

import contextlib
import json
import os.path
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from common import CLIENTS, PACKAGES, ROOT, SOURCE, commands, environment, has_toolchain, run


def vector_names():
    """The names of all cases."""
    files = [json.loads(file.read_text()) for file in (CLIENTS / "vectors").glob("*.json")]
    return {case["name"] for file in files for cases in file.values() for case in cases}


@contextlib.contextmanager
def copied(language, *, installed=False):
    """A copy of a client, with or without what is installed and built in it."""
    with tempfile.TemporaryDirectory(dir=PACKAGES) as folder:
        # Beside the copy lies what a client reads of other folders.
        copy = pathlib.Path(folder) / "clients" / language
        unused = shutil.ignore_patterns("node_modules", "target", "dist", "build")
        shutil.copytree(CLIENTS / language, copy, symlinks=True, ignore=None if installed else unused)
        (copy.parent / "proto").symlink_to(CLIENTS / "proto")
        (copy.parent.parent / "proto").symlink_to(ROOT / "proto")
        yield copy


def absolute_links(page, language):
    """The text of a page of a client with links to the repository in place of relative ones."""

    def absolute(link):
        return f"]({SOURCE}/{os.path.normpath(f'clients/{language}/{link[1]}')}{link[2] or ''})"

    return re.sub(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)", absolute, page)


def build(language, env):
    PACKAGES.mkdir(parents=True, exist_ok=True)
    with copied(language) as copy:
        for name in ("README.md", "CHANGELOG.md"):
            page = copy / name
            page.write_text(absolute_links(page.read_text(), language))
        for command in commands(language, "build"):
            run(command, copy, env)


def plant(language):
    source = CLIENTS / language
    mistakes = json.loads((source / "planted.json").read_text())
    if not mistakes:
        sys.exit(f"{source}/planted.json plants no mistake")
    known = vector_names()
    with copied(language, installed=True) as copy:
        env = {**environment(language), "TOLLGATE_VECTORS": str(CLIENTS / "vectors")}
        (command,) = commands(language, "vectors")
        for mistake in mistakes:
            if mistake["fails"] not in known:
                sys.exit(f"{language}: no vector has the name {mistake['fails']!r}")
            file = copy / mistake["file"]
            text = file.read_text()
            if text.count(mistake["find"]) != 1:
                sys.exit(f"{language}: {mistake['file']} has {text.count(mistake['find'])} times, not once: {mistake['find']!r}")
            file.write_text(text.replace(mistake["find"], mistake["replace"]))
            ran = subprocess.run(command, shell=True, cwd=copy, env=env, capture_output=True, text=True, timeout=900)
            file.write_text(text)
            if ran.returncode == 0:
                sys.exit(f"{language}: the vectors pass with {mistake['replace']!r} in {mistake['file']}")
            # go test writes the spaces of a name as underscores.
            said = (ran.stdout + ran.stderr).replace("_", " ")
            if mistake["fails"].replace("_", " ") not in said:
                sys.exit(f"{language}: {mistake['fails']!r} is not among the failures:\n{said[-4000:]}")
            print(f"{language}: a planted mistake fails {mistake['fails']!r}", flush=True)


def main():
    language, *steps = sys.argv[1:]
    if not has_toolchain(language):
        return
    env = environment(language)
    for step in steps:
        if step == "planted":
            plant(language)
            continue
        if step == "build":
            build(language, env)
            continue
        for command in commands(language, step):
            run(command, CLIENTS / language, env)


if __name__ == "__main__":
    main()
