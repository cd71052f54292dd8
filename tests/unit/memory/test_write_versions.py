from loom_common.clock import FakeClock
from loom_memory.app.write_versions import WriteVersions


def test_what_a_write_draws_is_not_settled_until_it_ends() -> None:
    versions = WriteVersions(FakeClock())
    with versions.write() as first:
        drawn = first.next(after=0)
        with versions.write() as second:
            other = second.next(after=drawn + 10)
            assert versions.settled < drawn < other
        assert versions.settled < drawn
    assert versions.settled > other


def test_a_version_is_above_the_row_that_was_read() -> None:
    versions = WriteVersions(FakeClock())
    with versions.write() as write:
        assert write.next(after=2**62) == 2**62 + 1
        assert write.next(after=0) == 2**62 + 2
