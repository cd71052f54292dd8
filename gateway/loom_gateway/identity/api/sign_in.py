"""The servicer of `loom.identity.v1.SignInService`, for the operator alone."""

from datetime import timedelta
from typing import Final

import grpc.aio

from loom.identity.v1 import sign_in_pb2, sign_in_pb2_grpc
from loom_common.times import format_time
from loom_gateway.identity.api.principals import require_operator
from loom_gateway.identity.app.sessions import SessionDesk
from loom_gateway.identity.domain.names import check_new_name

# Default that the contract states.
_TTL_S: Final = 900

_Context = grpc.aio.ServicerContext[object, object]


class SignInServicer(sign_in_pb2_grpc.SignInServiceServicer):
    """Lets people in."""

    def __init__(self, sessions: SessionDesk) -> None:
        self._sessions = sessions

    async def CreateSignInLink(
        self, request: sign_in_pb2.CreateSignInLinkRequest, context: _Context
    ) -> sign_in_pb2.CreateSignInLinkResponse:
        """See the contract."""
        require_operator()
        check_new_name("org", request.org)
        life = timedelta(seconds=request.ttl_s if request.HasField("ttl_s") else _TTL_S)
        secret, link = await self._sessions.make_link(request.org, request.subject, life)
        return sign_in_pb2.CreateSignInLinkResponse(secret=secret, expires_at=format_time(link.expires_at))
