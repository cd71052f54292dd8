"""Which namespaces a search reads: the one that leads, and the caller's others."""

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from loom_common.auth.directory import Directory, NamespaceInfo
from loom_common.call import Scope, current
from loom_common.errors import LoomError

logger = logging.getLogger(__name__)

_MEMORY: Final = "memory"


class NamespaceScope(StrEnum):
    """Which namespaces a search reads."""

    ALL_MINE = "all_mine"
    THIS = "this"


@dataclass(frozen=True, slots=True)
class FanOut:
    """Bounds of a search over several namespaces: their kinds, and how many beside the leading one."""

    kinds: tuple[str, ...]
    max_namespaces: int


@dataclass(frozen=True, slots=True)
class ReadNamespaces:
    """What a search reads: `home` leads, the others follow in the order of the caller's token."""

    home: Scope
    others: tuple[Scope, ...] = ()

    @property
    def all(self) -> tuple[Scope, ...]:
        """Every namespace, home first."""
        return (self.home, *self.others)


class CallerNamespaces:
    """Knows which namespaces the running call's searches read."""

    def __init__(self, directory: Directory, fan_out: FanOut) -> None:
        self._directory = directory
        self._fan_out = fan_out

    async def read_by(self, scope: Scope, reach: NamespaceScope, *, is_named: bool = True) -> ReadNamespaces:
        """Returns what a search reads.

        Where the namespaces of the caller are not known it is `scope` alone: no search widens on a guess.

        Args:
            scope: Namespace that the call was authorized for.
            reach: Whether the caller's other namespaces are read too.
            is_named: Whether the caller named it. Where it did not, its own namespace leads a search over several, even
                when its token names a teammate's first.
        """
        if reach is NamespaceScope.THIS:
            return ReadNamespaces(scope)
        try:
            # The addressed one may be among them, and another may lead in its place: neither is counted.
            infos = await self._directory.caller_namespaces(self._fan_out.kinds, self._fan_out.max_namespaces + 2)
        except LoomError as error:
            logger.warning("fan_out_unresolved", extra={"namespace": scope.namespace, "reason": error.reason.value})
            return ReadNamespaces(scope)
        known = [info for info in infos if info.org == scope.org and self._is_swept(info) and _is_readable(info)]
        home = scope
        if not is_named and known and _is_own(known[0]):
            home = Scope(known[0].org, known[0].name)
        others = [each for info in known if (each := Scope(info.org, info.name)) != home]
        return ReadNamespaces(home, tuple(others[: self._fan_out.max_namespaces]))

    def _is_swept(self, info: NamespaceInfo) -> bool:
        # One without a recorded kind counts as one of memories.
        return (info.kind or _MEMORY) in self._fan_out.kinds


def _is_own(info: NamespaceInfo) -> bool:
    claims = current().claims
    return claims is not None and bool(info.owner) and info.owner == claims.sub


def _is_readable(info: NamespaceInfo) -> bool:
    """Says whether the running call's token reads a namespace, whatever the directory said."""
    claims = current().claims
    if claims is None or info.org != claims.org:
        return False
    return claims.named_role(info.name) is not None or (claims.wide_role is not None and not info.restricted)


async def reads(directory: Directory, scope: Scope) -> bool:
    """Says whether the running call's token reads a namespace that it did not address.

    Raises:
        BackendUnavailable: Identity cannot be asked.
    """
    info = await directory.namespace_info(scope.org, scope.namespace)
    return info is not None and _is_readable(info)
