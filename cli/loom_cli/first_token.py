"""The token that a start prints: a writer for org and namespace `default`, made anew while the one before ends."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from loom.identity.v1 import identity_pb2 as pb
from loom_cli.operator import IdentityStub
from loom_common.errors import NotFound
from loom_common.files import write_whole

ORG: Final = "default"
NAMESPACE: Final = "default"
SUBJECT: Final = "sa:loom-up"
LIFE_S: Final = 30 * 86_400
# The identifiers of the token of the start before, and of older ones that could not be ended; they are no secrets.
STATE_FILE: Final = "start-token.json"


async def make(identity: IdentityStub, data_dir: Path) -> str:
    """Returns the new token, once the namespace exists; the token of the start before is revoked after it.

    Raises:
        LoomError: Identity refused or failed.
    """
    await identity.CreateNamespace(pb.CreateNamespaceRequest(org=ORG, name=NAMESPACE))
    made = await identity.CreateToken(
        pb.CreateTokenRequest(
            org=ORG,
            namespaces=[pb.NamespaceRole(namespace=NAMESPACE, role="writer")],
            subject=SUBJECT,
            label="printed at start",
            ttl_s=LIFE_S,
        )
    )
    state = data_dir / "keys" / STATE_FILE
    before = _tokens_before(state)
    # Whatever ends this between two steps, the file names every token that still has to end.
    _remember(state, [made.token_id, *before])
    for token_id in before:
        await _revoke(identity, token_id)
    _remember(state, [made.token_id])
    return str(made.token)


def _remember(state: Path, token_ids: Sequence[str]) -> None:
    write_whole(state, json.dumps({"token_ids": list(token_ids)}))


def _tokens_before(state: Path) -> list[str]:
    try:
        return [str(token_id) for token_id in json.loads(state.read_text("utf-8"))["token_ids"]]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []


async def _revoke(identity: IdentityStub, token_id: str) -> None:
    try:
        await identity.RevokeToken(pb.RevokeTokenRequest(org=ORG, token_id=token_id))
    except NotFound:
        return  # a data directory whose database was made anew
