"""`loom token`: the operator's tokens, made with the key that lies in the data directory."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loom_cli import options
from loom_cli.console import ERR, OUT, CommandError, print_json

if TYPE_CHECKING:
    from loom.identity.v1 import identity_pb2
    from loom_cli.operator import IdentityStub

app = typer.Typer(help="Makes, lists and ends tokens.", no_args_is_help=True)

Org = Annotated[str, typer.Option(help="Organisation of the token.")]
_DAY_S = 86_400
# The most that identity gives at once.
_PAGE = 500


@app.command("create")
def create_token(
    role: Annotated[Literal["viewer", "writer", "admin"], typer.Option(help="Role on each namespace.")] = "writer",
    namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace; may be given more than once; `*` is every one.")
    ] = None,
    org: Org = "default",
    subject: Annotated[str, typer.Option(help="Who will hold it, such as sa:ci-bot.")] = "sa:operator",
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    days: Annotated[float, typer.Option(min=0.0001, max=365, help="How long it lives.")] = 30,
    org_admin: Annotated[bool, typer.Option(help="Let it administer the organisation.")] = False,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Makes a token and prints it once."""
    from loom.identity.v1 import identity_pb2 as pb  # here and below: `loom --help` need not wait for gRPC
    from loom_cli.operator import as_operator

    request = pb.CreateTokenRequest(
        org=org,
        namespaces=[pb.NamespaceRole(namespace=name, role=role) for name in namespace or ["default"]],
        subject=subject,
        label=label,
        ttl_s=max(1, round(days * _DAY_S)),
        org_admin=org_admin,
    )
    made = as_operator(options.directory(data_dir), lambda identity: identity.CreateToken(request))
    if as_json:
        print_json({"token": made.token, "token_id": made.token_id, "expires_at": made.expires_at})
        return
    ERR.print(f"token {made.token_id}, good until {made.expires_at}; it is not shown again:", style="dim")
    OUT.print(made.token, markup=False)


@app.command("list")
def list_tokens(
    org: Org = "default",
    ended: Annotated[bool, typer.Option("--ended", help="Show ended and revoked ones too.")] = False,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Lists tokens, newest first."""
    from loom_cli.operator import as_operator

    tokens = as_operator(options.directory(data_dir), lambda identity: all_tokens(identity, org, ended=ended))
    if as_json:
        print_json([_row(token) for token in tokens])
        return
    for token in tokens:
        row = _row(token)
        revoked = f", revoked {row['revoked_at']}" if token.revoked_at else ""
        label = f" ({token.label})" if token.label else ""
        OUT.print(
            f"{row['token_id']}  {row['subject']}{label}  {row['namespaces']}  until {row['expires_at']}{revoked}",
            markup=False,
        )


@app.command("revoke")
def revoke_token(
    token_id: Annotated[
        str, typer.Argument(help="Identifier of the token, as `loom token list` shows it.", show_default=False)
    ] = "",
    subject: Annotated[str, typer.Option(help="End every token of this subject instead.", show_default=False)] = "",
    session: Annotated[str, typer.Option(help="End this sign-in session instead.", show_default=False)] = "",
    org: Org = "default",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Ends a token, a subject's tokens or a sign-in session, and all that was made from what ends."""
    from loom.identity.v1 import identity_pb2 as pb
    from loom_cli.operator import as_operator

    if sum(map(bool, (token_id, subject, session))) != 1:
        raise CommandError("name a token, or --subject, or --session: exactly one of them")
    request = pb.RevokeTokenRequest(org=org, token_id=token_id, subject=subject, session=session)
    done = as_operator(options.directory(data_dir), lambda identity: identity.RevokeToken(request))
    if as_json:
        print_json({"token_id": token_id, "subject": subject, "session": session, "revoked_at": done.revoked_at})
        return
    OUT.print(f"revoked {token_id or subject or session} at {done.revoked_at}", markup=False)


async def all_tokens(identity: "IdentityStub", org: str, *, ended: bool) -> "list[identity_pb2.TokenInfo]":
    """Returns every token of an organisation, newest first, whatever the number of pages.

    Args:
        identity: Identity's stub.
        org: Organisation to read.
        ended: Whether expired and revoked ones are among them.
    """
    from loom.identity.v1 import identity_pb2 as pb

    found: list[pb.TokenInfo] = []
    request = pb.ListTokensRequest(org=org, include_ended=ended, page_size=_PAGE)
    while True:
        page = await identity.ListTokens(request)
        found.extend(page.tokens)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def _row(token: "identity_pb2.TokenInfo") -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "subject": token.subject,
        "label": token.label,
        "namespaces": ", ".join(f"{grant.namespace}:{grant.role}" for grant in token.namespaces),
        "org_admin": token.org_admin,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }
