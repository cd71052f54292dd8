from loom_memory.domain.memory import Identity
from loom_memory.domain.waves import waves


def test_the_writes_of_one_memory_are_in_waves_one_after_the_other() -> None:
    identities = [Identity("a"), Identity("b"), Identity("a"), Identity("a", "ann"), Identity("a")]
    assert waves(identities) == [[0, 1, 3], [2], [4]]
    assert waves([]) == []
