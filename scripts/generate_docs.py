"""Writes what is generated from the code: reference pages in docs/ and the registry of names in the contract's package.

`--check` writes nothing and fails when a file is not what it would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from loom_common import analysis
from loom_common.errors import errors_markdown
from loom_common.features import features_markdown
from loom_common.ops import public_ops
from loom_common.registry import build_registry, registry_json, settings_classes
from loom_common.settings import configuration_markdown
from loom_common.telemetry.metrics import metrics_markdown

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "loom_common",
    "loom_embedding",
    "loom_llm",
    "loom_memory",
    "loom_insights",
    "loom_assistant",
    "loom_gateway",
    "loom_cli",
)


def operations_markdown() -> str:
    """Returns the page that lists every public operation."""
    lines = [
        "# Operations",
        "",
        "Generated from the contract by `make docs`; do not edit. Each is `POST /v1/<operation>` over HTTP and the RPC",
        "of the same row over gRPC. Over MCP it is the tool of the same row, listed in the toolsets named; one that is",
        "in none can be called by name unless MCP hides it.",
        "`<your gateway>/docs` shows their fields.",
        "",
        "| operation | role | MCP tool | toolsets | RPC | what it does |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, op in sorted(public_ops().items()):
        toolsets = ", ".join(sorted(toolset.name.lower() for toolset in op.toolsets)) or "–"
        lines.append(
            f"| `{name}` | {op.role.name.lower()} | `{op.mcp_name}` | {toolsets} | `{op.method}` | {op.summary} |"
        )
    return "\n".join(lines) + "\n"


def generated() -> dict[Path, str]:
    """Returns every generated file and what it should hold."""
    classes = settings_classes(PACKAGES)
    return {
        ROOT / "docs" / "errors.md": errors_markdown(),
        ROOT / "docs" / "operations.md": operations_markdown(),
        ROOT / "docs" / "operations" / "configuration.md": configuration_markdown(classes),
        ROOT / "docs" / "operations" / "metrics.md": metrics_markdown(),
        ROOT / "docs" / "operations" / "features.md": features_markdown(),
        ROOT / "protos" / "loom_protos" / "registry.json": registry_json(build_registry(PACKAGES)),
        ROOT / "protos" / "loom_protos" / "analysis.json": analysis.to_json(analysis.collect(PACKAGES)),
    }


def main() -> int:
    """Writes or checks; returns the exit code."""
    check = "--check" in sys.argv[1:]
    stale = []
    for path, text in generated().items():
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if check and stale:
        print(f"not up to date: {', '.join(stale)}; run `make docs`")
        return 1
    print(f"written: {', '.join(stale)}" if stale else "up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
