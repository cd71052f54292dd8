"""Documents of the running Loom as resources, through the official client."""

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from support.up import UpProcess

from loom_client import Loom

NAME = "resources/a guide.md"


async def test_a_document_is_listed_and_read_whole_by_section_and_by_outline(up: UpProcess) -> None:
    text = "# Guide\n\nFirst words.\n\n## Set up\n\n" + "Turn the key. " * 6_000 + "\n\n## Use\n\nDrive.\n"
    with Loom(up.http_url, up.token) as loom:
        loom.call("knowledge.ingest", {"documents": [{"source_uri": NAME, "text": text}]})
    headers = {"Authorization": f"Bearer {up.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{up.http_url}/mcp", http_client=http)
        async with Client(transport) as client:
            listed, cursor = {}, None
            while True:
                page = await client.list_resources(cursor=cursor)
                listed.update({resource.uri: resource for resource in page.resources})
                if (cursor := page.next_cursor) is None:
                    break
            uri = "loom://document/default/resources%2Fa%20guide.md"
            assert listed[uri].name == NAME
            pieces, place = "", uri
            while place:
                (contents,) = (await client.read_resource(place)).contents
                assert isinstance(contents, types.TextResourceContents)
                assert contents.meta is not None
                assert len(contents.text) <= 64_000
                pieces += contents.text
                place = contents.meta["loom/document"].get("next_uri", "")
            assert pieces.strip() == text.strip()
            (outline,) = (await client.read_resource("loom://outline/default/resources%2Fa%20guide.md")).contents
            assert isinstance(outline, types.TextResourceContents)
            use = next(line for line in outline.text.splitlines() if "[Use]" in line).split("](")[1].rstrip(")")
            (section,) = (await client.read_resource(use)).contents
            assert isinstance(section, types.TextResourceContents)
            assert section.text.split() == ["##", "Use", "Drive."]
            for gone in (f"{uri}?section=none", "loom://document/default/none", "loom://document/other/none"):
                with pytest.raises(MCPError, match="no such resource"):
                    await client.read_resource(gone)
