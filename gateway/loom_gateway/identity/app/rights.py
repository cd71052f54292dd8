"""What a subject holds now, read from grants, owned namespaces and its account."""

import asyncio
from collections.abc import Collection
from typing import Final

from loom_common.auth.claims import Claims
from loom_common.errors import AuthInsufficient
from loom_gateway.identity.domain.grants import Grant, Rights, excess, rights_of
from loom_gateway.identity.domain.subjects import every_agent_of
from loom_gateway.identity.store.accounts import AccountRepository
from loom_gateway.identity.store.grants import GrantRepository
from loom_gateway.identity.store.namespaces import NamespaceRepository

# Source: chosen; more grants than a token can name, so that none of those is missed.
_MAX_OWNED: Final = 256


class RightsReader:
    """Reads what subjects hold."""

    def __init__(self, grants: GrantRepository, namespaces: NamespaceRepository, accounts: AccountRepository) -> None:
        self._grants = grants
        self._namespaces = namespaces
        self._accounts = accounts

    async def of(self, org: str, subject: str, *further: Grant) -> Rights:
        """Returns what a subject holds: by its own grants, by those of all agents of its trust, and as an owner.

        Args:
            org: Organisation.
            subject: The subject.
            further: Grants that it is thought to have besides.
        """
        subjects = {subject, every_agent_of(subject)} - {""}
        grants, owned, account = await asyncio.gather(
            self._grants.of(org, subjects),
            self._namespaces.owned_by(org, subject, _MAX_OWNED),
            self._accounts.find(org, subject),
        )
        return rights_of(
            [*grants, *further], [space.name for space in owned], disabled=account is not None and account.disabled
        )

    async def check(self, claims: Claims, *subjects: str, restricted: Collection[str]) -> None:
        """Returns if a token says no more than each of these subjects, and its own, holds now.

        Args:
            claims: What the token is to say.
            subjects: Further subjects, such as that of the token that it is made from.
            restricted: Names, among its namespaces, of restricted ones.

        Raises:
            AuthInsufficient: It says more.
        """
        for subject in dict.fromkeys((claims.sub, *subjects)):
            beyond = excess(
                await self.of(claims.org, subject),
                claims.namespaces,
                org_admin=claims.org_admin,
                restricted=restricted,
            )
            if beyond is not None:
                raise AuthInsufficient(
                    f"{subject!r} is not granted {beyond}; an administrator grants it with `grants.set`.",
                    detail={"reason": "not_granted", "subject": subject},
                )
