"""Publishes the prompts to Langfuse, and keeps the lock that holds a text to its version.

Without an option it says what it would publish and sends nothing. `--lock` writes the lock alone, which is what a
changed prompt needs before its tests pass; `--write` publishes what changed and notes Langfuse's versions in the lock.
Both refuse a text that changed under its version. Needs LOOM_LANGFUSE_URL and LOOM_LANGFUSE_ADMIN_TOKEN to publish.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import httpx

from loom_common.prompts import Locked, Prompt, PromptsError, lock_text, read_lock, registered, relocked
from loom_common.settings import LangfuseSettings, SettingsError

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "services" / "common" / "loom_common" / "prompts.lock.json"
PACKAGES = ("loom_common", "loom_llm", "loom_memory", "loom_insights", "loom_assistant", "loom_gateway")
PROMPTS_PATH = "/api/public/v2/prompts"
TIMEOUT_S = 30.0


class PublishError(Exception):
    """Langfuse did not take a prompt."""


def publish(client: httpx.Client, prompt: Prompt) -> int:
    """Makes a new version of one prompt, and returns the number that Langfuse gave it.

    Raises:
        PublishError: Langfuse did not take it.
    """
    body = {
        "type": "text",
        "name": prompt.id,
        "prompt": prompt.text,
        "labels": ["production"],
        "tags": [prompt.family],
        "config": {"loom_version": prompt.version, "sha256": prompt.hash},
        "commitMessage": f"{prompt.id} {prompt.version}",
    }
    try:
        answer = client.post(PROMPTS_PATH, json=body)
        answer.raise_for_status()
        version = answer.json()["version"]
    except httpx.HTTPStatusError as error:
        raise PublishError(f"{prompt.id}: Langfuse answered HTTP {error.response.status_code}") from None
    except httpx.HTTPError as error:
        raise PublishError(f"{prompt.id}: Langfuse could not be reached ({type(error).__name__})") from None
    except (ValueError, KeyError, TypeError):
        raise PublishError(f"{prompt.id}: Langfuse's answer names no version") from None
    if not isinstance(version, int):
        raise PublishError(f"{prompt.id}: Langfuse's answer names no version")
    return version


def langfuse(settings: LangfuseSettings) -> httpx.Client:
    """Returns a client of the Langfuse that the settings name.

    Raises:
        PublishError: They name none.
    """
    token = settings.admin_token.get_secret_value()
    if not settings.url or not token:
        raise PublishError("set LOOM_LANGFUSE_URL and LOOM_LANGFUSE_ADMIN_TOKEN to publish")
    public, colon, secret = token.partition(":")
    auth = httpx.BasicAuth(public, secret) if colon else None
    headers = {} if colon else {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=settings.url.rstrip("/"), auth=auth, headers=headers, timeout=TIMEOUT_S)


def push(prompts: dict[str, Prompt], lock_path: Path, client: httpx.Client) -> list[str]:
    """Publishes what Langfuse has not got; the lock is written after each, so that a failure forgets nothing.

    Returns:
        One line for each prompt that was published.
    """
    lock = relocked(prompts, _read(lock_path))
    lines = []
    for name in _unpublished(lock):
        version = publish(client, prompts[name])
        lock[name] = replace(lock[name], published=version)
        lock_path.write_text(lock_text(lock), "utf-8")
        lines.append(f"published {name} {prompts[name].version} as Langfuse's version {version}")
    lock_path.write_text(lock_text(lock), "utf-8")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Runs it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="publish, and write the lock")
    parser.add_argument("--lock", action="store_true", help="write the lock, publish nothing")
    options = parser.parse_args(arguments)
    try:
        prompts = registered(PACKAGES)
        lock = relocked(prompts, _read(LOCK))
        if options.write:
            with langfuse(LangfuseSettings.load()) as client:
                lines = push(prompts, LOCK, client)
            print("\n".join(lines) or "nothing to publish")
            return 0
        if options.lock:
            LOCK.write_text(lock_text(lock), "utf-8")
    except (PromptsError, PublishError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 1
    for name in _unpublished(lock):
        print(
            f"would publish {name} {lock[name].version} ({lock[name].hash[:12]}, {len(prompts[name].text)} characters)"
        )
    if not options.lock and lock != _read(LOCK):
        print("the lock is not up to date: run scripts/push_prompts.py --lock")
    return 0


def _read(path: Path) -> dict[str, Locked]:
    return read_lock(path.read_text("utf-8")) if path.exists() else {}


def _unpublished(lock: dict[str, Locked]) -> list[str]:
    return [name for name, held in lock.items() if held.published is None]


if __name__ == "__main__":
    sys.exit(main())
