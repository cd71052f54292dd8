"""A search scores by the noise floor that is in force for its namespace."""

import pytest
from support.memory import memory_over

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.errors import BackendUnavailable
from loom_memory.app.search import SearchMode
from loom_memory.app.thresholds import Calibrated, Thresholds, Tier
from loom_memory.app.thresholds_fake import FakeThresholds
from loom_memory.domain.scoring import score

GATES = Thresholds(Tier.NAMESPACE, 0.4, 0.45, 0.5, 0.55, 0.6, 0.8, 0.9, "abc")


async def test_a_hit_is_scored_above_the_floor_in_force_and_above_the_models_own_where_none_is_known(
    clickhouse: ClickHouse,
) -> None:
    thresholds = FakeThresholds(Calibrated("fake", GATES))
    memory = await memory_over(clickhouse, thresholds=thresholds)
    await memory.set("tea", "green tea in the morning")
    thresholds.failure = BackendUnavailable("scripted")
    for failure, floor in ((thresholds.failure, 0.2), (None, 0.4)):
        thresholds.failure = failure
        [hit] = (await memory.search("green tea", mode=SearchMode.VECTOR)).hits
        assert hit.similarity is not None
        assert hit.score == pytest.approx(score(hit.similarity, None, noise_floor=floor))
    assert set(thresholds.asked) == {Scope("acme", "team")}
