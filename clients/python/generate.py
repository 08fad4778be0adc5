"""Generates the protobuf modules of `tollgate_limits._proto` with the protoc of grpcio-tools.

Usage: python generate.py [FOLDER]; default: src/tollgate_limits/_proto
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Source, its name in the descriptor pool, and the generated module. The pool is shared by the
# whole program, so names must be those of the API, or be unique.
SOURCES = [
    (
        ROOT / "proto/tollgate/v1/rate_limits.proto",
        "tollgate/v1/rate_limits.proto",
        "rate_limits_pb2",
    ),
    (HERE.parent / "proto/rls.proto", "tollgate/clients/rls.proto", "rls_pb2"),
]


def generate(folder: Path) -> None:
    """Writes the modules and their type stubs to `folder`."""
    with tempfile.TemporaryDirectory() as temporary:
        sources, products = Path(temporary, "sources"), Path(temporary, "products")
        products.mkdir()
        for source, name, module in SOURCES:
            target = sources / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            include = Path(protoc.__file__).parent / "_proto"
            arguments = [
                f"-I{sources}",
                f"-I{include}",
                f"--python_out={products}",
                f"--pyi_out={products}",
            ]
            if protoc.main(["protoc", *arguments, name]) != 0:
                raise SystemExit(f"protoc failed for {source}")
            for suffix in (".py", ".pyi"):
                product = products / Path(name).parent / f"{module}{suffix}"
                shutil.copyfile(product, folder / product.name)


if __name__ == "__main__":
    default = HERE / "src/tollgate_limits/_proto"
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
