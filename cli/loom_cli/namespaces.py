"""`loom namespace`: makes, lists and changes namespaces."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loom_cli import options
from loom_cli.console import OUT, CommandError, print_json

if TYPE_CHECKING:
    from loom.identity.v1 import identity_pb2

app = typer.Typer(help="Makes, lists and changes namespaces.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the namespace.")]
Org = Annotated[str, typer.Option(help="Organisation of the namespace.")]
Policy = Annotated[
    str | None,
    typer.Option(
        "--write-policy",
        help='What may be written to it, as JSON such as \'{"secrets": "redact", "blocked_words": ["falcon"]}\', or '
        "@FILE that holds it. Parts that it leaves out are their defaults, so {} takes it away.",
        show_default=False,
    ),
]
_PAGE = 500


@app.command("create")
def create_namespace(
    name: Name,
    org: Org = "default",
    kind: Annotated[Literal["memory", "code", "tracker"], typer.Option(help="What it holds.")] = "memory",
    owner: Annotated[str, typer.Option(help="Who owns it, such as ana@example.org.", show_default=False)] = "",
    shared: Annotated[bool, typer.Option("--shared", help="Others than its owner write to it.")] = False,
    restricted: Annotated[
        bool, typer.Option("--restricted", help="Only tokens that name it may use it; `*` does not reach it.")
    ] = False,
    classification: Annotated[str, typer.Option(help="How sensitive it is, in a word.", show_default=False)] = "",
    daily_cost_cap: Annotated[
        float | None, typer.Option(min=0, help="Most that its calls to models may cost in a day, in US dollars.")
    ] = None,
    write_policy: Policy = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Makes a namespace. Making it again changes nothing."""
    from loom.identity.v1 import identity_pb2 as pb  # here and below: `loom --help` need not wait for gRPC
    from loom_cli.operator import as_operator

    request = pb.CreateNamespaceRequest(
        org=org,
        name=name,
        kind=kind,
        owner=owner,
        shared=shared,
        restricted=restricted,
        classification=classification,
        daily_cost_cap_usd=daily_cost_cap,
        write_policy=_policy(write_policy),
    )
    made = as_operator(options.directory(data_dir), lambda identity: identity.CreateNamespace(request))
    if as_json:
        print_json({**_row(made.namespace), "created": made.created})
        return
    OUT.print(f"{'made' if made.created else 'there is'} {_line(made.namespace)}", markup=False)


@app.command("list")
def list_namespaces(org: Org = "default", data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Lists namespaces by name."""
    from loom_cli.operator import IdentityStub, as_operator

    async def all_of(identity: "IdentityStub") -> "list[identity_pb2.NamespaceInfo]":
        from loom.identity.v1 import identity_pb2 as pb

        found: list[pb.NamespaceInfo] = []
        request = pb.ListNamespacesRequest(org=org, page_size=_PAGE)
        while True:
            page = await identity.ListNamespaces(request)
            found.extend(page.namespaces)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    spaces = as_operator(options.directory(data_dir), all_of)
    if as_json:
        print_json([_row(space) for space in spaces])
        return
    for space in spaces:
        OUT.print(_line(space), markup=False)


@app.command("update")
def update_namespace(
    name: Name,
    org: Org = "default",
    owner: Annotated[str | None, typer.Option(help="Who owns it; empty for nobody.")] = None,
    restricted: Annotated[
        bool | None, typer.Option("--restricted/--open", help="Whether only tokens that name it may use it.")
    ] = None,
    shared: Annotated[
        bool | None, typer.Option("--shared/--personal", help="Whether others than its owner write to it.")
    ] = None,
    classification: Annotated[str | None, typer.Option(help="How sensitive it is; empty for nothing said.")] = None,
    traffic_class: Annotated[str | None, typer.Option(help="Class of its calls to models; empty for none.")] = None,
    rerank_endpoint: Annotated[str | None, typer.Option(help="Endpoint that reranks its hits; empty for none.")] = None,
    classifier_endpoint: Annotated[
        str | None, typer.Option(help="Endpoint that labels what is written to it; empty for none.")
    ] = None,
    llm_cache: Annotated[
        Literal["on", "off", "default"] | None, typer.Option(help="Whether models' answers over it may be kept.")
    ] = None,
    daily_cost_cap: Annotated[
        float | None, typer.Option(min=0, help="Most that its calls to models may cost in a day, in US dollars.")
    ] = None,
    clear_cap: Annotated[bool, typer.Option("--clear-cap", help="Let the deployment's cap hold.")] = False,
    write_policy: Policy = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Changes a namespace; what is not named stays."""
    from loom.identity.v1 import identity_pb2 as pb
    from loom_cli.operator import as_operator

    if clear_cap and daily_cost_cap is not None:
        raise CommandError("--clear-cap takes the cap away and --daily-cost-cap sets it; name one of them")
    request = pb.UpdateNamespaceRequest(
        org=org,
        name=name,
        owner=owner,
        restricted=restricted,
        shared=shared,
        classification=classification,
        traffic_class=traffic_class,
        rerank_endpoint=rerank_endpoint,
        classifier_endpoint=classifier_endpoint,
        llm_cache=llm_cache,
        daily_cost_cap_usd=daily_cost_cap,
        clear_daily_cost_cap=clear_cap,
        write_policy=_policy(write_policy),
    )
    done = as_operator(options.directory(data_dir), lambda identity: identity.UpdateNamespace(request))
    if as_json:
        print_json({**_row(done.namespace), "changed": done.changed})
        return
    OUT.print(f"{'changed' if done.changed else 'nothing to change:'} {_line(done.namespace)}", markup=False)


def _policy(text: str | None) -> "identity_pb2.WritePolicy | None":
    """Returns the policy of the option's text; None where it was not given."""
    from google.protobuf import json_format

    from loom.identity.v1 import identity_pb2 as pb

    if text is None:
        return None
    try:
        told = Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
        return json_format.Parse(told, pb.WritePolicy())
    except (OSError, UnicodeError) as error:
        raise CommandError(f"--write-policy: {text[1:]} cannot be read") from error
    except json_format.ParseError as error:
        raise CommandError(f"--write-policy is no policy: {error}") from None


def _policy_row(space: "identity_pb2.NamespaceInfo") -> dict[str, object] | None:
    from google.protobuf import json_format

    if not space.HasField("write_policy"):
        return None
    return json_format.MessageToDict(space.write_policy, preserving_proto_field_name=True)


def _row(space: "identity_pb2.NamespaceInfo") -> dict[str, object]:
    return {
        "org": space.org,
        "name": space.name,
        "kind": space.kind,
        "owner": space.owner,
        "shared": space.shared,
        "restricted": space.restricted,
        "classification": space.classification,
        "traffic_class": space.traffic_class,
        "rerank_endpoint": space.rerank_endpoint,
        "classifier_endpoint": space.classifier_endpoint,
        "llm_cache": space.llm_cache if space.HasField("llm_cache") else None,
        "daily_cost_cap_usd": space.daily_cost_cap_usd if space.HasField("daily_cost_cap_usd") else None,
        "write_policy": _policy_row(space),
        "created_at": space.created_at,
        "updated_at": space.updated_at,
    }


def _line(space: "identity_pb2.NamespaceInfo") -> str:
    said = [space.kind, "restricted" if space.restricted else "", f"of {space.owner}" if space.owner else ""]
    return f"{space.name} ({', '.join(word for word in said if word)})"
