"""Ends tokens that say more than their subject holds, once it holds less."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final

from loom_common.auth.claims import ALL_NAMESPACES
from loom_common.auth.revocations import Revocation
from loom_common.clock import Clock
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.app.rights import RightsReader
from loom_gateway.identity.domain.grants import Grant, Rights, excess
from loom_gateway.identity.domain.sessions import rights_holder
from loom_gateway.identity.domain.subjects import SubjectKind, is_every_agent, subject_kind
from loom_gateway.identity.domain.tokens import TokenRecord
from loom_gateway.identity.store.namespaces import NamespaceRepository
from loom_gateway.identity.store.tokens import TokenRepository

LONGEST_LIFE: Final = timedelta(days=366)
"""After which everything that a subject or a session was given has expired. Source: the longest life of a token, 365
days, and one for clocks that differ."""

_CHUNK: Final = 500
# Source: chosen; a namespace with more holders of tokens is one that nobody restricts.
_MAX_SUBJECTS: Final = 10_000


class TokenEnder:
    """Ends tokens whose subject holds less than they say."""

    def __init__(
        self,
        tokens: TokenRepository,
        namespaces: NamespaceRepository,
        rights: RightsReader,
        feed: RevocationFeed,
        clock: Clock,
    ) -> None:
        self._tokens = tokens
        self._namespaces = namespaces
        self._rights = rights
        self._feed = feed
        self._clock = clock

    async def beyond_grants(self, org: str, subject: str, *, by: str) -> int:
        """Ends every token of a subject that says more than it holds now; returns how many.

        Tokens that were made from such a one end with it. Sign-in sessions get fresh tokens that say what is left.

        Args:
            org: Organisation.
            subject: The subject, or the one that stands for every agent of a trust.
            by: Subject that ends them.
        """
        ended = 0
        async with aclosing(self._beyond(org, subject)) as records:
            async for record in records:
                await self._end(Revocation("token", record.claims.jti, self._now_s(), org), record.expires_at, by)
                ended += 1
        if subject_kind(subject) is SubjectKind.PERSON:
            # The tokens of sessions are listed nowhere: they stand under a name of their own, which ends here.
            holder = Revocation("subject", rights_holder(subject), self._now_s(), org)
            await self._end(holder, self._clock.now() + LONGEST_LIFE, by)
        return ended

    async def would_bind(self, grant: Grant) -> bool:
        """Returns whether a grant would bound a subject that has tokens which say more than it and need none now."""
        async with aclosing(self._beyond(grant.org, grant.subject, grant)) as records:
            async for _record in records:
                return True
        return False

    async def beyond_grants_on(self, org: str, namespace: str, *, by: str) -> int:
        """Ends tokens that say more than their subject holds, of every subject with a token that names a namespace."""
        ended = 0
        for subject in await self._tokens.subjects_naming(org, namespace, now=self._clock.now(), limit=_MAX_SUBJECTS):
            ended += await self.beyond_grants(org, subject, by=by)
        return ended

    async def all_of(self, org: str, subject: str, *, by: str) -> float:
        """Ends every token of a subject that was issued until now; returns when. Units: seconds since 1970, UTC."""
        revocation = Revocation("subject", subject, self._now_s(), org)
        await self._end(revocation, self._clock.now() + LONGEST_LIFE, by)
        return revocation.revoked_at

    async def session(self, org: str, sid: str, *, by: str) -> float:
        """Ends a sign-in session and all that was made in it; returns when. Units: seconds since 1970, UTC."""
        revocation = Revocation("session", sid, self._now_s(), org)
        await self._end(revocation, self._clock.now() + LONGEST_LIFE, by)
        return revocation.revoked_at

    async def _beyond(self, org: str, subject: str, *further: Grant) -> AsyncGenerator[TokenRecord, None]:
        """Yields the good listed tokens of a subject that say more than it holds, further grants counted in."""
        prefix = subject[:-1] if is_every_agent(subject) else ""
        held: dict[str, Rights] = {}
        after = ""
        while True:
            records = await self._tokens.live_of(
                org, subject, prefix=prefix, now=self._clock.now(), after=after, limit=_CHUNK
            )
            names = {grant.namespace for record in records for grant in record.claims.namespaces} - {ALL_NAMESPACES}
            known = await self._namespaces.named(org, sorted(names))
            restricted = {space.name for space in known.values() if space.restricted}
            for record in records:
                claims = record.claims
                if self._feed.has_ended(claims):
                    continue
                if claims.sub not in held:
                    held[claims.sub] = await self._rights.of(org, claims.sub, *further)
                if excess(held[claims.sub], claims.namespaces, org_admin=claims.org_admin, restricted=restricted):
                    yield record
            if len(records) < _CHUNK:
                return
            after = records[-1].claims.jti

    async def _end(self, revocation: Revocation, expires_at: datetime, by: str) -> None:
        await self._feed.add(revocation, expires_at=expires_at.astimezone(UTC), revoked_by=by)

    def _now_s(self) -> float:
        return self._clock.now_ns() // 1_000_000 / 1000
