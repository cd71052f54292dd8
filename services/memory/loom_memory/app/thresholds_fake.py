"""A calibration without a model, for tests."""

from loom_common.call import Scope
from loom_common.errors import LoomError
from loom_memory.app.thresholds import Calibrated


class FakeThresholds:
    """Answers what it is given; nothing is calibrated at first.

    Attributes:
        answer: What is calibrated.
        failure: Raised while set.
        asked: Namespaces that were asked about.
    """

    def __init__(self, answer: Calibrated | None = None) -> None:
        self.answer = answer or Calibrated("", None)
        self.failure: LoomError | None = None
        self.asked: list[Scope] = []

    async def calibrated(self, scope: Scope) -> Calibrated:
        """See `ThresholdsPort.calibrated`."""
        self.asked.append(scope)
        if self.failure is not None:
            raise self.failure
        return self.answer
