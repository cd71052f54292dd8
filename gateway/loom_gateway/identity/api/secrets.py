"""The servicer of `loom.identity.v1.SecretsService`, for the operator alone."""

import grpc.aio

from loom.identity.v1 import secrets_pb2, secrets_pb2_grpc
from loom_common.resealing import Reseal
from loom_common.times import format_time
from loom_gateway.identity.api.principals import require_operator
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.app.signing import SigningKeys

_Context = grpc.aio.ServicerContext[object, object]


class SecretsServicer(secrets_pb2_grpc.SecretsServiceServicer):
    """Looks after secrets at rest."""

    def __init__(self, reseal: Reseal, keys: SigningKeys, feed: RevocationFeed) -> None:
        self._reseal = reseal
        self._keys = keys
        self._feed = feed

    async def Reseal(self, request: secrets_pb2.ResealRequest, context: _Context) -> secrets_pb2.ResealResponse:
        """See the contract."""
        require_operator()
        return secrets_pb2.ResealResponse(
            kinds=[
                secrets_pb2.Resealed(
                    kind=done.name,
                    resealed_count=done.resealed,
                    current_count=done.current,
                    unopened_count=done.unopened,
                )
                for done in await self._reseal.run()
            ]
        )

    async def RotateSigningKey(
        self, request: secrets_pb2.RotateSigningKeyRequest, context: _Context
    ) -> secrets_pb2.RotateSigningKeyResponse:
        """See the contract."""
        require_operator()
        before = self._keys.jwks
        kid, signs_from = await self._keys.rotate(throw_away_older=request.end_all_tokens)
        self._feed.keys_may_have_changed(before)
        return secrets_pb2.RotateSigningKeyResponse(key_id=kid, signs_from=format_time(signs_from))
