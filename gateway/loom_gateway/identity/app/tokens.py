"""Making, listing and ending tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from loom_common.auth.revocations import Revocation
from loom_common.clock import Clock
from loom_common.errors import AuthInsufficient, NotFound
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_gateway.identity.app.ending import TokenEnder
from loom_gateway.identity.app.minting import IssuedToken, Mint
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.domain.delegation import TokenWish
from loom_gateway.identity.domain.names import check_new_name
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.tokens import TokenRecord, may_revoke
from loom_gateway.identity.store.revocations import RevocationRepository
from loom_gateway.identity.store.tokens import TokenFilter, TokenRepository

# Bounds one listing among thousands of revoked tokens; the page is then short and its token goes on.
_SCANNED_PER_PAGE: Final = 5_000
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True)
class ListedToken:
    """One token of a listing."""

    record: TokenRecord
    revoked_at_s: float | None
    """Units: seconds since 1970, UTC; None while it is not revoked."""


@dataclass(frozen=True, slots=True)
class TokenPage:
    """One page of tokens, the newest first."""

    tokens: Sequence[ListedToken]
    next_page_token: str


class TokenDesk:
    """Makes, lists and ends tokens."""

    def __init__(
        self,
        tokens: TokenRepository,
        revocations: RevocationRepository,
        mint: Mint,
        ender: TokenEnder,
        feed: RevocationFeed,
        clock: Clock,
    ) -> None:
        self._tokens = tokens
        self._revocations = revocations
        self._mint = mint
        self._ender = ender
        self._feed = feed
        self._clock = clock

    async def create(self, principal: Principal, asked_org: str | None, wish: TokenWish, label: str) -> IssuedToken:
        """Makes a token, never wider and never longer than the caller's, nor wider than its subject's grants.

        Raises:
            AuthInsufficient: The caller does not hold what it asks for, or the subject is not granted it.
            NotFound: A namespace that the caller could pass on does not exist.
            InvalidArgument: The wish contradicts itself.
        """
        org = principal.org(asked_org)
        check_new_name("org", org)
        return await self._mint.listed(principal, org, wish, label)

    async def again(self, org: str, token_id: str) -> IssuedToken:
        """Returns a token that was made before, to the one to whom it was shown then.

        Raises:
            NotFound: It is too old to be in the table.
        """
        record = await self._tokens.find(org, token_id)
        if record is None:
            raise NotFound("The token that was made under this key is gone.", detail={"token_id": token_id})
        return self._mint.again(record)

    async def page(
        self, principal: Principal, asked_org: str | None, *, ended_too: bool, page_size: int, page_token: str
    ) -> TokenPage:
        """Returns tokens that the caller may end, the newest first.

        Raises:
            AuthInsufficient: The organisation is not the caller's.
            InvalidArgument: The page token is not of this listing.
        """
        org = principal.org(asked_org)
        caller = principal.claims.jti if principal.claims else ""
        query: dict[str, JsonValue] = {
            "op": "token.list",
            "org": org,
            "caller": principal.subject,
            "ended_too": ended_too,
        }
        place = decode_page_token(page_token, query, (str,))
        before = str(place[0]) if place else ""
        shown = TokenFilter(org, caller, principal.subject, principal.is_org_admin, ended_too, self._clock.now())
        found: list[ListedToken] = []
        for _ in range(_SCANNED_PER_PAGE // _CHUNK):
            records = await self._tokens.page(shown, before=before, limit=_CHUNK)
            for token in await self._with_revocations(org, records):
                if len(found) == page_size:
                    return TokenPage(found, encode_page_token([found[-1].record.claims.jti], query))
                if ended_too or token.revoked_at_s is None:
                    found.append(token)
            if len(records) < _CHUNK:
                return TokenPage(found, "")
            before = records[-1].claims.jti
        return TokenPage(found, encode_page_token([before], query))

    async def revoke(self, principal: Principal, asked_org: str | None, token_id: str) -> float:
        """Ends a token and every one made from it; returns when, of the first time where it was ended before.

        Returns:
            Units: seconds since 1970, UTC.

        Raises:
            NotFound: There is no such token, or the caller may not end it.
        """
        org = principal.org(asked_org)
        record = await self._tokens.find(org, token_id)
        if record is None or not may_revoke(principal, record):
            raise NotFound("There is no such token among those that you may revoke.", detail={"token_id": token_id})
        earlier = await self._revocations.of(org, [token_id])
        own = [revocation.revoked_at for revocation in earlier if revocation.kind == "token"]
        if own:
            return min(own)
        revocation = Revocation("token", token_id, self._now_s(), org)
        # Nothing made from it lives longer than it, so the revocation is of no use after that.
        await self._feed.add(revocation, expires_at=record.expires_at, revoked_by=principal.subject)
        return revocation.revoked_at

    async def revoke_subject(self, principal: Principal, asked_org: str | None, subject: str) -> float:
        """Ends every token of a subject that was issued until now; returns when. Units: seconds since 1970, UTC.

        Raises:
            AuthInsufficient: It is another's subject, and the caller does not administer the organisation.
        """
        org = principal.org(asked_org)
        if not principal.is_org_admin and subject != principal.subject:
            raise AuthInsufficient("Only a token that administers the organisation ends another subject's tokens.")
        return await self._ender.all_of(org, subject, by=principal.subject)

    async def _with_revocations(self, org: str, records: Sequence[TokenRecord]) -> Sequence[ListedToken]:
        ids: set[str] = set()
        for record in records:
            claims = record.claims
            ids.update((claims.jti, *claims.parents, claims.sub, claims.creator, *claims.parent_subjects, claims.sid))
        revocations = await self._revocations.of(org, ids - {""}) if ids else []
        by_id: dict[str, list[Revocation]] = {}
        for revocation in revocations:
            by_id.setdefault(revocation.id, []).append(revocation)
        return [ListedToken(record, record.revoked_at_s(by_id)) for record in records]

    def _now_s(self) -> float:
        """Returns the time as it is stored, in whole milliseconds, so that a row and its token say the same."""
        return self._clock.now_ns() // 1_000_000 / 1000
