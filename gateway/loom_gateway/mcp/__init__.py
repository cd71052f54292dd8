"""MCP in: tools made from the contract, served over streamable HTTP without sessions."""
