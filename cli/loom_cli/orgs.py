"""`loom org`: makes, lists and names organisations."""

from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli import options
from loom_cli.console import OUT, print_json

if TYPE_CHECKING:
    from loom.identity.v1 import access_pb2

app = typer.Typer(help="Makes, lists and names organisations.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the organisation.")]
_PAGE = 500


@app.command("create")
def create_org(
    name: Name,
    display_name: Annotated[str, typer.Option(help="What people call it. Default: its name.", show_default=False)] = "",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Makes an organisation. Making it again changes nothing."""
    from loom.identity.v1 import access_pb2 as pb  # here and below: `loom --help` need not wait for gRPC
    from loom_cli.operator import over_access

    request = pb.CreateOrgRequest(name=name, display_name=display_name)
    made = over_access(options.directory(data_dir), lambda access: access.CreateOrg(request))
    if as_json:
        print_json({**_row(made.org), "created": made.created})
        return
    OUT.print(f"{'made' if made.created else 'there is'} {_line(made.org)}", markup=False)


@app.command("list")
def list_orgs(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Lists the organisations that were made by name."""
    from loom_cli.operator import AccessStub, over_access

    async def all_orgs(access: "AccessStub") -> "list[access_pb2.Org]":
        from loom.identity.v1 import access_pb2 as pb

        found: list[pb.Org] = []
        request = pb.ListOrgsRequest(page_size=_PAGE)
        while True:
            page = await access.ListOrgs(request)
            found.extend(page.orgs)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    orgs = over_access(options.directory(data_dir), all_orgs)
    if as_json:
        print_json([_row(org) for org in orgs])
        return
    for org in orgs:
        OUT.print(_line(org), markup=False)


@app.command("update")
def update_org(
    name: Name,
    display_name: Annotated[str, typer.Option(help="What people call it.")],
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Changes what an organisation is called."""
    from loom.identity.v1 import access_pb2 as pb
    from loom_cli.operator import over_access

    request = pb.UpdateOrgRequest(org=name, display_name=display_name)
    done = over_access(options.directory(data_dir), lambda access: access.UpdateOrg(request))
    if as_json:
        print_json(_row(done.org))
        return
    OUT.print(_line(done.org), markup=False)


def _row(org: "access_pb2.Org") -> dict[str, object]:
    return {
        "name": org.name,
        "display_name": org.display_name,
        "created_at": org.created_at,
        "updated_at": org.updated_at,
    }


def _line(org: "access_pb2.Org") -> str:
    return org.name if org.display_name in ("", org.name) else f"{org.name} ({org.display_name})"
