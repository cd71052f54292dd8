"""The servicer of `loom.identity.v1.AccessService`."""

import grpc.aio

from loom.identity.v1 import access_pb2, access_pb2_grpc
from loom_common.auth.claims import Role
from loom_common.call import current
from loom_common.errors import InvalidArgument
from loom_common.times import format_time
from loom_gateway.identity.api.principals import principal_of
from loom_gateway.identity.app.grants import GrantDesk
from loom_gateway.identity.app.orgs import AccountDesk, OrgDesk
from loom_gateway.identity.app.trusts import TrustDesk, TrustWish
from loom_gateway.identity.domain.grants import Grant
from loom_gateway.identity.domain.orgs import Account, Org
from loom_gateway.identity.domain.subjects import subject_kind
from loom_gateway.identity.domain.trusts import Trust

# Defaults that the contract states.
_PER_PAGE = 100
_AGENT_CLAIM = "sub"
_TOKEN_TTL_S = 3600

_Context = grpc.aio.ServicerContext[object, object]


class AccessServicer(access_pb2_grpc.AccessServiceServicer):
    """Manages who may do what."""

    def __init__(self, grants: GrantDesk, orgs: OrgDesk, trusts: TrustDesk, accounts: AccountDesk) -> None:
        self._grants = grants
        self._orgs = orgs
        self._trusts = trusts
        self._accounts = accounts

    async def ListGrants(
        self, request: access_pb2.ListGrantsRequest, context: _Context
    ) -> access_pb2.ListGrantsResponse:
        """See the contract."""
        page = await self._grants.page(
            principal_of(current()),
            request.org or None,
            subject=request.subject,
            namespace=request.on_namespace,
            page_size=request.page_size if request.HasField("page_size") else _PER_PAGE,
            page_token=request.page_token,
        )
        return access_pb2.ListGrantsResponse(
            grants=[grant_to_proto(grant) for grant in page.items], next_page_token=page.next_page_token
        )

    async def SetGrant(self, request: access_pb2.SetGrantRequest, context: _Context) -> access_pb2.SetGrantResponse:
        """See the contract."""
        done = await self._grants.set(
            principal_of(current()),
            request.org or None,
            request.subject,
            request.on_namespace,
            Role[request.role.upper()],
        )
        assert done.grant is not None, "what was set is there"
        return access_pb2.SetGrantResponse(
            grant=grant_to_proto(done.grant), changed=done.changed, ended_tokens=done.ended_tokens
        )

    async def RemoveGrant(
        self, request: access_pb2.RemoveGrantRequest, context: _Context
    ) -> access_pb2.RemoveGrantResponse:
        """See the contract."""
        done = await self._grants.remove(
            principal_of(current()), request.org or None, request.subject, request.on_namespace
        )
        return access_pb2.RemoveGrantResponse(removed=done.changed, ended_tokens=done.ended_tokens)

    async def CreateOrg(self, request: access_pb2.CreateOrgRequest, context: _Context) -> access_pb2.CreateOrgResponse:
        """See the contract."""
        org, created = await self._orgs.create(principal_of(current()), request.name, request.display_name)
        return access_pb2.CreateOrgResponse(org=org_to_proto(org), created=created)

    async def ListOrgs(self, request: access_pb2.ListOrgsRequest, context: _Context) -> access_pb2.ListOrgsResponse:
        """See the contract."""
        page = await self._orgs.page(
            principal_of(current()),
            page_size=request.page_size if request.HasField("page_size") else _PER_PAGE,
            page_token=request.page_token,
        )
        return access_pb2.ListOrgsResponse(
            orgs=[org_to_proto(org) for org in page.items], next_page_token=page.next_page_token
        )

    async def GetOrg(self, request: access_pb2.GetOrgRequest, context: _Context) -> access_pb2.GetOrgResponse:
        """See the contract."""
        org = await self._orgs.get(principal_of(current()), request.org or None)
        return access_pb2.GetOrgResponse(org=org_to_proto(org))

    async def UpdateOrg(self, request: access_pb2.UpdateOrgRequest, context: _Context) -> access_pb2.UpdateOrgResponse:
        """See the contract."""
        org = await self._orgs.update(principal_of(current()), request.org or None, request.display_name)
        return access_pb2.UpdateOrgResponse(org=org_to_proto(org))

    async def SetTrust(self, request: access_pb2.SetTrustRequest, context: _Context) -> access_pb2.SetTrustResponse:
        """See the contract."""
        trust, created = await self._trusts.set(
            principal_of(current()), request.org or None, trust_wish_from_proto(request)
        )
        return access_pb2.SetTrustResponse(trust=trust_to_proto(trust), created=created)

    async def ListTrusts(
        self, request: access_pb2.ListTrustsRequest, context: _Context
    ) -> access_pb2.ListTrustsResponse:
        """See the contract."""
        page = await self._trusts.page(
            principal_of(current()),
            request.org or None,
            page_size=request.page_size if request.HasField("page_size") else _PER_PAGE,
            page_token=request.page_token,
        )
        return access_pb2.ListTrustsResponse(
            trusts=[trust_to_proto(trust) for trust in page.items], next_page_token=page.next_page_token
        )

    async def RemoveTrust(
        self, request: access_pb2.RemoveTrustRequest, context: _Context
    ) -> access_pb2.RemoveTrustResponse:
        """See the contract."""
        removed = await self._trusts.remove(principal_of(current()), request.org or None, request.name)
        return access_pb2.RemoveTrustResponse(removed=removed)

    async def SetAccount(
        self, request: access_pb2.SetAccountRequest, context: _Context
    ) -> access_pb2.SetAccountResponse:
        """See the contract."""
        account, created = await self._accounts.set(
            principal_of(current()),
            request.org or None,
            request.subject,
            display_name=request.display_name if request.HasField("display_name") else None,
            disabled=request.disabled if request.HasField("disabled") else None,
        )
        return access_pb2.SetAccountResponse(account=account_to_proto(account), created=created)

    async def ListAccounts(
        self, request: access_pb2.ListAccountsRequest, context: _Context
    ) -> access_pb2.ListAccountsResponse:
        """See the contract."""
        page = await self._accounts.page(
            principal_of(current()),
            request.org or None,
            page_size=request.page_size if request.HasField("page_size") else _PER_PAGE,
            page_token=request.page_token,
        )
        return access_pb2.ListAccountsResponse(
            accounts=[account_to_proto(account) for account in page.items], next_page_token=page.next_page_token
        )


def grant_to_proto(grant: Grant) -> access_pb2.Grant:
    """Returns a grant as a message."""
    return access_pb2.Grant(
        subject=grant.subject,
        namespace=grant.namespace,
        role=grant.role.label,
        updated_at=format_time(grant.updated_at),
        updated_by=grant.updated_by,
    )


def org_to_proto(org: Org) -> access_pb2.Org:
    """Returns an organisation as a message."""
    return access_pb2.Org(
        name=org.name,
        display_name=org.display_name,
        created_at=format_time(org.created_at) if org.version else "",
        updated_at=format_time(org.updated_at) if org.version else "",
    )


def trust_wish_from_proto(request: access_pb2.SetTrustRequest) -> TrustWish:
    """Returns what a trust is to be.

    Raises:
        InvalidArgument: A claim stands twice.
    """
    claims = {claim.name: tuple(claim.values) for claim in request.required_claims}
    if len(claims) < len(request.required_claims):
        raise InvalidArgument.of("required_claims", "names one twice")
    return TrustWish(
        name=request.name,
        issuer=request.issuer,
        audience=request.audience,
        jwks_url=request.jwks_url,
        jwks=request.jwks,
        required_claims=claims,
        agent_claim=request.agent_claim or _AGENT_CLAIM,
        role=Role[request.role.upper()] if request.HasField("role") else Role.WRITER,
        token_ttl_s=request.token_ttl_s if request.HasField("token_ttl_s") else _TOKEN_TTL_S,
    )


def trust_to_proto(trust: Trust) -> access_pb2.Trust:
    """Returns a trust as a message."""
    return access_pb2.Trust(
        name=trust.name,
        issuer=trust.issuer,
        audience=trust.audience,
        jwks_url=trust.jwks_url,
        jwks=trust.jwks,
        required_claims=[
            access_pb2.RequiredClaim(name=name, values=values) for name, values in trust.required_claims.items()
        ],
        agent_claim=trust.agent_claim,
        role=trust.role.label,
        token_ttl_s=trust.token_ttl_s,
        updated_at=format_time(trust.updated_at),
        updated_by=trust.updated_by,
    )


def account_to_proto(account: Account) -> access_pb2.Account:
    """Returns what is known of a person or a program as a message."""
    kind = subject_kind(account.subject)
    return access_pb2.Account(
        subject=account.subject,
        kind=kind.value if kind else "",
        display_name=account.display_name,
        email=account.email,
        disabled=account.disabled,
        created_at=format_time(account.created_at),
        updated_at=format_time(account.updated_at),
    )
