"""The link that signs the owner of a machine's Loom in, once: printed at its start, or by `loom sign-in-link`."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from loom_cli import options
from loom_cli.console import OUT, print_json

if TYPE_CHECKING:
    import grpc.aio

ORG: Final = "default"
OWNER: Final = "owner@localhost"
"""Who the link signs in: an administrator of the organisation that a start makes."""

LIFE_S: Final = 900


async def make_link(channel: "grpc.aio.Channel", http_url: str, org: str, subject: str) -> str:
    """Returns a link for a person. Its secret stands behind `#`, which browsers send to nobody.

    Args:
        channel: Channel to identity, as the operator.
        http_url: Address of the gateway.
        org: Organisation that the session will act in.
        subject: The person.

    Raises:
        LoomError: Identity refused or failed.
    """
    from loom.identity.v1 import sign_in_pb2, sign_in_pb2_grpc

    stub = sign_in_pb2_grpc.SignInServiceStub(channel)
    request = sign_in_pb2.CreateSignInLinkRequest(org=org, subject=subject, ttl_s=LIFE_S)
    made = await stub.CreateSignInLink(request)
    return f"{http_url}/sign-in#link={made.secret}"


async def make_owner_link(channel: "grpc.aio.Channel", http_url: str) -> str:
    """Returns a link for the owner, who administers the organisation that a start makes.

    Raises:
        LoomError: Identity refused or failed.
    """
    from loom.identity.v1 import access_pb2, access_pb2_grpc

    grant = access_pb2.SetGrantRequest(org=ORG, subject=OWNER, on_namespace="*", role="org_admin")
    await access_pb2_grpc.AccessServiceStub(channel).SetGrant(grant)
    return await make_link(channel, http_url, ORG, OWNER)


def sign_in_link(
    org: Annotated[str, typer.Option(help="Organisation that the session will act in.")] = ORG,
    subject: Annotated[
        str, typer.Option(help="Who is signed in, an e-mail address. Default: the owner of this Loom.")
    ] = OWNER,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Prints a link that signs one person in, once, within fifteen minutes."""
    from loom_cli import run_file
    from loom_cli.operator import over_identity

    directory = options.directory(data_dir)
    url = run_file.running(directory).http_url

    async def made(channel: "grpc.aio.Channel") -> str:
        if (org, subject) == (ORG, OWNER):
            return await make_owner_link(channel, url)
        return await make_link(channel, url, org, subject)

    link = over_identity(directory, made)
    if as_json:
        print_json({"link": link, "subject": subject, "org": org})
        return
    OUT.print(link, markup=False)
