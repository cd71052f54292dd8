"""`loom grant`: gives roles on namespaces, takes them away and lists them."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loom_cli import options
from loom_cli.console import OUT, print_json

if TYPE_CHECKING:
    from loom.identity.v1 import access_pb2

app = typer.Typer(help="Gives roles on namespaces, takes them away and lists them.", no_args_is_help=True)

Org = Annotated[str, typer.Option(help="Organisation of the grant.")]
Subject = Annotated[
    str, typer.Argument(help="Who: an e-mail address, sa:<name>, sa:<trust>:<agent>, or 'sa:<trust>:*' for all agents.")
]
Namespace = Annotated[str, typer.Argument(help="Namespace; '*' for every one that is not restricted.")]
_PAGE = 500


@app.command("set")
def set_grant(
    subject: Subject,
    namespace: Namespace,
    role: Annotated[
        Literal["viewer", "writer", "admin", "org_admin"], typer.Argument(help="Role; org_admin stands on '*' alone.")
    ],
    org: Org = "default",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Gives a subject a role in place of the one that it had.

    From then on no token of the subject says more than its grants. A smaller role ends the tokens that say more.
    """
    from loom.identity.v1 import access_pb2 as pb  # here and below: `loom --help` need not wait for gRPC
    from loom_cli.operator import over_access

    request = pb.SetGrantRequest(org=org, subject=subject, on_namespace=namespace, role=role)
    done = over_access(options.directory(data_dir), lambda access: access.SetGrant(request))
    if as_json:
        print_json({**_row(done.grant), "changed": done.changed, "ended_tokens": done.ended_tokens})
        return
    OUT.print(f"{_line(done.grant)}{_ended(done.ended_tokens)}", markup=False)


@app.command("remove")
def remove_grant(
    subject: Subject,
    namespace: Namespace,
    org: Org = "default",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Takes a subject's role away and ends the tokens that say more than what is left."""
    from loom.identity.v1 import access_pb2 as pb
    from loom_cli.operator import over_access

    request = pb.RemoveGrantRequest(org=org, subject=subject, on_namespace=namespace)
    done = over_access(options.directory(data_dir), lambda access: access.RemoveGrant(request))
    if as_json:
        print_json({"removed": done.removed, "ended_tokens": done.ended_tokens})
        return
    said = "removed" if done.removed else "there was no such grant"
    OUT.print(f"{said}{_ended(done.ended_tokens)}", markup=False)


@app.command("list")
def list_grants(
    org: Org = "default",
    subject: Annotated[str, typer.Option(help="Only this subject's.", show_default=False)] = "",
    namespace: Annotated[str, typer.Option(help="Only those on this namespace.", show_default=False)] = "",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Lists grants by subject and namespace."""
    from loom_cli.operator import AccessStub, over_access

    async def all_of(access: "AccessStub") -> "list[access_pb2.Grant]":
        from loom.identity.v1 import access_pb2 as pb

        found: list[pb.Grant] = []
        request = pb.ListGrantsRequest(org=org, subject=subject, on_namespace=namespace, page_size=_PAGE)
        while True:
            page = await access.ListGrants(request)
            found.extend(page.grants)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    grants = over_access(options.directory(data_dir), all_of)
    if as_json:
        print_json([_row(grant) for grant in grants])
        return
    for grant in grants:
        OUT.print(_line(grant), markup=False)


def _row(grant: "access_pb2.Grant") -> dict[str, object]:
    return {
        "subject": grant.subject,
        "namespace": grant.namespace,
        "role": grant.role,
        "updated_at": grant.updated_at,
        "updated_by": grant.updated_by,
    }


def _line(grant: "access_pb2.Grant") -> str:
    return f"{grant.subject} is {grant.role} on {grant.namespace}"


def _ended(count: int) -> str:
    return f"; ended {count} token{'' if count == 1 else 's'} that said more" if count else ""
