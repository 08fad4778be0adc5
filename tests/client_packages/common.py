"""Where the clients are, what they need, and the environment of their commands."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLIENTS = ROOT / "clients"
# Where the repository can be read. Packages link to it.
SOURCE = "https://tollgate.example/source"
PACKAGES = ROOT / "target" / "client-packages"
LANGUAGES = ["go", "java", "node", "python", "rust"]

# The programs that each client needs.
TOOLCHAINS = {
    "go": ["go"],
    "java": ["javac", "mvn"],
    "node": ["node", "npm"],
    "python": ["python3"],
    "rust": ["cargo"],
}


def environment(language):
    """Variables of the commands of a client."""
    # `make` puts the Go of the tests, and a Python with the development packages of the clients, below target/.
    return {
        **os.environ,
        "PATH": f"{PACKAGES / 'path'}:{os.environ['PATH']}",
        "OUT": str(PACKAGES / language),
        "PYTHON": str(PACKAGES / "venv" / "bin" / "python"),
        "TOLLGATE_BIN": os.environ.get("TOLLGATE_BIN", str(ROOT / "target" / "debug" / "tollgate")),
        "CARGO_TARGET_DIR": str(PACKAGES / "cargo"),
        "GOTOOLCHAIN": "local",
        "MAVEN_ARGS": "-B -Dstyle.color=never",
    }


def missing_tool(language):
    """A program that the client needs and the machine does not have, or none."""
    path = environment(language)["PATH"]
    return next((tool for tool in TOOLCHAINS[language] if shutil.which(tool, path=path) is None), None)


def has_toolchain(language):
    """Whether the client's programs are there. If not, it says so, and ends the program if `CI` is set."""
    tool = missing_tool(language)
    if tool is None:
        return True
    print(f"the client in {language} was not tested: {tool} is missing", file=sys.stderr)
    if os.environ.get("CI"):
        sys.exit(1)
    return False


def commands(language, step):
    return json.loads((CLIENTS / language / "commands.json").read_text())[step]


def run(command, folder, env):
    """Runs a shell command, and ends the program if it fails."""
    print(f"{folder}: {command}", flush=True)
    done = subprocess.run(command, shell=True, cwd=folder, env=env)
    if done.returncode != 0:
        sys.exit(f"failed in {folder}: {command}")
