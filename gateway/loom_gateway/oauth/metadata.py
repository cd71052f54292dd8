"""Where clients find what: the documents that the protocol has them read, and the header that leads to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue
from starlette.requests import Request

from loom_common.auth.claims import Role
from loom_gateway.http.origins import PublicAddress

RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"
SERVER_METADATA: Final = "/.well-known/oauth-authorization-server"
SERVER_METADATA_BELOW: Final = "/.well-known/openid-configuration"
"""The same document where clients look for that of an issuer with a path: below the path, which a proxy passes on."""
AUTHORIZE: Final = "/oauth/authorize"
TOKEN: Final = "/oauth/token"  # noqa: S105 - a path
REGISTER: Final = "/oauth/register"
REVOKE: Final = "/oauth/revoke"

SCOPES: Final = {"read": Role.VIEWER, "write": Role.WRITER, "admin": Role.ADMIN}
"""What a client may ask for, each with the most that its tokens may do then."""

_OFFERED: Final = ("read", "write")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Makes addresses of the gateway as its callers know it."""

    public: PublicAddress
    mcp_path: str = "/mcp"

    def challenge(self, request: Request) -> str:
        """Returns the header of an answer to a request without a good token."""
        path: str = request.scope["path"]
        metadata = f"{self.public.base(request)}{RESOURCE_METADATA}{quote(path)}"
        refused = ', error="invalid_token"' if "authorization" in request.headers else ""
        return f'Bearer realm="loom", resource_metadata="{metadata}", scope="{" ".join(_OFFERED)}"{refused}'

    def resource(self, request: Request, path: str) -> dict[str, JsonValue]:
        """Returns what is said of the MCP endpoint (RFC 9728)."""
        base = self.public.base(request)
        return {
            "resource": f"{base}{path}",
            "authorization_servers": [base],
            "scopes_supported": list(_OFFERED),
            "bearer_methods_supported": ["header"],
            "resource_name": "Loom",
        }

    def server(self, request: Request) -> dict[str, JsonValue]:
        """Returns what is said of sign-in (RFC 8414)."""
        base = self.public.base(request)
        return {
            "issuer": base,
            "authorization_endpoint": f"{base}{AUTHORIZE}",
            "token_endpoint": f"{base}{TOKEN}",
            "registration_endpoint": f"{base}{REGISTER}",
            "revocation_endpoint": f"{base}{REVOKE}",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": list(SCOPES),
        }

    def is_resource(self, request: Request, resource: str) -> bool:
        """Returns whether a token may be asked for for an address: the gateway itself, or its MCP endpoint."""
        base = self.public.base(request)
        whole = resource.rstrip("/")
        return whole in (base, f"{base}{self.mcp_path}") or whole.startswith(f"{base}{self.mcp_path}/")


def role_of(scope: str) -> tuple[Role, str] | None:
    """Returns the most that a scope asks for and the scope as it is granted, or None for a scope that there is not.

    A client that asks for nothing gets what the protocol's resource offers.
    """
    asked: Sequence[str] = scope.split() or _OFFERED
    known = [name for name in dict.fromkeys(asked) if name in SCOPES]
    # What other servers know, such as `offline_access`, is passed over; nothing but that is a mistake.
    return (max(SCOPES[name] for name in known), " ".join(known)) if known else None
