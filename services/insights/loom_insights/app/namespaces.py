"""Which of the namespaces that a statement names its caller may read."""

from collections.abc import Sequence

from loom_common.auth.access import Address, authorize
from loom_common.auth.claims import Claims
from loom_common.auth.directory import Directory
from loom_common.call import Scope
from loom_common.errors import InvalidArgument
from loom_common.ops import OpSpec


class ReadableNamespaces:
    """Checks each namespace by the rule that the addressed one was checked by.

    Args:
        op: The operation, whose role each of them takes.
        directory: Knows the namespaces.
    """

    def __init__(self, op: OpSpec, directory: Directory) -> None:
        self._op = op
        self._directory = directory

    async def all_of(self, claims: Claims, scope: Scope, others: Sequence[str]) -> tuple[str, ...]:
        """Returns the addressed namespace and the others, each once.

        Raises:
            AuthInsufficient: The caller's role on one of them is too small.
            NotFound: There is no such namespace that the caller may use.
            InvalidArgument: A name is not allowed.
        """
        found = [scope.namespace]
        for name in others:
            if any(ord(char) < 0x20 for char in name):
                raise InvalidArgument.of("namespaces", "must not hold control or NUL characters")
            if name not in found:
                await authorize(self._op, claims, Address(scope.org, name), self._directory)
                found.append(name)
        return tuple(found)
