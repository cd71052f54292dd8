"""How settings are read: the environment once, explicit values over it, one clear line for what is wrong."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

import loom_protos
from loom_common.settings.allowed import allowed_text
from loom_common.settings.unknown import first_unknown

PREFIX: Final = "LOOM_"
EMPTY_KEY: Final = "empty"
"""Key in a field's `json_schema_extra` that says what an empty value means; without it empty counts as unset."""

_SHOWN_CHARACTERS: Final = 60


class SettingsError(Exception):
    """A variable cannot be used. The text is one line for the operator and names the variable."""


class LoomSettings(BaseSettings):
    """Base of every package's settings.

    Each field has its variable's name as alias and a description with a unit. Only `load` reads the environment, so
    that an object made directly, as tests do, has the defaults and what it is given.
    """

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, case_sensitive=True, hide_input_in_errors=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leaves every source but the arguments out; `load` passes what it read."""
        return (init_settings,)

    @classmethod
    def load(cls, overrides: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None) -> Self:
        """Returns the settings of this process.

        Args:
            overrides: Values by variable name, from the command line; they win over the environment.
            environ: Environment to read instead of the process's own.

        Raises:
            SettingsError: A value is not allowed, or the environment holds a `LOOM_*` name that nothing reads.
        """
        held = {**(os.environ if environ is None else environ), **(overrides or {})}
        refuse_unknown(held)
        given = dict(cls._given(held))
        try:
            return cls(**given)
        except ValidationError as error:
            raise SettingsError(cls._line(error, given)) from None

    @classmethod
    def variables(cls) -> dict[str, FieldInfo]:
        """Returns the fields by the names of their variables."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    @classmethod
    def _given(cls, held: Mapping[str, str]) -> Iterator[tuple[str, Any]]:  # Any: pydantic converts them
        for variable, field in cls.variables().items():
            if variable not in held:
                continue
            value = held[variable].strip()
            if value or _empty_counts(field):
                yield variable, value

    @classmethod
    def _line(cls, error: ValidationError, given: Mapping[str, str]) -> str:
        first = error.errors(include_url=False, include_input=False)[0]
        variable = str(first["loc"][0]) if first["loc"] else ""
        field = cls.variables().get(variable)
        if field is None:  # a rule over several variables states them itself
            return first["msg"].removeprefix("Value error, ")
        value = given.get(variable)
        if value is None:
            return f"{variable} must be set: {allowed_text(field)}. {field.description or ''}".strip()
        shown = "" if _is_secret(field) else f" is {_shortened(value)}, which"
        line = f"{variable}{shown} is not allowed: it must be {allowed_text(field)}"
        if first["type"] in ("value_error", "assertion_error"):
            line += f" ({first['msg'].removeprefix('Value error, ')})"
        more = len(error.errors()) - 1
        return line + (f"; {more} more like it." if more else ".")


def known_names() -> frozenset[str]:
    """Returns every variable that some package of Loom reads: the shipped registry's, and those of loaded classes."""
    return frozenset(loom_protos.registry()["settings"]) | frozenset(_loaded_names(LoomSettings))


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Refuses `LOOM_*` names that nothing reads: a misspelt setting must not be passed over in silence.

    Raises:
        SettingsError: Names the first of them, and the nearest known name.
    """
    if not loom_protos.registry()["settings"]:
        return  # the registry is not generated yet; what other packages read is not known
    if line := first_unknown(environ, known_names()):
        raise SettingsError(line)


def _loaded_names(cls: type[LoomSettings]) -> Iterator[str]:
    yield from cls.variables()
    for child in cls.__subclasses__():
        yield from _loaded_names(child)


def _empty_counts(field: FieldInfo) -> bool:
    return isinstance(field.json_schema_extra, dict) and EMPTY_KEY in field.json_schema_extra


def _is_secret(field: FieldInfo) -> bool:
    return field.annotation is SecretStr or "SecretStr" in str(field.annotation)


def _shortened(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}...")
