"""The gateway's HTTP application: its routes, in one visible place."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from loom_common.errors import LoomError, UnknownOp
from loom_gateway.calls.caller import Transport, caller_of
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.answers import encode
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http.answers import JSON, error_response, json_response, method_refused
from loom_gateway.http.body import MAX_BODY_BYTES
from loom_gateway.http.coding import CompressedAnswers
from loom_gateway.http.edge import REQUEST_ID_STATE, Edge, Refused
from loom_gateway.http.health import HealthReader
from loom_gateway.http.lines import MAX_IMPORT_BYTES
from loom_gateway.http.operations import OperationRoutes
from loom_gateway.http.origins import OriginPolicy, PublicAddress
from loom_gateway.mcp.endpoint import TOOLSET_PARAMETER, McpEndpoint
from loom_gateway.mcp.toolsets import Toolset
from loom_gateway.oauth.routes import OAuth
from loom_gateway.openapi.document import openapi_document

MCP_PATH = "/mcp"

_STATIC = Path(__file__).parent.parent / "static"
_PAGE_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " + (
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class AppDeps:
    """What the application is made of."""

    dispatcher: Dispatcher
    health: HealthReader
    metrics_text: Callable[[], bytes]
    """Returns the process's metrics as Prometheus text."""
    metrics_content_type: str
    version: str
    public: PublicAddress = field(default_factory=PublicAddress)
    loopback: bool = True
    """Whether the listener is reached from this machine alone."""
    toolset: Toolset = Toolset.DEFAULT
    """Tools that MCP shows to a client that asks for no other set."""
    max_body_bytes: int = MAX_BODY_BYTES
    max_import_bytes: int = MAX_IMPORT_BYTES
    allowed_hosts: tuple[str, ...] = ()
    """Names that it answers to beside its public one and the machine's own."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of other web pages that may call it."""
    oauth: OAuth | None = None
    """How MCP clients of other machines sign their people in; None where nobody can sign in."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    routes: tuple[BaseRoute, ...] = ()
    """Further routes, such as those of sign-in."""
    layers: tuple[Middleware, ...] = ()
    """Layers between the edge and the routes, such as what gives a signed-in browser's request its token."""


def build_app(deps: AppDeps) -> Starlette:
    """Returns the application; its lifespan must run, for MCP's sake."""
    mcp = McpEndpoint(
        deps.dispatcher,
        deps.catalogue,
        version=deps.version,
        default_toolset=deps.toolset,
        max_body_bytes=deps.max_body_bytes,
        challenge=deps.oauth.challenge if deps.oauth is not None else None,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with mcp.running():
            yield

    app = Starlette(
        routes=_routes(deps, mcp),
        middleware=[_edge(deps), Middleware(CompressedAnswers), *deps.layers],
        exception_handlers={404: _not_found, 405: _wrong_method},
        lifespan=lifespan,
    )
    # An address with a slash too many is none of ours. The redirect would name the host that the caller claimed and
    # lose the prefix of a proxy.
    app.router.redirect_slashes = False
    return app


def _routes(deps: AppDeps, mcp: McpEndpoint) -> list[BaseRoute]:
    pages = _Pages(deps)
    return [
        # First, because nearly all that comes is for it, and each route before it would be looked at.
        Route(
            "/v1/{op}",
            OperationRoutes(deps.dispatcher, deps.catalogue, max_body_bytes=deps.max_body_bytes),
            methods=["POST"],
        ),
        *deps.routes,
        Route("/v1/health", pages.health, methods=["GET"]),
        Route("/v1/health/live", pages.live, methods=["GET"]),
        Route("/v1/health/ready", pages.ready, methods=["GET"]),
        Route(MCP_PATH, mcp),
        Route(f"{MCP_PATH}/{{{TOOLSET_PARAMETER}}}", mcp),
        *(deps.oauth.routes if deps.oauth is not None else ()),
        Route("/openapi.json", pages.openapi, methods=["GET"]),
        Route("/docs", pages.docs, methods=["GET"]),
        Mount("/static", StaticFiles(directory=_STATIC)),
        Route("/metrics", pages.metrics, methods=["GET"]),
        Route("/", pages.root, methods=["GET"]),
    ]


def _edge(deps: AppDeps) -> Middleware:
    policy = OriginPolicy(deps.public, loopback=deps.loopback, hosts=deps.allowed_hosts, origins=deps.allowed_origins)
    return Middleware(
        Edge,
        policy=policy,
        prefix=deps.public.prefix,
        origin_checked=(MCP_PATH,),
        refused=_recorded(deps.dispatcher),
    )


def _recorded(dispatcher: Dispatcher) -> Refused:
    """Returns what records refusals before any route: whoever was refused is not known, and no operation was read."""

    def record(path: str, headers: Headers, request_id: str, error: LoomError) -> None:
        transport = Transport.MCP if path.startswith(MCP_PATH) else Transport.HTTP
        if transport is Transport.MCP or path.startswith("/v1/"):
            dispatcher.record_refusal(caller_of(headers, transport, request_id), error)

    return record


class _Pages:
    """Answers everything that is no operation."""

    def __init__(self, deps: AppDeps) -> None:
        self._deps = deps
        self._openapi = encode(openapi_document(deps.catalogue, version=deps.version, server_url=deps.public.url))

    async def health(self, _request: Request) -> Response:
        report = await self._deps.health.report()
        return json_response(report.to_json(), status=200 if report.database_ok else 503)

    async def live(self, _request: Request) -> Response:
        # Asks nothing of anyone: a restart mends no dependency.
        return json_response({"live": True})

    async def ready(self, _request: Request) -> Response:
        report = await self._deps.health.report()
        checks: dict[str, JsonValue] = {
            name: {"ok": check.ok, "required": check.required} for name, check in report.checks.items()
        }
        return json_response({"ready": report.ready, "checks": checks}, status=200 if report.ready else 503)

    async def openapi(self, _request: Request) -> Response:
        return Response(self._openapi, media_type=JSON)

    async def metrics(self, _request: Request) -> Response:
        return Response(self._deps.metrics_text(), media_type=self._deps.metrics_content_type)

    async def docs(self, _request: Request) -> Response:
        return FileResponse(
            _STATIC / "docs.html", media_type="text/html", headers={"Content-Security-Policy": _PAGE_POLICY}
        )

    async def root(self, _request: Request) -> Response:
        # Relative, so that it holds under a prefix too.
        return RedirectResponse("docs", status_code=307)


async def _not_found(request: Request, _error: Exception) -> Response:
    error = UnknownOp("There is nothing at this address; /openapi.json lists what there is.")
    return error_response(error, request.scope["state"][REQUEST_ID_STATE])


async def _wrong_method(request: Request, error: Exception) -> Response:
    allowed = error.headers.get("Allow", "") if isinstance(error, HTTPException) and error.headers else ""
    return method_refused(request.scope["state"][REQUEST_ID_STATE], allowed)
