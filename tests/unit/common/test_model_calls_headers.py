"""Headers that name whom a call to a model is for."""

import pytest

from loom_common.attribution import Attribution, Kind
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable
from loom_common.model_calls.headers import encoded, parse_identity_headers, rendered
from loom_common.model_calls.held import IdentityUnread
from loom_common.model_calls.identity import CallIdentity, agent_of, call_identity, is_person
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import CachedReads, FakeReads

AGENT = "sa:okta:planner"


def policy(headers: str = "", **more: object) -> InferencePolicy:
    return InferencePolicy(identity_headers=parse_identity_headers(headers), **more)  # type: ignore[arg-type]  # any


async def headers_of(
    given: InferencePolicy, attribution: Attribution, reads: FakeReads | None = None
) -> dict[str, str]:
    made = await call_identity(attribution, given, reads or FakeReads())
    return dict((*made.customer, *made.identity))


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("acme", "acme"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("é", "%C3%A9"),
        ("a\nb", "a%0Ab"),
        ("a/b:c@d?e={f}", "a/b:c@d?e={f}"),
    ],
)
def test_a_value_is_encoded_only_where_a_header_cannot_carry_it(value: str, sent: str) -> None:
    assert encoded(value) == sent


async def test_each_placeholder_of_a_request_stands_for_what_it_says() -> None:
    names = ("org", "namespace", "subject", "agent", "tenant", "user_id")
    given = policy("{" + ",".join(f'"x-{name}":"{{{name}}}"' for name in names) + "}", tenant_claim="tenant_id")
    reads = FakeReads(claims={("acme", "okta"): {"tenant_id": ["t-1"], "aud": ["x", "y"]}})
    found = await headers_of(given, Attribution("acme", "home", AGENT, "ann"), reads)
    assert found == {
        "x-org": "acme",
        "x-namespace": "home",
        "x-subject": AGENT,
        "x-agent": "planner",
        "x-tenant": "t-1",
        "x-user_id": "ann",
    }


async def test_a_user_that_a_request_does_not_name_is_its_subject() -> None:
    found = await headers_of(policy('{"x-user":"{user_id}"}'), Attribution("acme", subject="ann@example.org"))
    assert found == {"x-user": "ann@example.org"}


@pytest.mark.parametrize(
    ("subject", "sent"),
    [
        ("Ann@Example.org", {"x-email": "ann@example.org"}),
        ("bob@example.org", {"x-email": "bob@example.org"}),
        (AGENT, {}),
        ("sa:okta:bot@example.org", {}),
        ("sa:ci", {}),
    ],
)
async def test_an_address_is_a_persons_as_the_directory_spells_it(subject: str, sent: dict[str, str]) -> None:
    reads = FakeReads(emails={("acme", "Ann@Example.org"): "ann@example.org"})
    assert await headers_of(policy('{"x-email":"{email}"}'), Attribution("acme", subject=subject), reads) == sent


async def test_a_header_that_renders_empty_is_left_out_and_text_around_is_sent_as_written() -> None:
    given = policy('{"x-bare":"{namespace}","x-text":"ns={namespace};","x-fixed":"loom"}')
    assert await headers_of(given, Attribution("acme")) == {"x-text": "ns=;", "x-fixed": "loom"}


@pytest.mark.parametrize(
    ("subject", "claims"),
    [
        (AGENT, {}),
        (AGENT, {"tenant_id": ["acme-*"]}),
        (AGENT, {"tenant_id": ["t-1", "t-2"]}),
        ("sa:okta", {"tenant_id": ["t-1"]}),
        ("ann@example.org", {"tenant_id": ["t-1"]}),
    ],
)
async def test_the_agent_goes_whole_or_not_at_all_and_other_headers_stand_alone(
    subject: str, claims: dict[str, list[str]]
) -> None:
    given = policy('{"x-agent":"a-{agent}","x-tenant":"{tenant}","x-org":"{org}"}', tenant_claim="tenant_id")
    reads = FakeReads(claims={("acme", "okta"): claims})
    assert await headers_of(given, Attribution("acme", subject=subject), reads) == {"x-org": "acme"}


async def test_an_agent_whose_trust_requires_one_tenant_is_named_with_it() -> None:
    given = policy('{"x-agent":"a-{agent}","x-tenant":"{tenant}"}', tenant_claim="tenant_id")
    reads = FakeReads(claims={("acme", "okta"): {"tenant_id": ["t-1"]}})
    found = await headers_of(given, Attribution("acme", subject=AGENT), reads)
    assert found == {"x-agent": "a-planner", "x-tenant": "t-1"}


async def test_a_job_is_for_the_writer_of_the_row_else_for_the_agent_whose_own_namespace_it_is_in() -> None:
    given = policy('{"x-subject":"{subject}","x-user":"{user_id}"}')
    reads = FakeReads(owners={("acme", "home"): AGENT, ("acme", "shared"): "", ("acme", "anns"): "ann@example.org"})

    def row(namespace: str, subject: str = "", user_id: str = "") -> Attribution:
        return Attribution("acme", namespace, subject, user_id, kind=Kind.JOB)

    assert await headers_of(given, row("home", "ann@example.org"), reads) == {
        "x-subject": "ann@example.org",
        "x-user": "ann@example.org",
    }
    assert await headers_of(given, row("home", user_id="u7"), reads) == {"x-subject": AGENT, "x-user": "u7"}
    assert await headers_of(given, row("shared"), reads) == {}
    assert await headers_of(given, row("anns"), reads) == {}
    # A request's subject is its token's: nobody else is asked for.
    assert await headers_of(given, Attribution("acme", "home"), reads) == {}


async def test_the_deployments_own_calls_name_its_customer_and_no_one_else() -> None:
    given = policy('{"x-org":"o-{org}"}', customer_header="x-customer", feature_header="x-feature")
    own = Attribution("", feature="system.embedder_probe", kind=Kind.SYSTEM)
    assert await headers_of(given, own) == {"x-customer": "_system", "x-feature": "system.embedder_probe"}


async def test_customer_and_feature_go_by_the_gateways_names() -> None:
    given = policy(
        customer_header="x-customer",
        customer_format="cell 7/{org}",
        feature_header="x-feature",
        feature_names={"memory.search": "recall"},
    )
    assert await headers_of(given, Attribution("acme", feature="memory.search")) == {
        "x-customer": "cell%207/acme",
        "x-feature": "recall",
    }
    assert (await headers_of(given, Attribution("acme", feature="memory.set")))["x-feature"] == "memory.set"


def test_the_customer_is_part_of_the_identity_and_the_feature_is_not() -> None:
    def made(org: str, feature: str) -> CallIdentity:
        return CallIdentity(Kind.JOB, (("x-customer", org), ("x-feature", feature)), (("x-agent", "a"),), org)

    assert made("acme", "one").key == made("acme", "two").key
    assert made("acme", "one").key != made("globex", "one").key


def test_what_a_template_needs_and_cannot_have_is_said() -> None:
    assert rendered(parse_identity_headers('{"x-a":"{agent}{tenant}"}'), {"agent": "a"}) == ()
    for text, said in {
        "[]": "JSON object",
        "{": "JSON",
        '{"x-a": 1}': "not text",
        '{"x a": "{org}"}': "no name of a header",
        '{"Authorization": "{org}"}': "header of the request itself",
        '{"x-a": "{who}"}': "{who}",
        '{"x-a": "{org"}': "cannot carry",
        '{"x-a": "é"}': "cannot carry",
        '{"x-a": "{org}", "X-A": "{org}"}': "same name",
    }.items():
        with pytest.raises(ValueError, match=said.replace("{", r"\{")):
            parse_identity_headers(text)


def test_agents_and_persons_are_told_apart_by_their_subjects() -> None:
    assert agent_of("sa:okta:a:b") == ("okta", "a:b")
    assert [agent_of(one) for one in ("sa:okta", "sa::a", "sa:okta:", "ann@example.org", "")] == [None] * 5
    assert is_person("ann@example.org")
    assert not any(is_person(one) for one in ("sa:okta:x@y", "svc:memory", "@", ""))


async def test_what_identity_knows_is_read_at_most_once_a_minute() -> None:
    clock, reads = FakeClock(), FakeReads(owners={("acme", "home"): AGENT})
    cached = CachedReads(reads, clock)
    for _ in range(3):
        assert await cached.namespace_owner("acme", "home") == AGENT
    clock.advance(59)
    await cached.namespace_owner("acme", "home")
    assert len(reads.asked) == 1
    clock.advance(1)
    reads.owners["acme", "home"] = "sa:okta:other"
    assert await cached.namespace_owner("acme", "home") == "sa:okta:other"
    assert len(reads.asked) == 2


async def test_a_reading_that_fails_serves_the_copy_in_hand_and_with_none_holds_the_call() -> None:
    clock, reads = FakeClock(), FakeReads(emails={("acme", "ann@x"): "ann@x.org"})
    cached = CachedReads(reads, clock)
    assert await cached.account_email("acme", "ann@x") == "ann@x.org"
    reads.failure = BackendUnavailable("gone")
    clock.advance(3600)
    assert await cached.account_email("acme", "ann@x") == "ann@x.org"
    with pytest.raises(IdentityUnread):
        await cached.trust_claims("acme", "okta")
    with pytest.raises(IdentityUnread):
        await cached.trust_claims("acme", "okta")
    assert reads.asked.count(("trust", "acme", "okta")) == 1
    reads.failure = None
    clock.advance(1)
    assert await cached.trust_claims("acme", "okta") == {}
