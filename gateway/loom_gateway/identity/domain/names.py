"""Which names organisations and namespaces may have."""

import re
from typing import Final

from loom_common.auth.claims import RESERVED_NAMES
from loom_common.errors import InvalidArgument

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
"""The rule that the contract states for namespaces; organisations follow it too, since both stand in URLs."""


def check_new_name(field: str, name: str) -> None:
    """Returns if an organisation or namespace may be made under `name`.

    Raises:
        InvalidArgument: The name breaks the rule or is reserved.
    """
    if name in RESERVED_NAMES:
        raise InvalidArgument.of(field, "is a reserved name")
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidArgument.of(
            field, "is 1 to 128 letters, digits and . _ : @ -, and begins with a letter or a digit"
        )
