"""What each toolset leaves of the arguments of its tools."""

import pytest

from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.mcp.toolsets import Toolset, tools_of

TOOLS = {toolset: tools_of(Catalogue(), toolset) for toolset in Toolset}


@pytest.mark.parametrize("name", sorted(TOOLS[Toolset.ASSISTANT]))
def test_the_assistant_names_no_namespace_because_it_has_one(name: str) -> None:
    assert "namespace" not in TOOLS[Toolset.ASSISTANT][name].tool.input_schema["properties"]


def test_an_agent_that_writes_may_name_the_namespace() -> None:
    assert "namespace" in TOOLS[Toolset.DEFAULT]["memory_get"].tool.input_schema["properties"]


def test_a_client_is_told_which_tools_take_something_away() -> None:
    found = {name for name, bound in TOOLS[Toolset.ALL].items() if bound.tool.annotations.destructive_hint}  # type: ignore[union-attr]  # every tool has them
    assert found == {
        "memory_delete", "knowledge_delete", "token_revoke", "grants_remove", "org_remove_trust", "erasure_user",
        "erasure_redact", "conversation_delete", "procedure_delete",
    }  # fmt: skip
