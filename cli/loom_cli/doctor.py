"""`loom doctor`: what an operator should look at, and what to do about it, whether Loom runs or not."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import typer

from loom_cli import options
from loom_cli.console import OUT, print_json
from loom_cli.doctor_findings import Finding, Level

_STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def doctor(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Examines settings, providers, the database, migrations, clocks, tokens and ports.

    Nothing is changed. Ends with 0 where there is no problem (warnings are none), else with 1.
    """
    findings = examine(data_dir)
    healthy = all(finding.level is not Level.PROBLEM for finding in findings)
    if as_json:
        print_json({"healthy": healthy, "findings": [finding.to_json() for finding in findings]})
    else:
        _print(findings)
    raise typer.Exit(0 if healthy else 1)


def examine(data_dir: Path | None) -> list[Finding]:
    """Returns what was found, in the order in which it is best mended."""
    # Imported here: `loom --help` need not wait for the services' settings.
    from loom_cli import doctor_database, doctor_machine, doctor_running, doctor_settings

    settings = doctor_settings.examine(data_dir)
    findings = list(settings.findings)
    if settings.directory is None:
        return findings
    running = doctor_running.target(settings.directory)
    findings += doctor_machine.examine(settings.directory, here=running.here)
    findings += doctor_running.examine(running)
    findings += doctor_database.examine(settings, running)
    return findings


def _print(findings: Iterable[Finding]) -> None:
    counts: dict[Level, int] = dict.fromkeys(Level, 0)
    for finding in findings:
        counts[finding.level] += 1
        OUT.print(f"{finding.level:<8}", style=_STYLES[finding.level], end="")
        OUT.print(f" {finding.area:<11} {finding.message}", markup=False)
        if finding.advice:
            OUT.print(f"{'':<8} {'':<11} {finding.advice}", markup=False, style="dim")
    words = ", ".join(f"{count} {_plural(level, count)}" for level, count in counts.items())
    OUT.print(words, markup=False)


def _plural(level: Level, count: int) -> str:
    return level.value if level is Level.OK or count == 1 else f"{level.value}s"
