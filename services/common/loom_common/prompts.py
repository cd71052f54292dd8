"""Prompts are code: constants with a name and a version, reviewed, tested and rolled back with what parses the answers.

Each service keeps its families in `<package>.domain.prompts`, one module per family, as a tuple named `PROMPTS`. Their
versions and digests stand in `prompts.lock.json` beside this module, so that a text cannot change under its version:
a test holds the two against each other. Nothing fetches a prompt at run time.
"""

import functools
import hashlib
import importlib
import importlib.util
import json
import pkgutil
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Final

from loom_common.telemetry.genai import PromptRef

LOCK: Final = "prompts.lock.json"

_MODULES: Final = "domain.prompts"
_CONSTANT: Final = "PROMPTS"
_WORD: Final = re.compile(r"[a-z][a-z0-9_]*")


class PromptsError(Exception):
    """Prompts are registered wrongly, or a text changed under its version; lists every finding."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt."""

    family: str
    """What it is for, such as `extraction`; lower case with underscores, as `name`."""
    name: str
    """Its name in the family."""
    version: str
    """Changes with the text, and with nothing else."""
    text: str
    """The constant text, before anything is put into it."""

    def __post_init__(self) -> None:
        if not (_WORD.fullmatch(self.family) and _WORD.fullmatch(self.name) and self.version and self.text):
            raise ValueError(f"not a prompt: {self.family!r} {self.name!r} {self.version!r}")

    @property
    def id(self) -> str:
        """Family and name: what it is called in traces, in the lock and in Langfuse."""
        return prompt_id(self.family, self.name)

    @property
    def hash(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def ref(self) -> PromptRef:
        """What a span tells of it."""
        return PromptRef(self.id, self.version, self.hash)


@dataclass(frozen=True, slots=True)
class Locked:
    """What the lock holds of one prompt."""

    version: str
    hash: str
    published: int | None = None
    """Version that Langfuse gave to this text; None where it was never published."""


Lock = Mapping[str, Locked]
"""The lock, by the prompts' identifiers."""


def prompt_id(family: str, name: str) -> str:
    """Returns what a prompt is called in traces, in the lock and in Langfuse."""
    return f"{family}.{name}"


def reference(family: str, name: str, version: str) -> PromptRef:
    """Returns what a span tells of a prompt that a caller named; its digest where the lock knows the version."""
    called = prompt_id(family, name) if family and name else family or name
    held = _shipped().get(called)
    return PromptRef(called, version, held.hash if held is not None and held.version == version else "")


def registered(packages: Iterable[str]) -> dict[str, Prompt]:
    """Returns every prompt of the packages by its identifier, in alphabetical order.

    Raises:
        PromptsError: A family's module has no prompts, or two prompts share an identifier.
    """
    found: dict[str, Prompt] = {}
    problems: list[str] = []
    for module in (name for package in packages for name in _family_modules(package)):
        prompts = getattr(importlib.import_module(module), _CONSTANT, ())
        if not prompts:
            problems.append(f"{module} has no {_CONSTANT}")
        for prompt in prompts:
            if prompt.id in found:
                problems.append(f"{prompt.id} is registered twice")
            found[prompt.id] = prompt
    if problems:
        raise PromptsError("\n".join(problems))
    return dict(sorted(found.items()))


def relocked(prompts: Mapping[str, Prompt], lock: Lock) -> dict[str, Locked]:
    """Returns the lock as it should be: what is unchanged keeps its line, what is new or has a new version gets one.

    Raises:
        PromptsError: A text changed and its version did not, or the other way round.
    """
    problems = []
    for name, prompt in prompts.items():
        held = lock.get(name)
        if held is None:
            continue
        if held.version == prompt.version and held.hash != prompt.hash:
            problems.append(f"the text of {name} changed under version {prompt.version}: give it a new one")
        if held.version != prompt.version and held.hash == prompt.hash:
            problems.append(f"{name} has the new version {prompt.version} and its old text: keep {held.version}")
    if problems:
        raise PromptsError("\n".join(problems))
    return {
        name: held
        if (held := lock.get(name)) is not None and held.hash == prompt.hash
        else Locked(prompt.version, prompt.hash)
        for name, prompt in prompts.items()
    }


def read_lock(text: str) -> dict[str, Locked]:
    """Returns the lock that a file's text holds."""
    return {name: Locked(**held) for name, held in json.loads(text).items()}


def lock_text(lock: Lock) -> str:
    """Returns the text of the lock's file."""
    return json.dumps({name: asdict(held) for name, held in sorted(lock.items())}, indent=2) + "\n"


def _family_modules(package: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(f"{package}.{_MODULES}")
    except ModuleNotFoundError:
        return []
    if spec is None or spec.submodule_search_locations is None:
        return []
    return sorted(
        f"{spec.name}.{module.name}" for module in pkgutil.iter_modules(list(spec.submodule_search_locations))
    )


@functools.cache
def _shipped() -> Lock:
    return read_lock(files("loom_common").joinpath(LOCK).read_text("utf-8"))
