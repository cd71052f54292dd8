"""`loom memory`: a quick try of the running Loom from the shell."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli import options
from loom_cli.console import OUT, CommandError, print_json

if TYPE_CHECKING:
    from loom_client import Loom, Memory

app = typer.Typer(help="Stores and finds memories on the running Loom.", no_args_is_help=True)

_SHOWN_CHARACTERS = 200


@app.command("set")
def set_memory(
    value: Annotated[str, typer.Argument(help="Text to store; `-` reads it from standard input.")],
    key: Annotated[str | None, typer.Option(help="Key of the memory. Default: one is made.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Label; may be given more than once.")] = None,
    kind: Annotated[str | None, typer.Option(help="What it is, such as fact, decision or preference.")] = None,
    user: options.User = None,
    session: options.Session = None,
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Stores one memory."""
    text = sys.stdin.read() if value == "-" else value
    if not text.strip():
        raise CommandError("there is no text to store; pass it as the argument, or `-` to read standard input")
    with _client(data_dir) as loom:
        done = loom.memory.set(
            text, key=key, tags=tag, kind=kind, user_id=user, session_id=session, namespace=namespace
        )
    if as_json:
        print_json({"key": done.key, "version": done.version, "stored": done.stored, "reason": done.reason})
    elif done.stored:
        OUT.print(f"stored {done.key} (version {done.version})", markup=False)
    else:
        OUT.print(f"nothing stored: {done.key} holds this already ({done.reason})", markup=False)


@app.command("get")
def get_memory(
    key: Annotated[str, typer.Argument(help="Key of the memory.")],
    user: options.User = None,
    session: options.Session = None,
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Shows one memory."""
    with _client(data_dir) as loom:
        answer = loom.memory.get(key, user_id=user, session_id=session, namespace=namespace)
    if not answer.found or answer.memory is None:
        raise CommandError(f"no memory has the key {key!r} here; `loom memory list` shows those there are")
    if as_json:
        print_json(answer.memory.to_json())
    else:
        OUT.print(answer.memory.value, markup=False)


@app.command("list")
def list_memories(
    limit: Annotated[int, typer.Option(min=1, max=500, help="Most memories to show.")] = 20,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Lists memories, newest first."""
    with _client(data_dir) as loom:
        page = loom.memory.list(page_size=limit, user_id=user, namespace=namespace)
    if as_json:
        print_json([memory.to_json() for memory in page.memories])
        return
    for memory in page.memories:
        _print_line(memory)
    if page.next_page_token:
        OUT.print(f"... and more; raise --limit above {limit}", style="dim")


@app.command("search")
def search_memories(
    query: Annotated[str, typer.Argument(help="What to find, in any words.")],
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most hits to show.")] = 5,
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Finds memories by words and meaning."""
    with _client(data_dir) as loom:
        found = loom.memory.search(query, top_k=limit, namespace=namespace)
    if as_json:
        print_json(found.to_json())
        return
    for hit in found.hits:
        if hit.memory is not None:
            _print_line(hit.memory, f"{hit.score:.2f}{' low' if hit.low else ''}  ")
    if not found.hits:
        OUT.print(f"nothing found ({found.abstain_code})", style="dim")


def _client(data_dir: Path | None) -> "Loom":
    from loom_cli.client import client  # here: `loom --help` need not wait for it

    return client(options.directory(data_dir))


def _print_line(memory: "Memory", lead: str = "") -> None:
    text = " ".join(memory.value.split())
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    OUT.print(f"{lead}{memory.key}  {shown}", markup=False)
