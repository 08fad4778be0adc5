"""Installs each client's package into an empty project, and runs the programs of its README as they are written.

Usage: install.py LANGUAGE...

`make clients` built the packages. A program stands in a README after a line `<!-- run: FILE -->`. Each one gets a tollgate of its own:
a client program is to check and to commit; a service is to admit five requests of an address and to refuse the sixth.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from common import CLIENTS, PACKAGES, environment, has_toolchain, run  # noqa: E402
from ports import reserved_port  # noqa: E402

RULES = """domain: edge
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 5 }
  - key: remote_address
    rate_limit: { unit: day, requests_per_unit: 5 }
  - key: budget
    rate_limit: { unit: day, requests_per_unit: 10000, algorithm: sliding_window }
"""

PATIENCE_SECONDS = 120


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value is not None:
            return value
        time.sleep(0.05)
    sys.exit(f"{what} took longer than {PATIENCE_SECONDS} s")


@contextlib.contextmanager
def process(command, folder, env):
    """A child that ends with the block, and its output."""
    with tempfile.NamedTemporaryFile() as log:
        child = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield child, lambda: pathlib.Path(log.name).read_text(errors="replace")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


@contextlib.contextmanager
def tollgate(folder):
    """A tollgate with the rules; its address."""
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    grpc, web = reserved_port(), reserved_port()
    command = [environment("go")["TOLLGATE_BIN"], "serve", str(rules), "--grpc-host", "127.0.0.1", "--grpc-port", str(grpc),
               "--host", "127.0.0.1", "--port", str(web), "--debug-port", "0"]
    with process(command, folder, os.environ) as (_, text):
        wait_for("the start of tollgate", lambda: status(web, "/readyz") == 200 or None)
        yield f"127.0.0.1:{grpc}"
        if "panicked" in text():
            sys.exit(text())


def status(port, path="/"):
    """The status of a request, or 0."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def grpc_status(port, method):
    """The name of the status of a call with an empty message."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary(method)
        try:
            check(b"", timeout=10)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name


def programs(readme):
    """The programs of a README, by the name of their file."""
    found = dict(re.findall(r"<!-- run: (\S+) -->\n+```\w+\n(.*?)^```$", readme.read_text(), re.S | re.M))
    marks = readme.read_text().count("<!-- run: ")
    if not found or len(found) != marks:
        sys.exit(f"{readme} has {marks} marks of programs, and {len(found)} programs after them")
    return found


def project_go(folder, env):
    (folder / "go.mod").write_text(f"module example\n\ngo 1.26\n\nrequire github.com/tollgate-limits/tollgate-go v0.0.0\n\n"
                                   f"replace github.com/tollgate-limits/tollgate-go => {CLIENTS / 'go'}\n")

    def prepare(file):
        own = folder / pathlib.Path(file).stem
        own.mkdir()
        shutil.move(folder / file, own / "main.go")
        run("go mod tidy && go build -o program ./" + own.name + f" && mv program {own.name}/program", folder, env)
        return [str(own / "program")]

    return prepare


def project_java(folder, env):
    readme = (CLIENTS / "java" / "README.md").read_text()
    if "file:///path/to/tollgate/target/client-packages/java" not in readme:
        sys.exit("the README in Java names another repository")
    pom = (pathlib.Path(__file__).parent / "java-pom.xml").read_text()
    (folder / "pom.xml").write_text(pom.replace("@repository@", f"file://{PACKAGES / 'java'}"))
    sources = folder / "src" / "main" / "java"
    sources.mkdir(parents=True)

    def prepare(file):
        shutil.move(folder / file, sources / file)
        # -U: the package may have been built anew under the same version.
        run("mvn -q -U package dependency:copy-dependencies -DoutputDirectory=libraries", folder, env)
        return ["java", "-cp", f"{folder}/target/classes:{folder}/libraries/*", pathlib.Path(file).stem]

    return prepare


def project_node(folder, env):
    (package,) = (PACKAGES / "node").glob("*.tgz")
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    run(f"npm install --no-audit --no-fund --loglevel=error {package} express@5.3.0 fastify@5.12.8", folder, env)
    return lambda file: ["node", str(folder / file)]


def project_python(folder, env):
    (package,) = (PACKAGES / "python").glob("*.whl")
    run("python3 -m venv venv", folder, env)
    run(f"venv/bin/pip install -q --disable-pip-version-check -c {CLIENTS}/python/requirements-dev.txt {package} fastapi uvicorn flask waitress", folder, env)
    return lambda file: [str(folder / "venv" / "bin" / "python"), str(folder / file)]


def project_rust(folder, env):
    (package,) = (PACKAGES / "rust" / "package").glob("*.crate")
    run(f"tar xzf {package}", folder, env)
    toml = re.search(r"^```toml\n(.*?)^```$", (CLIENTS / "rust" / "README.md").read_text(), re.S | re.M)[1]
    (folder / "Cargo.toml").write_text('[package]\nname = "example"\nversion = "0.1.0"\nedition = "2024"\n\n[workspace]\n\n' + toml)
    (folder / "src" / "bin").mkdir(parents=True)

    def prepare(file):
        shutil.move(folder / file, folder / "src" / "bin" / file)
        name = pathlib.Path(file).stem
        run(f"cargo build --quiet --bin {name}", folder, env)
        return [str(PACKAGES / "cargo" / "debug" / name)]

    return prepare


PROJECTS = {"go": project_go, "java": project_java, "node": project_node, "python": project_python, "rust": project_rust}


def grpc_method(file, text):
    """The method to call of a gRPC service: its own, or that of the standard health service. None of an HTTP service."""
    if "grpc" not in file.lower():
        return None
    return "/edge.Greeter/Hello" if "edge.Greeter" in text else "/grpc.health.v1.Health/Check"


def check_client(name, command, folder, env):
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or "allowed" not in lines or "committed 120" not in lines:
        sys.exit(f"{name} printed {lines} and ended with {done.returncode}:\n{done.stderr}")


def check_service(name, command, folder, env, method):
    port = reserved_port()
    with process(command, folder, {**env, "PORT": str(port)}) as (child, text):
        def listens():
            if child.poll() is not None:
                sys.exit(f"{name} ended with {child.returncode}:\n{text()}")
            with socket.socket() as one:
                return True if one.connect_ex(("127.0.0.1", port)) == 0 else None

        wait_for(f"the start of {name}", listens)
        if method:
            got, expected = [grpc_status(port, method) for _ in range(6)], ["OK"] * 5 + ["RESOURCE_EXHAUSTED"]
        else:
            got, expected = [status(port) for _ in range(6)], [200] * 5 + [429]
        if got != expected:
            sys.exit(f"{name} answered {got}, not {expected}:\n{text()}")


def check(language):
    if not has_toolchain(language):
        return
    env = environment(language)
    found = programs(CLIENTS / language / "README.md")
    with tempfile.TemporaryDirectory(dir=PACKAGES) as directory:
        folder = pathlib.Path(directory)
        prepare = PROJECTS[language](folder, env)
        for file, text in found.items():
            (folder / file).write_text(text)
            command = prepare(file)
            with tollgate(folder) as address:
                own = {**env, "TOLLGATE": address}
                name = f"{language}/README.md: {file}"
                if "committed" in text:
                    check_client(name, command, folder, own)
                else:
                    check_service(name, command, folder, own, grpc_method(file, text))
            print(f"{name} runs", flush=True)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        check(one)
