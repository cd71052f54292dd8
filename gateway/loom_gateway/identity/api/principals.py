"""Who makes the running call."""

from loom_common.auth.service_credentials import OPERATOR
from loom_common.call import Call, current
from loom_common.errors import AuthInsufficient, Unauthenticated
from loom_gateway.identity.domain.principal import Principal


def principal_of(call: Call) -> Principal:
    """Returns who asks: the holder of the token that came along, else the operator with its own credential.

    Raises:
        Unauthenticated: The call carries neither.
    """
    if call.peer_service == OPERATOR and call.token is None:
        # The interceptor gives the operator claims of an administrator; here it is told from one by having no token.
        return Principal(None, operator_org=call.claims.org if call.claims else "")
    if call.claims is None:
        raise Unauthenticated("The call carries no token. Send one as `authorization: Bearer <token>`.")
    return Principal(call.claims)


def require_operator() -> None:
    """Returns if the running call is the operator's own.

    Raises:
        AuthInsufficient: It is another service's.
    """
    if current().peer_service != OPERATOR:
        raise AuthInsufficient("This is for the operator's own key alone.", detail={"reason": "operator"})
