"""What a caller may do: which namespace a call addresses, and whether the caller's claims reach it.

Rules only. What is read from a transport is read by its interceptor, what is known of namespaces by a `Directory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from loom_common.auth.claims import ALL_NAMESPACES, NO_NAMESPACE, RESERVED_NAMES, Claims, NamespaceGrant, Role
from loom_common.auth.directory import Directory
from loom_common.auth.service_credentials import OPERATOR
from loom_common.call import Scope
from loom_common.errors import AuthInsufficient, InvalidArgument, NotFound, Unauthenticated
from loom_common.ops import Narrow, OpRole, OpSpec

_MAX_NAME: Final = 128

_ROLES: Final[Mapping[OpRole, Role]] = {
    OpRole.VIEWER: Role.VIEWER,
    OpRole.WRITER: Role.WRITER,
    OpRole.ADMIN: Role.ADMIN,
}

# What the command line of the machine may do with its own key, by the noun of the operation.
_OPERATOR_NOUNS: Final = frozenset({"token", "namespace", "org", "grants", "status"})
# Public operations that any service may call without a caller.
_OPEN_TO_SERVICES: Final = frozenset({"status.get"})

_OPERATOR_ORG: Final = "default"


@dataclass(frozen=True, slots=True)
class Address:
    """Organisation and namespace as a request names them; None where it does not."""

    org: str | None = None
    namespace: str | None = None


def address_of(message: Message, header_namespace: str | None) -> Address:
    """Returns what a request addresses: its body's fields, and the header where the body names no namespace.

    Raises:
        InvalidArgument: A name is not allowed, or body and header name different namespaces.
    """
    org = _name(message, "org")
    namespace = _name(message, "namespace")
    if header_namespace is not None and "namespace" in message.DESCRIPTOR.fields_by_name:
        _require_name(header_namespace, "x-loom-namespace")
        if namespace is None:
            namespace = header_namespace
        elif namespace != header_namespace:
            raise InvalidArgument.of("namespace", "differs from the header x-loom-namespace; send one of them")
    return Address(org, namespace)


def require_reachable(op: OpSpec, claims: Claims | None, peer_service: str | None) -> None:
    """Returns where this kind of caller may call the operation at all.

    Raises:
        Unauthenticated: The operation needs a token and there is none.
        AuthInsufficient: The operation is for services, the caller is a service without a caller's token, or the
            token reads less than its namespaces and the operation does not know how to.
    """
    if op.role is OpRole.OPEN:
        return
    if op.role is OpRole.INTERNAL:
        if peer_service is None and claims is None:
            raise Unauthenticated("This operation needs a service credential.")
        if peer_service is None:
            raise AuthInsufficient("This operation is for Loom's own services.", detail={"reason": "internal"})
        return
    if claims is not None:
        if claims.is_narrow and op.narrow is Narrow.REFUSED:
            raise AuthInsufficient(
                "The token reads only its own user's or session's rows, and this operation reads more.",
                detail={"reason": "narrowed"},
            )
        return
    if peer_service is None:
        raise Unauthenticated("The call carries no token. Send one as `authorization: Bearer <token>`.")
    if op.name in _OPEN_TO_SERVICES or (peer_service == OPERATOR and op.name.partition(".")[0] in _OPERATOR_NOUNS):
        return
    # A worker acts for nobody: with its own credential alone it must not read what a caller would have to be let to.
    raise AuthInsufficient("A service credential alone does not reach this operation.", detail={"reason": "no_caller"})


def operator_claims(org: str | None, now_s: float) -> Claims:
    """Returns what the command line of the machine may do: everything an administrator of the organisation may."""
    return Claims(
        sub=f"svc:{OPERATOR}",
        org=org or _OPERATOR_ORG,
        namespaces=(NamespaceGrant(ALL_NAMESPACES, Role.ADMIN),),
        jti=OPERATOR,
        iat=now_s,
        exp=now_s + 300.0,
        consumer="loom-cli",
        org_admin=True,
    )


async def authorize(op: OpSpec, claims: Claims, address: Address, directory: Directory) -> Scope:
    """Returns the scope that the call acts in.

    Raises:
        AuthInsufficient: The token is of another organisation, or its role on the namespace is too small.
        NotFound: An org-wide token addresses a namespace that does not exist or is restricted; the two are not told
            apart.
        InvalidArgument: Neither the request nor the token names a namespace, or it is a reserved one.
        BackendUnavailable: Identity cannot be asked about the namespace.
    """
    if address.org is not None and address.org != claims.org:
        raise AuthInsufficient("The token is of another organisation than the one that the request addresses.")
    if op.role is OpRole.NONE:
        return Scope(claims.org, NO_NAMESPACE)
    if op.role is OpRole.ORG_ADMIN:
        if not claims.org_admin:
            raise _too_small(Role.ORG_ADMIN.label, None)
        return Scope(claims.org, NO_NAMESPACE)
    namespace = address.namespace or claims.default_namespace
    if namespace is None:
        raise InvalidArgument.of("namespace", "is missing, and the token names no namespace of its own")
    await _require_role(claims, namespace, _ROLES[op.role], directory)
    return Scope(claims.org, namespace)


async def _require_role(claims: Claims, namespace: str, needed: Role, directory: Directory) -> None:
    named = claims.named_role(namespace)
    if named is not None and named >= needed:
        return
    wide = claims.wide_role
    if wide is None or wide < needed:
        raise _too_small(needed.label, namespace)
    info = await directory.namespace_info(claims.org, namespace)
    if info is not None and not info.restricted:
        return
    if named is not None:
        raise _too_small(needed.label, namespace)
    raise NotFound(f"There is no namespace {namespace!r} that this token may use.", detail={"namespace": namespace})


def _too_small(needed: str, namespace: str | None) -> AuthInsufficient:
    if namespace is None:
        return AuthInsufficient(f"This operation needs the role {needed}.", detail={"needed_role": needed})
    return AuthInsufficient(
        f"This operation needs the role {needed} on the namespace {namespace!r}, and the token does not have it.",
        detail={"needed_role": needed, "namespace": namespace},
    )


def _name(message: Message, field: str) -> str | None:
    described = message.DESCRIPTOR.fields_by_name.get(field)
    if described is None or described.message_type is not None or described.is_repeated:
        return None
    value: object = getattr(message, field)
    if not isinstance(value, str) or not (message.HasField(field) if described.has_presence else value):
        return None
    _require_name(value, field)
    return value


def _require_name(value: str, field: str) -> None:
    if not value or len(value) > _MAX_NAME:
        raise InvalidArgument.of(field, f"must be 1 to {_MAX_NAME} characters")
    if any(ord(char) < 0x20 for char in value):
        raise InvalidArgument.of(field, "must not hold control or NUL characters")
    if value in RESERVED_NAMES or value == ALL_NAMESPACES:
        raise InvalidArgument.of(field, "is a reserved name")
