"""What the official client of MCP needs to sign a person in."""

from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


class Kept:
    """Where the client keeps what it got."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """See the client's `TokenStorage`."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """See the client's `TokenStorage`."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """See the client's `TokenStorage`."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """See the client's `TokenStorage`."""
        self.client = client_info
