"""Who calls, and whether they may: credentials from metadata, the scope from the request."""

from typing import Any, Final

from google.protobuf.message import Message

from loom_common import headers
from loom_common.attribution import Attribution, Kind, attribution_from_metadata
from loom_common.auth.access import address_of, authorize, operator_claims, require_reachable
from loom_common.auth.claims import NO_NAMESPACE
from loom_common.auth.directory import Directory
from loom_common.auth.service_credentials import OPERATOR, ServiceKeyring
from loom_common.auth.verifier import TokenVerifier
from loom_common.call import Scope
from loom_common.clock import Clock, SystemClock
from loom_common.errors import AuthInsufficient, InvalidArgument, MalformedRequest, Unauthenticated
from loom_common.interceptors.errors import require_parsed
from loom_common.interceptors.rpc import Proceed, Rpc, RpcInterceptor, Unparsable
from loom_common.ops import OpRole, OpSpec

# Balancers ask for health and people for the contract before they hold a token; neither tells of any tenant.
_OPEN_PREFIXES: Final = ("/grpc.health.v1.", "/grpc.reflection.")

_MAX_HEADER: Final = 256


class AuthInterceptor(RpcInterceptor):
    """Verifies the caller's token and the peer's credential, and authorizes each operation.

    Whatever is neither an operation of the contract nor open to all, such as channelz, takes a service credential.
    """

    contract_only = False

    def __init__(
        self, verifier: TokenVerifier, keyring: ServiceKeyring, directory: Directory, clock: Clock | None = None
    ) -> None:
        self._verifier = verifier
        self._keyring = keyring
        self._directory = directory
        self._clock = clock or SystemClock()

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        if not rpc.method.startswith(_OPEN_PREFIXES):
            self._authenticate(rpc)
        return await proceed(rpc, request)

    async def on_request(self, rpc: Rpc, message: Message | Unparsable) -> None:
        """See `RpcInterceptor.on_request`."""
        call, op = rpc.call, rpc.op
        # The first message of a stream says what it addresses.
        if op is None or call.scope is not None:
            return
        message = require_parsed(message)
        if op.internal:
            if call.attribution is not None and call.attribution.org:
                call.scope = Scope(call.attribution.org, call.attribution.namespace or NO_NAMESPACE)
            return
        address = address_of(message, rpc.headers.get(headers.NAMESPACE))
        if op.role is OpRole.OPEN:
            return  # what the request carries decides, which the operation itself looks at
        if call.claims is None and call.peer_service == OPERATOR:
            call.claims = operator_claims(address.org, self._clock.now().timestamp())
        if call.claims is None:
            return
        call.scope = await authorize(op, call.claims, address, self._directory)
        call.attribution = _attribution(op, rpc, message)

    def _authenticate(self, rpc: Rpc) -> None:
        call = rpc.call
        credential = rpc.headers.get(headers.SERVICE)
        if credential is not None:
            call.peer_service = self._keyring.verify(credential)
            call.attribution = _sent_attribution(rpc)
        token = _bearer(rpc.headers.get(headers.AUTHORIZATION))
        if token is not None:
            call.claims = self._verifier.verify(token)
            call.token = token
        if rpc.op is None:
            if call.peer_service is None:
                raise AuthInsufficient("This is for Loom's own services.", detail={"reason": "internal"})
            return
        require_reachable(rpc.op, call.claims, call.peer_service)
        call.run_id = _bounded(rpc, headers.RUN_ID)
        call.idempotency_key = _bounded(rpc, headers.IDEMPOTENCY_KEY)


def _sent_attribution(rpc: Rpc) -> Attribution | None:
    try:
        return attribution_from_metadata(rpc.context.invocation_metadata() or ())
    except ValueError:
        raise MalformedRequest("The attribution beside the service credential cannot be read.") from None


def _attribution(op: OpSpec, rpc: Rpc, message: Message) -> Attribution:
    """Returns whom the call's own calls to models are for: what the peer said where it fits, else the caller."""
    call = rpc.call
    assert call.scope is not None, "authorized before"
    assert call.claims is not None, "authenticated before"
    sent = call.attribution
    if sent is not None and sent.org == call.scope.org:
        return sent
    user_id = getattr(message, "user_id", "")
    return Attribution(
        org=call.scope.org,
        namespace="" if call.scope.namespace == NO_NAMESPACE else call.scope.namespace,
        subject=call.claims.sub,
        user_id=(user_id if isinstance(user_id, str) and user_id else call.claims.user_id)[:_MAX_HEADER],
        feature=op.name,
        kind=Kind.REQUEST,
        read_only=op.read_only,
        run_id=call.run_id or "",
    )


def _bearer(header: str | None) -> str | None:
    if header is None:
        return None
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated("The authorization is not of the form `Bearer <token>`.")
    return token


def _bounded(rpc: Rpc, header: str) -> str | None:
    value = rpc.headers.get(header)
    if value is not None and len(value) > _MAX_HEADER:
        raise InvalidArgument.of(header, f"must be at most {_MAX_HEADER} characters")
    return value or None
