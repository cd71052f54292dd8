"""`loom knowledge`: files, folders and URLs into the running Loom's documents."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from loom_cli import options
from loom_cli.console import ERR, OUT, CommandError, print_json

if TYPE_CHECKING:
    from loom.memory.v1 import knowledge_pb2 as pb
    from loom_cli.run_file import RunFile
    from loom_client import Loom

app = typer.Typer(help="Documents of the running Loom.", no_args_is_help=True)

# A body over HTTP has at most 4 MiB, and base64 makes four bytes of three.
_HTTP_BYTES: Final = 2_900_000
_PIECE_BYTES: Final = 1024 * 1024
_REFUSED: Final = "refused"
# Errors of a call that are of the document that it holds.
_OF_ONE: Final = frozenset({"PAYLOAD_TOO_LARGE", "INVALID_ARGUMENT", "MALFORMED_REQUEST"})
# What a folder is searched for; a file that is named itself is sent whatever its name.
_ENDINGS: Final = frozenset(
    {
        "md", "markdown", "mdx", "html", "htm", "xhtml", "txt", "text", "rst", "pdf", "docx", "py", "js", "ts",
        "tsx", "jsx", "go", "rs", "java", "kt", "c", "h", "cc", "cpp", "hpp", "cs", "rb", "php", "swift", "scala", "sh",
        "sql", "proto",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to send: a file, or a URL; and the name that it is stored under."""

    source_uri: str
    path: Path | None = None


@dataclass(slots=True)
class Outcome:
    """What became of each."""

    results: list[dict[str, Any]] = field(default_factory=list)

    def note(self, result: dict[str, Any]) -> None:
        """Takes the result of one."""
        self.results.append(result)

    @property
    def exit_code(self) -> int:
        """0 when every one is stored now, else 1."""
        return int(any(result["status"] == _REFUSED for result in self.results))


@app.command("ingest")
def ingest(
    paths: Annotated[list[str], typer.Argument(metavar="PATH|URL...", help="Files, folders and URLs to store.")],
    tag: Annotated[list[str] | None, typer.Option(help="Label of each; may be given more than once.")] = None,
    prefix: Annotated[str, typer.Option(help="Put before the name of each file, such as docs/.")] = "",
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Stores documents: Markdown, HTML, plain text, code, PDF and DOCX. Storing one again makes its next version.

    A file is stored under its path as it is given, a URL under itself. Of a folder every file of a known kind is taken,
    hidden ones and links out of the folder left out. Ends with 0 when every document is stored now, and with 1 when
    one was refused.
    """
    items = list(_items(paths, prefix))
    if not items:
        raise CommandError("there is no document of a known kind in what was named")
    outcome = Outcome()
    try:
        _send_all(options.directory(data_dir), items, tag or [], namespace, outcome, is_quiet=as_json)
    finally:
        # Also before an error ends the command: what was stored is stored.
        _print(outcome, as_json=as_json)
    raise typer.Exit(outcome.exit_code)


def _items(paths: Sequence[str], prefix: str) -> Iterator[Item]:
    for given in paths:
        if given.startswith(("http://", "https://")):
            yield Item(given)
            continue
        path = Path(given)
        if path.is_dir():
            yield from (Item(f"{prefix}{found.as_posix()}", found) for found in _inside(path))
        elif path.is_file():
            yield Item(f"{prefix}{path.as_posix()}", path)
        else:
            raise CommandError(f"{given!r} is no file, no folder and no URL")


def _inside(folder: Path) -> Iterator[Path]:
    # A link in a folder of somebody else's may lead to what is nobody's to read; one that is named itself is meant.
    whole = folder.resolve()
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if is_hidden or path.suffix[1:].lower() not in _ENDINGS or not path.is_file():
            continue
        if path.resolve().is_relative_to(whole):
            yield path


def _send_all(
    data_dir: Path,
    items: Sequence[Item],
    tags: Sequence[str],
    namespace: str | None,
    outcome: Outcome,
    *,
    is_quiet: bool,
) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # here: `loom --help` need not wait

    from loom_cli.client import client

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    run = _own_loom(data_dir)
    with client(data_dir) as loom, Progress(*columns, console=ERR, transient=True, disable=is_quiet) as shown:
        whole = shown.add_task("documents", total=len(items))
        for item in items:
            part = shown.add_task(_short(item.source_uri), total=None)

            def progress(done: int, total: int, part: Any = part) -> None:
                shown.update(part, completed=done, total=total or None)

            result = _send(loom, run, item, tags, namespace, progress)
            outcome.note(result)
            shown.remove_task(part)
            shown.advance(whole)
            if not is_quiet:
                shown.console.print(_line(result), markup=False)


def _own_loom(data_dir: Path) -> "RunFile | None":
    """Returns the Loom on this machine where the command calls that one, whose memory service takes longer files."""
    from loom_cli import run_file
    from loom_cli.settings import ClientSettings

    settings = ClientSettings.load()
    if settings.base_url or settings.api_key.get_secret_value():
        return None
    return run_file.read(data_dir)


def _send(
    loom: "Loom",
    run: "RunFile | None",
    item: Item,
    tags: Sequence[str],
    namespace: str | None,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    from loom_client import LoomError

    try:
        item.source_uri.encode()
        if item.path is None:
            given: dict[str, Any] = {"url": item.source_uri, "tags": list(tags)}
        elif item.path.stat().st_size > _HTTP_BYTES:
            if run is None:
                return _refused(item, f"has more than {_HTTP_BYTES:,} bytes, which only the Loom of this machine takes")
            return asyncio.run(_upload(run, item, tags, namespace, progress))
        else:
            given = {"source_uri": item.source_uri, "content": item.path.read_bytes(), "tags": list(tags)}
            if not given["content"]:
                return _refused(item, "is empty")
        return loom.knowledge.ingest([given], namespace=namespace).results[0].to_json()
    except UnicodeEncodeError:
        return _refused(item, "has a name that is no text")
    except OSError as error:
        return _refused(item, f"cannot be read ({error.strerror})")
    except LoomError as error:
        if error.reason in _OF_ONE:
            return {**_refused(item, ""), "reason": error.reason, "message": error.message}
        # What holds for one document holds for the others: a missing right, a Loom that is away.
        raise CommandError(error.message or str(error)) from error


async def _upload(
    run: "RunFile", item: Item, tags: Sequence[str], namespace: str | None, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Sends a long file in pieces, straight to the memory service."""
    import grpc.aio

    from loom.memory.v1 import knowledge_pb2_grpc

    result: pb.IngestResult | None = None
    try:
        async with grpc.aio.insecure_channel(run.grpc["memory"]) as channel:
            stub = knowledge_pb2_grpc.KnowledgeServiceStub(channel)
            metadata = (("authorization", f"Bearer {run.token}"),)
            async for told in stub.UploadDocuments(_pieces(item, tags, namespace), metadata=metadata):
                progress(told.done_count, told.total_count)
                if told.HasField("result"):
                    result = told.result
    except grpc.aio.AioRpcError as error:
        raise CommandError(error.details() or "the memory service did not answer") from error
    if result is None:
        return _refused(item, "was not answered")
    names = (
        "source_uri",
        "status",
        "version",
        "reason",
        "message",
        "title",
        "kind",
        "section_count",
        "embedding_pending",
    )
    return {name: getattr(result, name) for name in names}


async def _pieces(item: Item, tags: Sequence[str], namespace: str | None) -> "AsyncIterator[pb.UploadDocumentsRequest]":
    from loom.memory.v1 import knowledge_pb2

    assert item.path is not None, "a URL is not sent in pieces"
    document = knowledge_pb2.DocumentInput(source_uri=item.source_uri, tags=tags)
    yield knowledge_pb2.UploadDocumentsRequest(namespace=namespace, document=document)
    with item.path.open("rb") as file:
        piece = file.read(_PIECE_BYTES)
        while piece:
            after = file.read(_PIECE_BYTES)
            yield knowledge_pb2.UploadDocumentsRequest(piece=piece, last=not after)
            piece = after


def _refused(item: Item, why: str) -> dict[str, Any]:
    return {"source_uri": item.source_uri, "status": _REFUSED, "reason": "INVALID_ARGUMENT", "message": f"It {why}."}


def _line(result: dict[str, Any]) -> str:
    from loom_common.redaction import escape  # here: `loom --help` need not wait for it

    told = f"{result['status']:<10}{result.get('source_uri', '')}"
    if result["status"] == _REFUSED:
        told += f": {result.get('message', '')}"
    elif result["status"] == "stored":
        told += f" (version {result.get('version')}, {result.get('section_count', 0)} sections)"
    # A name may hold what would steer a terminal.
    return escape(told)


def _print(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json(outcome.results)
        return
    counts = [
        sum(result["status"] == status for result in outcome.results) for status in ("stored", "unchanged", _REFUSED)
    ]
    OUT.print("{} stored, {} unchanged, {} refused".format(*counts), markup=False)


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"...{name[-37:]}"
