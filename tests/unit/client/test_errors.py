"""Errors by their reason: one class each, for every row of the server's table."""

import pickle

import httpx
import pytest

import loom_client
from loom_client import ERRORS, BackendUnavailable, Conflict, Loom, LoomError
from loom_client.errors import RESEND_REASONS
from loom_common import errors as server


def client(answer: httpx.Response) -> Loom:
    return Loom("http://x", "t", http=httpx.Client(transport=httpx.MockTransport(lambda _: answer)), max_attempts=1)


def test_every_reason_of_the_server_has_a_class_that_the_client_exports() -> None:
    assert set(ERRORS) == {reason.value for reason in server.ERRORS}
    assert len(set(ERRORS.values())) == len(ERRORS)
    for cls in ERRORS.values():
        assert issubclass(cls, LoomError)
        assert getattr(loom_client, cls.__name__) is cls
        assert cls.__name__ in loom_client.__all__


def test_the_client_sends_again_what_the_server_says_may_be_sent_again() -> None:
    assert {reason.value for reason, row in server.ERRORS.items() if row.resend} == RESEND_REASONS


def test_a_refusal_is_raised_as_the_class_of_its_reason_and_an_unknown_one_as_a_plain_error() -> None:
    for reason, cls in [*ERRORS.items(), ("OF_A_NEWER_SERVER", LoomError)]:
        with pytest.raises(LoomError) as caught:
            client(httpx.Response(400, json={"error": {"code": reason, "message": "m"}})).memory.get("k")
        assert type(caught.value) is cls
        assert caught.value.reason == reason


def test_an_error_that_a_line_tells_is_of_its_class_too() -> None:
    lines = b'{"key":"a"}\n{"error":{"code":"BACKEND_UNAVAILABLE","message":"m","status":503,"request_id":"r"}}\n'
    found: list[object] = []
    told = client(httpx.Response(200, content=lines)).stream("memory.export")
    with pytest.raises(BackendUnavailable) as caught:
        found.extend(told)
    assert found == [{"key": "a"}]
    assert (caught.value.status, caught.value.request_id) == (503, "r")


def test_an_error_goes_to_another_process_whole() -> None:
    error = Conflict("CONFLICT", "m", status=409, detail={"version": 1}, request_id="r", retry_after_s=1.5)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is Conflict
    assert (str(copy), vars(copy)) == (str(error), vars(error))
