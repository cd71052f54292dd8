"""The operations that the gateway offers, each with the reader of its requests."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from loom_common.ops import OpSpec, public_ops
from loom_gateway.contract.requests import RequestReader

_EVERY_SERVICE = "common"

LINES = "lines"
"""Field of messages that carry records as lines of text, which no transport reads."""


@dataclass(frozen=True)
class PublicOp:
    """One operation that callers from outside may use."""

    spec: OpSpec

    @property
    def name(self) -> str:
        """Its name, which is its route."""
        return self.spec.name

    @property
    def takes_lines(self) -> bool:
        """Whether its requests are lines."""
        return self.spec.request_streaming

    @property
    def sends_lines(self) -> bool:
        """Whether its answers are lines."""
        return LINES in self.spec.response.fields_by_name

    @cached_property
    def reader(self) -> RequestReader:
        """Reads its requests as HTTP callers write them."""
        return RequestReader(self.spec.request)


class Catalogue(Mapping[str, PublicOp]):
    """Public operations by name, in the order of the contract.

    Left out are operations for services alone and what every service answers about itself. Those that answer several
    messages stand apart: no tool call can carry them. Those that take several are for gRPC alone, but for lines of
    records.
    """

    def __init__(self, specs: Mapping[str, OpSpec] | None = None) -> None:
        found = public_ops() if specs is None else specs
        offered = {name: PublicOp(spec) for name, spec in found.items() if _is_offered(spec)}
        self._ops = {name: op for name, op in offered.items() if not op.spec.response_streaming}
        self.streams: Mapping[str, PublicOp] = {name: op for name, op in offered.items() if op.spec.response_streaming}
        """Operations that answer several messages, by name."""

    def __getitem__(self, name: str) -> PublicOp:
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)


def _is_offered(spec: OpSpec) -> bool:
    is_carried = not spec.request_streaming or LINES in spec.request.fields_by_name
    return not spec.internal and spec.owner != _EVERY_SERVICE and is_carried
