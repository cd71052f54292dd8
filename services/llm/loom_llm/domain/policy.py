"""What may differ between classes of traffic, such as people's and a benchmark's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class TrafficPolicy:
    """What holds for the calls of one class where a request does not say it."""

    cache: bool = False
    """Whether answers are taken from Loom's own cache and put into it."""


DEFAULT_POLICIES: Final[Mapping[str, TrafficPolicy]] = MappingProxyType({"bench": TrafficPolicy(cache=True)})
"""A benchmark asks the same again and again, and its data is nobody's."""


class TrafficPolicies:
    """The policies of all classes; one that is not listed has no cache."""

    def __init__(self, by_class: Mapping[str, TrafficPolicy] = DEFAULT_POLICIES) -> None:
        self._by_class = by_class

    def caches(self, traffic_class: str) -> bool:
        """Returns whether calls of a class use the cache where they do not say it themselves."""
        return self._by_class.get(traffic_class, TrafficPolicy()).cache


def parse_policies(text: str) -> Mapping[str, TrafficPolicy]:
    """Returns the policies that a JSON object spells, such as `{"bench": {"cache": true}}`; empty for the default.

    Raises:
        ValueError: It is no such object.
    """
    if not text:
        return DEFAULT_POLICIES
    try:
        given = json.loads(text)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(given, dict):
        raise ValueError("it is not an object")
    return {name: _policy(name, policy) for name, policy in given.items()}


def _policy(name: str, given: object) -> TrafficPolicy:
    if not isinstance(given, dict) or given.keys() - {"cache"} or not isinstance(given.get("cache", False), bool):
        raise ValueError(f"{name!r} is not an object with nothing but cache, true or false")
    return TrafficPolicy(given.get("cache", False))
