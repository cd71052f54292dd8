"""The page of the manual that lists every setting."""

from collections.abc import Iterable
from enum import Enum
from inspect import getdoc

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from loom_common.settings.allowed import allowed_text
from loom_common.settings.base import EMPTY_KEY, LoomSettings

_HEAD = """# Configuration

Generated from the settings classes; do not edit.

Every setting is an environment variable. A value that is not allowed stops the start with one line that names the
variable, and so does a `LOOM_*` name that nothing reads. An empty value counts as unset unless the table says what it
means.
"""


def configuration_markdown(classes: Iterable[type[LoomSettings]]) -> str:
    """Returns the manual's page of settings: a section per class, each variable where it is declared first."""
    shown: set[str] = set()
    parts = [_HEAD]
    for cls in classes:
        fresh = {name: field for name, field in cls.variables().items() if name not in shown}
        shown |= set(fresh)
        if fresh:
            parts.append(_section(cls, fresh))
    return "\n".join(parts)


def _section(cls: type[LoomSettings], fields: dict[str, FieldInfo]) -> str:
    lines = [
        f"## `{cls.__module__.partition('.')[0]}`: {cls.__name__}",
        "",
        (getdoc(cls) or "").partition("\n")[0],
        "",
        "| variable | default | allowed | what it does |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{name}` | {_default(field)} | {_cell(allowed_text(field))} | {_cell(_text(field))} |"
            for name, field in fields.items()
        ),
        "",
    ]
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    if "shown_default" in extra:
        return f"`{extra['shown_default']}`"
    if field.is_required():
        return "must be set"
    value = field.get_default(call_default_factory=False)
    if isinstance(value, SecretStr):
        value = ""
    if value in (None, ""):
        return "unset"
    return f"`{_shown(value)}`"


def _shown(value: object) -> str:
    """Returns a value as an operator would write it."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case Enum():
            return str(value.value)
        case tuple() | list() | frozenset() | set():
            return ",".join(_shown(item) for item in value)
        case _:
            return str(value)


def _text(field: FieldInfo) -> str:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    empty = f" Empty: {extra[EMPTY_KEY]}." if EMPTY_KEY in extra else ""
    return f"{field.description or ''}{empty}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
