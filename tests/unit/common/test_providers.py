"""What calls to providers share: waits that they ask for, policies, health, prices."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from loom_common.providers import (
    FailureKind,
    ProviderError,
    ProviderHealth,
    Retrying,
    RetryPolicy,
    provider_failed,
    retry_after_s,
)

POLICY = RetryPolicy(frozenset({429, 503}), attempts=3, max_wait_s=4.0)


def failure(status: int | None = None, asked_s: float | None = None, kind: FailureKind | None = None) -> ProviderError:
    return ProviderError("openai", kind or FailureKind.STATUS, status=status, retry_after_s=asked_s)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Mon, 01 Jan 2020 00:00:00 +99999999999999"}, None),
        ({"retry-after": "Mon, 01 Jan 10000 00:00:00 GMT"}, None),
        ({"retry-after": format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)}, 0.0),
    ],
)
def test_the_wait_that_a_provider_asks_for_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_date_is_a_wait_from_now() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)
    assert retry_after_s({"retry-after": later}) == pytest.approx(600, abs=5)


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (failure(429), True),
        (failure(429, 4.0), True),
        (failure(429, 4.1), False),
        (failure(500), False),
        (failure(kind=FailureKind.TIMEOUT), True),
        (failure(kind=FailureKind.CONNECTION), True),
        (failure(kind=FailureKind.MALFORMED), False),
    ],
)
def test_the_policy_says_whether_another_attempt_may_help(error: ProviderError, helps: bool) -> None:
    assert POLICY.may_help(error) is helps


async def test_attempts_end_with_the_last_failure_and_say_how_many_there_were() -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def attempt() -> int:
        raise failure(503, asked_s=3.0 if not waits else None)

    with pytest.raises(ProviderError) as caught:
        await Retrying(POLICY, sleep=wait).run("openai", attempt)
    assert (caught.value.attempts, waits) == (3, [3.0, 1.0])


async def test_all_attempts_together_end_at_the_total_time_as_a_timeout() -> None:
    policy = RetryPolicy(frozenset(), attempts=3, max_wait_s=1.0, total_s=0.05)
    with pytest.raises(ProviderError) as caught:
        await Retrying(policy).run("openai", asyncio.Event().wait)
    assert (caught.value.kind, caught.value.provider) == (FailureKind.TIMEOUT, "openai")


def test_health_remembers_the_last_call_only() -> None:
    health = ProviderHealth()
    assert health.problems() == []
    health.failed(failure(503))
    [problem] = health.problems()
    assert (problem.code, problem.severity) == ("provider_failing:openai", "warning")
    assert "status 503" in problem.message
    health.answered()
    assert health.problems() == []


def test_callers_learn_what_happened_in_our_words() -> None:
    told = provider_failed(failure(429, asked_s=2.0))
    assert told.detail == {"provider": "openai", "kind": "status", "attempts": 1, "status": 429}
    assert told.retry_after_s == 2.0
