import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from loom.common.v1 import status_pb2 as pb
from loom.common.v1 import status_pb2_grpc as pb_grpc
from loom_common import errors
from loom_common.call import Call, bind
from loom_common.errors import (
    ERRORS,
    KINDS,
    BackendUnavailable,
    Conflict,
    DeadlineExceeded,
    FieldViolation,
    InternalError,
    InvalidArgument,
    LoomError,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    Reason,
    UnknownOp,
    errors_markdown,
    from_rpc_error,
    from_status_parts,
    to_http,
    to_status,
)
from loom_common.usage import Usage, usage_from_metadata

RESENT = {
    Reason.OVERLOADED,
    Reason.BACKEND_UNAVAILABLE,
    Reason.MODEL_CALL_DEFERRED,
    Reason.MODEL_POLICY_UNREAD,
}


def unpack(status, kind):
    found = []
    for detail in status.details:
        message = kind()
        if detail.Unpack(message):
            found.append(message)
    return found


def sent(error: LoomError) -> LoomError:
    """Carries an error over the wire as bytes and back."""
    status = to_status(error, "r-1")
    metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    return from_status_parts(error.row.grpc, status.message, metadata)


def test_every_reason_has_a_row_and_a_class_that_is_exported():
    assert set(ERRORS) == set(Reason)
    assert set(KINDS) == set(Reason)
    for reason, kind in KINDS.items():
        assert kind.reason is reason
        assert getattr(errors, kind.__name__) is kind
        assert kind.__name__ in errors.__all__


def test_only_the_reasons_that_a_second_try_can_help_are_sent_again():
    assert {reason for reason, row in ERRORS.items() if row.resend} == RESENT


def test_every_reason_that_is_sent_again_says_how_long_to_wait():
    for reason in RESENT | {Reason.RATE_LIMITED, Reason.BUDGET_EXHAUSTED}:
        assert KINDS[reason]("x").retry_after_s


@pytest.mark.parametrize("reason", list(Reason))
def test_every_error_survives_the_wire_with_its_facts(reason):
    error = KINDS[reason](
        "Use fewer.",
        detail={"left_s": 12, "reason": "narrowed", "ratio": 0.5, "more": [1, {"a": None}], "flag": True},
        retry_after_s=2.5,
        fields=[FieldViolation("query", "too long")],
    )
    back = sent(error)
    assert type(back) is KINDS[reason]
    assert (back.message, back.detail, back.retry_after_s) == (error.message, error.detail, 2.5)
    assert back.fields == error.fields
    assert back.request_id == "r-1"


def test_a_status_holds_exactly_one_error_info_with_scalars_as_text():
    status = to_status(Conflict("Version differs.", detail={"expected": 3, "found": "4", "items": [1]}), "r")
    (info,) = unpack(status, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("CONFLICT", "loom")
    assert dict(info.metadata) == {"expected": "3", "found": "4"}
    (extra,) = unpack(status, pb.ErrorDetail)
    assert extra.request_id == "r"


def test_a_status_names_the_running_call_by_itself():
    with bind(Call(request_id="r-9")):
        (extra,) = unpack(to_status(NotFound("gone")), pb.ErrorDetail)
    assert extra.request_id == "r-9"


@given(
    message=st.text(max_size=3000),
    detail=st.dictionaries(
        st.text("abc_", min_size=1, max_size=8), st.text(max_size=2000) | st.integers(), max_size=40
    ),
    fields=st.lists(st.tuples(st.text(max_size=300), st.text(max_size=900)), max_size=40),
)
def test_a_status_of_any_size_fits_the_metadata_and_keeps_its_reason(message, detail, fields):
    error = InvalidArgument(message, detail=detail, fields=[FieldViolation(*pair) for pair in fields])
    status = to_status(error, "r")
    assert len(status.SerializeToString()) <= 4096
    back = from_status_parts(error.row.grpc, status.message, (("grpc-status-details-bin", status.SerializeToString()),))
    assert type(back) is InvalidArgument


def test_a_lone_surrogate_in_a_message_does_not_break_the_answer():
    assert "?" in to_status(InvalidArgument("bad \ud800 text", detail={"key": "\udfff"}), "r").message


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to 10.0.0.1", BackendUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, "Locally cancelled", errors.Cancelled),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", UnknownOp),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 8)", PayloadTooLarge),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!", Overloaded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "quota", RateLimited),
        (grpc.StatusCode.UNKNOWN, "Unexpected <class 'ValueError'>: secret", InternalError),
        (grpc.StatusCode.DATA_LOSS, "secret", InternalError),
    ],
)
def test_what_grpc_itself_meets_becomes_the_nearest_error_without_its_text(code, text, kind):
    found = from_status_parts(code, text, ())
    assert type(found) is kind
    assert text not in found.message


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_code_has_an_error(code):
    assert isinstance(from_status_parts(code, "", ()), LoomError)


@given(st.binary(max_size=300))
def test_details_that_cannot_be_read_leave_the_code_to_speak(data):
    found = from_status_parts(grpc.StatusCode.NOT_FOUND, "x", (("grpc-status-details-bin", data),))
    assert isinstance(found, LoomError)


def test_details_of_another_domain_are_not_taken_for_ours():
    status = status_pb2.Status(code=5, message="theirs")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="CONFLICT", domain="example.com"))
    found = from_status_parts(
        grpc.StatusCode.NOT_FOUND, "theirs", (("grpc-status-details-bin", status.SerializeToString()),)
    )
    assert type(found) is NotFound
    assert found.message != "theirs"


def test_a_reason_of_a_newer_peer_becomes_the_error_of_its_code():
    status = status_pb2.Status(code=14, message="Wait.")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="NEW_ONE", domain="loom", metadata={"a": "b"}))
    found = from_status_parts(
        grpc.StatusCode.UNAVAILABLE, "Wait.", (("grpc-status-details-bin", status.SerializeToString()),)
    )
    assert type(found) is BackendUnavailable
    assert (found.message, found.detail) == ("Wait.", {"a": "b"})


def test_the_http_body_holds_the_same_facts_and_the_wait_in_whole_seconds():
    error = RateLimited("Slow down.", retry_after_s=1.2, detail={"class": "write"})
    status, headers, body = to_http(error, "r-2")
    assert status == 429
    assert headers == {"Retry-After": "2"}
    assert body == {
        "error": {
            "code": "RATE_LIMITED",
            "message": "Slow down.",
            "status": 429,
            "detail": {"class": "write"},
            "request_id": "r-2",
        }
    }


def test_the_http_body_names_each_field_and_asks_for_a_token_where_one_is_missing():
    _, _, body = to_http(InvalidArgument.of("top_k", "must be 1 to 100", value=0), "r")
    assert body["error"]["detail"] == {
        "field": "top_k",
        "value": 0,
        "fields": [{"field": "top_k", "description": "must be 1 to 100"}],
    }
    status, headers, _ = to_http(errors.Unauthenticated("No token."), "r")
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")


def test_a_wait_that_is_no_number_is_bounded():
    assert to_http(RateLimited("x", retry_after_s=float("inf")), "r")[1]["Retry-After"] == "86400"
    assert to_status(RateLimited("x", retry_after_s=-5), "r")


def test_the_manual_lists_every_reason_once():
    first_cells = [line.split(" | ")[0] for line in errors_markdown().splitlines()]
    for reason in Reason:
        assert first_cells.count(f"| `{reason}`") == 1


class Refusing(pb_grpc.StatusServiceServicer):
    def __init__(self, error: LoomError) -> None:
        self.error = error

    async def GetStatus(self, request, context):
        context.set_trailing_metadata((("x-kept", "yes"),))
        with bind(Call(request_id="r-7", usage=Usage(embedding_tokens=3))):
            await self.error.abort(context)


@asynccontextmanager
async def refusing(error: LoomError) -> AsyncIterator["pb_grpc.StatusServiceAsyncStub"]:
    server = grpc.aio.server()
    pb_grpc.add_StatusServiceServicer_to_server(Refusing(error), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield pb_grpc.StatusServiceStub(channel)
    finally:
        await server.stop(None)


async def test_an_aborted_call_reaches_the_client_with_reason_facts_and_what_it_spent():
    error = NotFound("该命名空间不存在。 " * 200, detail={"namespace": "x" * 5000, "big": ["y" * 100] * 100})
    async with refusing(error) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(stub.GetStatus(pb.GetStatusRequest()), 10)
    found = from_rpc_error(caught.value)
    assert type(found) is NotFound
    assert found.request_id == "r-7"
    assert ("x-kept", "yes") in tuple(caught.value.trailing_metadata())
    assert usage_from_metadata(caught.value.trailing_metadata()) == Usage(embedding_tokens=3)
