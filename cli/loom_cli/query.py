"""`loom query`: SQL over what the running Loom holds of the caller's."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli import options
from loom_cli.console import OUT, CommandError, print_json

if TYPE_CHECKING:
    from loom_client import Loom

_WIDEST = 60


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT; `-` reads it from standard input.")] = "",
    namespaces: Annotated[
        list[str] | None, typer.Option("--namespace", help="Namespace to read; may be given more than once.")
    ] = None,
    tables: Annotated[bool, typer.Option("--tables", help="Show the tables and columns instead.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    arrow: Annotated[Path | None, typer.Option(help="Write an Arrow stream to this file.")] = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Runs one SELECT over memories, versions, conflicts, documents and the ledger: keys, times, counts, costs."""
    from loom_cli.client import client  # here: `loom --help` need not wait for it

    with client(options.directory(data_dir)) as loom:
        if tables:
            _print_tables(loom, as_json=as_json)
            return
        text = sys.stdin.read() if sql == "-" else sql
        if not text.strip():
            raise CommandError("there is no statement; pass a SELECT, `-` to read standard input, or --tables")
        first, others = (namespaces[0], namespaces[1:]) if namespaces else (None, [])
        form = "arrow" if arrow else "csv" if csv else "rows"
        answer = loom.insights.query(text, namespace=first, namespaces=others or None, format=form)
    if arrow:
        arrow.write_bytes(answer.arrow)
        OUT.print(f"{answer.row_count} rows written to {arrow}", markup=False)
    elif csv:
        sys.stdout.write(answer.csv)
    elif as_json:
        print_json(answer.to_json())
    else:
        _print_rows([column.name for column in answer.columns], answer.rows)


def _print_rows(names: list[str], rows: tuple[list[object], ...]) -> None:
    cells = [names, *([_cell(value) for value in row] for row in rows)]
    widths = [min(_WIDEST, max(len(line[place]) for line in cells)) for place in range(len(names))]
    for number, line in enumerate(cells):
        shown = "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        OUT.print(shown, markup=False, style="bold" if number == 0 else None, soft_wrap=True)
    OUT.print(f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}", style="dim")


def _cell(value: object) -> str:
    return "–" if value is None else str(value)


def _print_tables(loom: "Loom", *, as_json: bool) -> None:
    catalog = loom.insights.catalog()
    if as_json:
        print_json(catalog.to_json())
        return
    for table in catalog.tables:
        OUT.print(table.name, style="bold", end="")
        OUT.print(f"  {table.comment}", markup=False)
        for column in table.columns:
            OUT.print(f"  {column.name:<26} {column.type:<24} {column.comment}", markup=False, soft_wrap=True)
