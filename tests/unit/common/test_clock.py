from datetime import UTC, datetime, timedelta

from loom_common.clock import FakeClock, MonotonicVersions, SystemClock


def test_the_system_clock_is_aware_and_in_utc() -> None:
    now = SystemClock().now()
    assert now.utcoffset() == timedelta(0)
    assert abs(SystemClock().now_ns() / 1e9 - now.timestamp()) < 5


def test_a_fake_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    clock.advance(1.5)
    assert clock.now() == datetime(2026, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)
    assert clock.monotonic_s() == 1.5
    clock.set(datetime(2025, 1, 1, tzinfo=UTC))
    assert clock.monotonic_s() == 1.5


def test_a_fake_clock_keeps_its_nanoseconds_exact() -> None:
    clock = FakeClock(datetime(2026, 1, 1, 0, 0, 0, 123457, tzinfo=UTC))
    assert clock.now_ns() % 1_000_000_000 == 123_457_000


def test_versions_rise_while_the_clock_stands_and_when_it_is_set_back() -> None:
    clock = FakeClock()
    versions = MonotonicVersions(clock)
    first, second = versions.next(), versions.next()
    assert first == clock.now_ns()
    assert second == first + 1
    clock.set(clock.now() - timedelta(days=1))
    assert versions.next() == second + 1
    clock.set(clock.now() + timedelta(days=2))
    assert versions.next() == clock.now_ns()


def test_a_version_is_above_the_row_that_was_read() -> None:
    clock = FakeClock()
    ahead = clock.now_ns() + 10**15
    assert MonotonicVersions(clock).next(after=ahead) == ahead + 1
