"""Organisations, and the people and programs that they know."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.errors import AuthInsufficient
from loom_common.page_tokens import decode_page_token
from loom_gateway.identity.app.ending import TokenEnder
from loom_gateway.identity.app.listing import Page, administered_org, cut, whole_ms
from loom_gateway.identity.domain.names import check_new_name
from loom_gateway.identity.domain.orgs import Account, Org
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.subjects import check_subject
from loom_gateway.identity.store.accounts import AccountRepository
from loom_gateway.identity.store.orgs import OrgRepository

# Of an organisation that nobody made by name it is not known when it began.
_UNSAID: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OrgDesk:
    """Makes, shows and names organisations."""

    def __init__(self, orgs: OrgRepository, writes: ConditionalWrites, clock: Clock) -> None:
        self._orgs = orgs
        self._writes = writes
        self._clock = clock

    async def create(self, principal: Principal, name: str, display_name: str) -> tuple[Org, bool]:
        """Makes an organisation; returns it, and whether it was made now.

        Raises:
            AuthInsufficient: The caller is not the operator.
            InvalidArgument: The name breaks the rule or is reserved.
            Conflict: Others are making it now.
        """
        if not principal.is_operator:
            raise AuthInsufficient("Only the operator makes organisations, with `loom org create`.")
        check_new_name("name", name)
        async with self._writes.hold(claim_name("org", name)) as hold:
            if found := await self._orgs.find(name):
                return found, False
            now = whole_ms(self._clock.now())
            made = Org(name, display_name or name, now, principal.subject, now, hold.version_after(0))
            await self._orgs.put(made)
            await hold.confirm()
        return made, True

    async def page(self, principal: Principal, *, page_size: int, page_token: str) -> Page[Org]:
        """Returns organisations by name: for the operator all that were made by name, else the caller's own.

        Raises:
            InvalidArgument: The page token is not of this listing.
        """
        query: dict[str, JsonValue] = {"op": "org.list", "caller": principal.subject}
        place = decode_page_token(page_token, query, (str,))
        if principal.claims is not None:
            return Page([await self.get(principal, None)], "")
        found = await self._orgs.page(after=str(place[0]) if place else "", limit=page_size + 1)
        return cut(found, page_size, query, lambda org: org.name)

    async def get(self, principal: Principal, asked_org: str | None) -> Org:
        """Returns an organisation; one that nobody made by name is called by its name.

        Raises:
            AuthInsufficient: It is not the caller's.
            InvalidArgument: The operator named none.
        """
        name = principal.org(asked_org)
        return await self._orgs.find(name) or Org(name, name, _UNSAID, "", _UNSAID, 0)

    async def update(self, principal: Principal, asked_org: str | None, display_name: str) -> Org:
        """Changes what an organisation is called.

        Raises:
            AuthInsufficient: The caller does not administer it.
            InvalidArgument: The operator named none.
            Conflict: Others are changing it now.
        """
        name = administered_org(principal, asked_org)
        async with self._writes.hold(claim_name("org", name)) as hold:
            found = await self._orgs.find(name)
            now = whole_ms(self._clock.now())
            version = hold.version_after(found.version if found else 0)
            made = found or Org(name, name, now, principal.subject, now, version)
            changed = replace(made, display_name=display_name, updated_at=now, version=version)
            await self._orgs.put(changed)
            await hold.confirm()
        return changed


class AccountDesk:
    """Keeps what an organisation knows of people and programs."""

    def __init__(self, accounts: AccountRepository, ender: TokenEnder, writes: ConditionalWrites, clock: Clock) -> None:
        self._accounts = accounts
        self._ender = ender
        self._writes = writes
        self._clock = clock

    async def set(
        self,
        principal: Principal,
        asked_org: str | None,
        subject: str,
        *,
        display_name: str | None = None,
        disabled: bool | None = None,
    ) -> tuple[Account, bool]:
        """Sets what is known of a subject; returns it, and whether it was made known now.

        Raises:
            AuthInsufficient: The caller does not administer the organisation.
            InvalidArgument: The subject is none.
            Conflict: Others are changing it now.
        """
        org = administered_org(principal, asked_org)
        check_subject("subject", subject)
        account, created = await self.know(
            org, subject, by=principal.subject, display_name=display_name, disabled=disabled
        )
        if disabled:
            # Each time, not only at the change: a call whose answer was lost may have stored it and ended nothing.
            await self._ender.all_of(org, subject, by=principal.subject)
        return account, created

    async def know(
        self,
        org: str,
        subject: str,
        *,
        by: str,
        display_name: str | None = None,
        email: str | None = None,
        disabled: bool | None = None,
    ) -> tuple[Account, bool]:
        """Stores what is said of a subject and leaves the rest; returns it, and whether it was made known now."""
        async with self._writes.hold(claim_name("account", org, subject)) as hold:
            found = await self._accounts.find(org, subject)
            now = whole_ms(self._clock.now())
            before = found or Account(org, subject, "", "", False, now, now, by, 0)
            changed = replace(
                before,
                display_name=before.display_name if display_name is None else display_name,
                email=before.email if email is None else email,
                disabled=before.disabled if disabled is None else disabled,
            )
            if found is None or changed != found:
                changed = replace(changed, updated_at=now, updated_by=by, version=hold.version_after(before.version))
                await self._accounts.put(changed)
                await hold.confirm()
        return changed, found is None

    async def page(
        self, principal: Principal, asked_org: str | None, *, page_size: int, page_token: str
    ) -> Page[Account]:
        """Returns accounts by subject.

        Raises:
            AuthInsufficient: The caller does not administer the organisation.
            InvalidArgument: The page token is not of this listing.
        """
        org = administered_org(principal, asked_org)
        query: dict[str, JsonValue] = {"op": "org.list_accounts", "org": org}
        place = decode_page_token(page_token, query, (str,))
        found = await self._accounts.page(org, after=str(place[0]) if place else "", limit=page_size + 1)
        return cut(found, page_size, query, lambda account: account.subject)
