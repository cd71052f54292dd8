"""Every table of identity. None holds what a memory says; who may do what is ended by its own operations."""

from typing import Final

from loom_common.erasure import HeldTable, shared_tables

_ACCESS: Final = "who may do what; ended by the operations on tokens, grants and accounts"
_SETTINGS: Final = "settings of organisations and namespaces"

CENSUS: Final = (
    *shared_tables("identity"),
    HeldTable("accounts", no_memory_content=_ACCESS),
    HeldTable("device_approvals", no_memory_content=_ACCESS),
    HeldTable("grants", no_memory_content=_ACCESS),
    HeldTable("namespaces", no_memory_content=_SETTINGS),
    HeldTable("oauth_uses", no_memory_content="digests of codes that were used"),
    HeldTable("org_model_calls", no_memory_content=_SETTINGS),
    HeldTable("orgs", no_memory_content=_SETTINGS),
    HeldTable("revoked_tokens", no_memory_content=_ACCESS),
    HeldTable("sessions", no_memory_content=_ACCESS),
    HeldTable("sign_in_links", no_memory_content=_ACCESS),
    HeldTable("signing_keys", no_memory_content="sealed keys"),
    HeldTable("tokens", no_memory_content=_ACCESS),
    HeldTable("trusts", no_memory_content=_ACCESS),
)
