"""Makes the registry of names: every setting, operation and error reason, with the package that owns it.

The registry ships with the contract, so that each process knows the names of all, whichever packages it carries.
"""

import importlib
import importlib.util
import json
import pkgutil
from collections.abc import Iterable, Iterator

from loom_common.errors import ERRORS
from loom_common.ops import all_ops
from loom_common.settings import KUBERNETES_NAME, PREFIX, LoomSettings
from loom_protos import NameRegistry

# Providers' keys keep the names that the providers' own tools read.
_FOREIGN_SUFFIX = "_API_KEY"
_OWN_PACKAGE = __name__.partition(".")[0]


class RegistryError(Exception):
    """Names of settings are declared wrongly; lists every finding."""


def build_registry(packages: Iterable[str]) -> NameRegistry:
    """Returns the registry of the given packages, names in alphabetical order.

    Args:
        packages: Importable packages, such as `loom_memory`; all their modules named `settings` are read.

    Raises:
        RegistryError: Two packages declare one variable, or a name cannot be a setting.
    """
    return {
        "settings": dict(sorted(_settings(packages).items())),
        "ops": {name: spec.owner for name, spec in sorted(all_ops().items())},
        "errors": dict.fromkeys(sorted(reason.value for reason in ERRORS), _OWN_PACKAGE),
    }


def registry_json(registry: NameRegistry) -> str:
    """Returns the registry as the text of its file."""
    return json.dumps(registry, indent=2, ensure_ascii=False) + "\n"


def settings_classes(packages: Iterable[str]) -> list[type[LoomSettings]]:
    """Returns the settings classes of packages, in the order of the packages and then of their declaration."""
    found: list[type[LoomSettings]] = []
    for package in packages:
        for module in _settings_modules(package):
            loaded = importlib.import_module(module)
            declared = [
                value
                for value in vars(loaded).values()
                if isinstance(value, type) and issubclass(value, LoomSettings) and value is not LoomSettings
            ]
            found += [cls for cls in declared if _owner(cls) == package and cls not in found]
    return found


def _settings(packages: Iterable[str]) -> dict[str, str]:
    owners: dict[str, str] = {}
    problems: list[str] = []
    for cls in settings_classes(packages):
        inherited = {name for base in cls.__bases__ if issubclass(base, LoomSettings) for name in base.variables()}
        for name in cls.variables().keys() - inherited:
            if not name.startswith(PREFIX) and not name.endswith(_FOREIGN_SUFFIX):
                problems.append(f"{name} of {cls.__name__} does not begin with {PREFIX}")
            if KUBERNETES_NAME.fullmatch(name):
                problems.append(f"{name} of {cls.__name__} is a name that Kubernetes sets by itself")
            if name in owners:
                problems.append(f"{name} is declared by {owners[name]} and by {cls.__name__}")
            owners[name] = _owner(cls)
    if problems:
        raise RegistryError("\n".join(problems))
    return owners


def _settings_modules(package: str) -> Iterator[str]:
    """Yields the modules `settings` of a package and of the packages inside it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return
    if importlib.util.find_spec(f"{package}.settings") is not None:
        yield f"{package}.settings"
    for inner in sorted(pkgutil.iter_modules(spec.submodule_search_locations), key=lambda one: one.name):
        if inner.ispkg and inner.name != "settings":
            yield from _settings_modules(f"{package}.{inner.name}")


def _owner(cls: type) -> str:
    return cls.__module__.partition(".")[0]
