"""Generates the Python contract from the protos beside this file.

Writes into `gen/`, which git ignores: messages, gRPC stubs, type stubs and `loom_protos/loom.binpb`, the descriptor set
with comments. Run by the wheel's build and by `make proto`; it rewrites nothing when no source changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc_tools

ROOT = Path(__file__).parent
GEN = ROOT / "gen"
DESCRIPTOR_SET = GEN / "loom_protos" / "loom.binpb"
VALIDATE = "buf/validate/validate.proto"
TOOLS = ("grpcio-tools", "mypy-protobuf", "protovalidate")
PROTO_TYPES = Path(grpc_tools.__file__).parent / "_proto"


def sources() -> list[Path]:
    """Returns every proto of the contract, sorted by path."""
    return sorted((ROOT / "loom").rglob("*.proto"))


def digest() -> str:
    """Returns a digest of all that the generated files depend on: sources, this script and the tools' versions."""
    sha = hashlib.sha256(Path(__file__).read_bytes())
    for tool in TOOLS:
        sha.update(f"{tool}={importlib.metadata.version(tool)}\n".encode())
    for path in sources():
        sha.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def validate_descriptors(target: Path) -> None:
    """Writes the descriptor set of the validation rules, which protovalidate carries only as a Python module."""
    from google.protobuf import descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2
    from protovalidate._gen.buf.validate import validate_pb

    files = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.add().ParseFromString(validate_pb.desc().proto.to_binary())
    target.write_bytes(files.SerializeToString())


def protoc(arguments: Sequence[str]) -> None:
    """Runs protoc and stops with its own message where it fails."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "grpc_tools.protoc", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"protoc failed:\n{done.stderr.strip()}")


def plugin(name: str) -> str:
    """Returns where a plugin of protoc is: beside this Python, else, as in an isolated build, on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or str(beside)


def generate() -> bool:
    """Generates the contract; returns False when it was up to date."""
    stamp = GEN / ".digest"
    wanted = digest()
    if stamp.exists() and stamp.read_text() == wanted and DESCRIPTOR_SET.exists():
        return False
    building = ROOT / "gen.new"
    shutil.rmtree(building, ignore_errors=True)
    (building / "loom_protos").mkdir(parents=True)
    rules = building / "validate.binpb"
    validate_descriptors(rules)
    names = [path.relative_to(ROOT).as_posix() for path in sources()]
    protoc(
        [
            f"-I{ROOT}",
            f"--descriptor_set_in={rules}",
            f"--plugin=protoc-gen-mypy={plugin('protoc-gen-mypy')}",
            f"--plugin=protoc-gen-mypy_grpc={plugin('protoc-gen-mypy_grpc')}",
            f"--python_out={building}",
            f"--grpc_python_out={building}",
            f"--mypy_out=quiet:{building}",
            f"--mypy_grpc_out=quiet:{building}",
            *names,
            VALIDATE,
        ]
    )
    protoc(
        [
            f"-I{ROOT}",
            f"--descriptor_set_in={rules}",
            "--include_source_info",
            "--include_imports",
            f"--descriptor_set_out={building / 'loom_protos' / 'loom.binpb'}",
            *names,
        ]
    )
    rules.unlink()
    for package in sorted({(building / name).parent for name in names}):
        (package / "py.typed").touch()
    (building / ".digest").write_text(wanted)
    publish(building)
    return True


def publish(building: Path) -> None:
    """Puts the new tree in the place of the old one, file by file, so that a running reader never misses a module."""
    GEN.mkdir(exist_ok=True)
    fresh = {path.relative_to(building) for path in building.rglob("*") if path.is_file()}
    for relative in sorted(fresh):
        (GEN / relative).parent.mkdir(parents=True, exist_ok=True)
        (building / relative).replace(GEN / relative)
    for old in [path for path in GEN.rglob("*") if path.is_file() and "__pycache__" not in path.parts]:
        if old.relative_to(GEN) not in fresh:
            old.unlink()
    shutil.rmtree(building)


if __name__ == "__main__":
    print("contract generated" if generate() else "contract up to date")  # noqa: T201
