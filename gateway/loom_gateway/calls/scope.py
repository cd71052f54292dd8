"""Which namespace a call is about, as far as the gateway needs to know: for the ledger and for model calls.

The owning service decides for itself, from the token, whether the call may have it.
"""

from google.protobuf.message import Message

from loom_common.auth.claims import NO_NAMESPACE, Claims
from loom_common.call import Scope


def addressed_scope(request: Message, claims: Claims, namespace_header: str) -> Scope:
    """Returns the namespace that a request addresses.

    It is always of the token's own organisation, and one that the token has a role on: a refused call must leave no
    row in the ledger of a namespace whose readers it is none of.
    """
    if _text(request, "org") not in ("", claims.org):
        return no_namespace(claims)
    named = _text(request, "namespace") or namespace_header or claims.default_namespace or NO_NAMESPACE
    if "namespace" not in request.DESCRIPTOR.fields_by_name or claims.role_on(named) is None:
        return no_namespace(claims)
    return Scope(claims.org, named)


def no_namespace(claims: Claims) -> Scope:
    """Returns the scope of a call that addresses no namespace, or none that its caller may have."""
    return Scope(claims.org, NO_NAMESPACE)


def named_user(request: Message) -> str:
    """Returns the user that a request names; empty where it names none."""
    return _text(request, "user_id")


def _text(request: Message, name: str) -> str:
    value = getattr(request, name, "") if name in request.DESCRIPTOR.fields_by_name else ""
    return value if isinstance(value, str) else ""
