"""Makes tokens: checked against the one that asks and against what their subject is granted, then signed."""

from dataclasses import dataclass

from loom_common.auth.claims import ALL_NAMESPACES, Claims
from loom_common.auth.revocations import Revocation
from loom_common.auth.tokens import MAX_TOKEN_BYTES, sign_token
from loom_common.clock import Clock
from loom_common.errors import AuthInsufficient, InvalidArgument, NotFound
from loom_common.ids import IdSource
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.app.rights import RightsReader
from loom_gateway.identity.app.signing import SigningKeys
from loom_gateway.identity.domain.delegation import TokenWish, delegate, root_claims
from loom_gateway.identity.domain.issue import Issue
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.sessions import RESERVED_PREFIXES
from loom_gateway.identity.domain.tokens import TokenRecord
from loom_gateway.identity.store.namespaces import NamespaceRepository
from loom_gateway.identity.store.tokens import TokenRepository


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token that was made now; the only moment at which it is seen."""

    token: str
    record: TokenRecord

    def __repr__(self) -> str:
        return f"IssuedToken(record={self.record!r})"


class Mint:
    """Makes tokens."""

    def __init__(
        self,
        tokens: TokenRepository,
        namespaces: NamespaceRepository,
        rights: RightsReader,
        feed: RevocationFeed,
        keys: SigningKeys,
        clock: Clock,
        new_id: IdSource,
    ) -> None:
        self._tokens = tokens
        self._namespaces = namespaces
        self._rights = rights
        self._feed = feed
        self._keys = keys
        self._clock = clock
        self._new_id = new_id

    async def listed(self, principal: Principal, org: str, wish: TokenWish, label: str) -> IssuedToken:
        """Makes a token that `token.list` shows.

        Args:
            principal: Who asks: a token, or the operator, who is bound by the subject's grants alone.
            org: Organisation of the token.
            wish: What is asked for.
            label: What it is for.

        Raises:
            AuthInsufficient: The caller does not hold what it asks for, or the subject is not granted it.
            NotFound: A namespace that the caller could pass on does not exist.
            InvalidArgument: The wish contradicts itself.
        """
        claims, behind = await self._made(principal, org, wish, "")
        record = TokenRecord(claims, label, made_by=principal.subject)
        token = self._signed(claims)
        # Stored before it is shown: a token that nobody can list could not be ended either.
        await self._tokens.add(record)
        try:
            # Once more: a grant that was taken away since the first look did not find this token among those to end.
            await self._rights.check(claims, *behind, restricted=await self._restricted(claims))
        except AuthInsufficient:
            await self.end(record, by=principal.subject)
            raise
        return IssuedToken(token, record)

    async def end(self, record: TokenRecord, *, by: str) -> None:
        """Ends a token that was made and must not be given out after all."""
        revocation = Revocation("token", record.claims.jti, self.now_s(), record.claims.org)
        await self._feed.add(revocation, expires_at=record.expires_at, revoked_by=by)

    def again(self, record: TokenRecord) -> IssuedToken:
        """Signs what a stored token says once more: the same token, as long as the key that signs is the same."""
        return IssuedToken(self._signed(record.claims), record)

    async def unlisted(self, parent: Claims, wish: TokenWish, *, prefix: str = "") -> IssuedToken:
        """Makes a short-lived token from another one; it is ended with that one and shown by no listing.

        Args:
            parent: The token that asks.
            wish: What is asked for.
            prefix: What its identifier begins with.

        Raises:
            AuthInsufficient: The parent does not hold what is asked for, or its subject is not granted it any more.
            NotFound: A namespace does not exist.
            InvalidArgument: The wish contradicts itself, or the prefix stands for what identity alone makes.
        """
        if prefix in RESERVED_PREFIXES:
            raise InvalidArgument.of("token_id_prefix", "stands for the tokens of sign-in sessions")
        claims, _ = await self._made(Principal(parent), parent.org, wish, prefix)
        return IssuedToken(self._signed(claims), TokenRecord(claims, "", made_by=parent.sub))

    def issue(self, prefix: str = "") -> Issue:
        """Returns an identifier and the moment.

        It is drawn before rights are read: what is taken away after that ends the token that still says it.
        """
        return Issue(prefix + self._new_id(), self.now_s())

    def own(self, claims: Claims) -> IssuedToken:
        """Signs a token that identity itself vouches for, such as a sign-in session's; it is shown by no listing."""
        return IssuedToken(self._signed(claims), TokenRecord(claims, "", made_by=claims.sub))

    async def _made(
        self, principal: Principal, org: str, wish: TokenWish, prefix: str
    ) -> tuple[Claims, tuple[str, ...]]:
        """Returns the claims of a token, and the further subjects whose grants bind it."""
        parent = principal.claims
        names = [grant.namespace for grant in wish.namespaces if grant.namespace != ALL_NAMESPACES]
        found = await self._namespaces.named(org, names)
        # To a token that does not name it a restricted namespace is one that does not exist.
        known = {
            name: space
            for name, space in found.items()
            if parent is None or not space.restricted or parent.named_role(name) is not None
        }
        restricted = {space.name for space in known.values() if space.restricted}
        issue = self.issue(prefix)
        if parent is None:
            claims = root_claims(org, wish, issue, creator=principal.subject)
            behind: tuple[str, ...] = ()
        else:
            claims = delegate(parent, wish, issue, restricted=restricted)
            behind = (parent.sub,)
        for name in names:
            if name not in known:
                raise NotFound(
                    f"The namespace {name!r} does not exist; make it with `namespace.create`, "
                    "or `loom namespace create`.",
                    detail={"namespace": name},
                )
        await self._rights.check(claims, *behind, restricted=restricted)
        return claims, behind

    async def _restricted(self, claims: Claims) -> set[str]:
        names = [grant.namespace for grant in claims.namespaces if grant.namespace != ALL_NAMESPACES]
        known = await self._namespaces.named(claims.org, names)
        return {space.name for space in known.values() if space.restricted}

    def _signed(self, claims: Claims) -> str:
        token = sign_token(claims, self._keys.active)
        if len(token) > MAX_TOKEN_BYTES:
            raise InvalidArgument.of("namespaces", "are too many and too long to fit into one token; use `*` or fewer")
        return token

    def now_s(self) -> float:
        """Returns the time as it is stored, in whole milliseconds, so that a row and its token say the same."""
        return self._clock.now_ns() // 1_000_000 / 1000
