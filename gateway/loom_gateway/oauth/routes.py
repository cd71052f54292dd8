"""The routes of OAuth, put together."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from loom_common.clock import Clock
from loom_common.errors import UnknownOp
from loom_gateway.http.answers import error_response, json_response
from loom_gateway.http.edge import REQUEST_ID_STATE, ROUTE_STATE
from loom_gateway.http.origins import PublicAddress
from loom_gateway.oauth.authorize import Authorization
from loom_gateway.oauth.clients import Clients
from loom_gateway.oauth.errors import OAuthError
from loom_gateway.oauth.forms import read_body
from loom_gateway.oauth.metadata import (
    AUTHORIZE,
    REGISTER,
    RESOURCE_METADATA,
    REVOKE,
    SERVER_METADATA,
    SERVER_METADATA_BELOW,
    TOKEN,
    Addresses,
)
from loom_gateway.oauth.people import People
from loom_gateway.oauth.sealed import Seals
from loom_gateway.oauth.spent import Spent
from loom_gateway.oauth.tokens import Tokens


@dataclass(frozen=True, slots=True)
class OAuthDeps:
    """What OAuth is made of."""

    people: People
    spent: Spent
    secret: SecretStr
    """Secret that what is given out is sealed under."""
    previous_secret: SecretStr | None
    clock: Clock
    public: PublicAddress


class OAuth:
    """OAuth of one gateway: its routes, and how a refused MCP client is told of them."""

    def __init__(self, deps: OAuthDeps) -> None:
        self._addresses = Addresses(deps.public)
        seals = Seals(deps.secret, deps.previous_secret, deps.clock)
        self._clients = Clients(seals)
        self._authorization = Authorization(deps.people, self._clients, seals, self._addresses)
        self._tokens = Tokens(deps.people, self._clients, seals, deps.spent, self._addresses)

    @property
    def challenge(self) -> Callable[[Request], str]:
        """Returns the `WWW-Authenticate` header of an MCP request without a good token."""
        return self._addresses.challenge

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Returns the routes."""
        return [
            _route(RESOURCE_METADATA, self._resource, "GET"),
            _route(f"{RESOURCE_METADATA}/{{path:path}}", self._resource, "GET"),
            _route(SERVER_METADATA, self._server, "GET"),
            _route(SERVER_METADATA_BELOW, self._server, "GET"),
            _route(AUTHORIZE, self._authorization.ask, "GET"),
            _route(AUTHORIZE, self._authorization.answer, "POST"),
            _route(REGISTER, self._register, "POST"),
            _route(TOKEN, self._tokens.token, "POST"),
            _route(REVOKE, self._tokens.revoke, "POST"),
        ]

    async def _resource(self, request: Request) -> Response:
        path = f"/{request.path_params.get('path', '')}".rstrip("/") or self._addresses.mcp_path
        if path != self._addresses.mcp_path and not path.startswith(f"{self._addresses.mcp_path}/"):
            error = UnknownOp("There is no protected resource at this address.")
            return error_response(error, request.scope["state"][REQUEST_ID_STATE])
        return json_response(self._addresses.resource(request, path))

    async def _server(self, request: Request) -> Response:
        return json_response(self._addresses.server(request))

    async def _register(self, request: Request) -> Response:
        try:
            return json_response(self._clients.register(await read_body(request)), status=201)
        except OAuthError as error:
            return error.response()


def _route(path: str, answer: Callable[[Request], Awaitable[Response]], method: str) -> Route:
    name = path.partition("/{")[0]

    async def named(request: Request) -> Response:
        request.scope["state"][ROUTE_STATE] = name
        return await answer(request)

    return Route(path, named, methods=[method])
