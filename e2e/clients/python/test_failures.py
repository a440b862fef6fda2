"""What the SDKs make of CART's and of the replicas' failures: error classes, retries, timeouts, cancelled and broken streams."""

import asyncio
import contextlib
import json
import threading
import uuid

import anthropic
import httpx2
import openai
import pytest
from lab import (
    LONG,
    MODEL,
    anthropic_client,
    assert_cancelled,
    assert_none_left,
    async_anthropic_client,
    async_openai_client,
    eventually,
    faults,
    load,
    openai_client,
    stats,
)


class OpenAI:
    """The SDK's names for what both have."""

    sdk = openai
    client = staticmethod(openai_client)
    async_client = staticmethod(async_openai_client)
    path = "/v1/chat/completions"
    too_large = openai.APIStatusError  # there is no class of its own for 413
    unavailable = openai.InternalServerError
    gateway_timeout = openai.InternalServerError

    @staticmethod
    def ask(client, text, tokens=4, model=MODEL, **options):
        return client.chat.completions.create(
            model=model, max_tokens=tokens, messages=[{"role": "user", "content": text}], **options
        )

    @staticmethod
    def show_image(client, url):
        part = {"type": "image_url", "image_url": {"url": url}}
        return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}])

    @staticmethod
    def error_body(kind, message):
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}

    @staticmethod
    def tells(error):
        return error.type, error.code, error.body["message"]


class Anthropic:
    sdk = anthropic
    client = staticmethod(anthropic_client)
    async_client = staticmethod(async_anthropic_client)
    path = "/v1/messages"
    too_large = anthropic.RequestTooLargeError
    unavailable = anthropic.ServiceUnavailableError
    gateway_timeout = anthropic.GatewayTimeoutError

    @staticmethod
    def ask(client, text, tokens=4, model=MODEL, **options):
        return client.messages.create(
            model=model, max_tokens=tokens, messages=[{"role": "user", "content": text}], **options
        )

    @staticmethod
    def show_image(client, url):
        part = {"type": "image", "source": {"type": "url", "url": url}}
        return client.messages.create(model=MODEL, max_tokens=4, messages=[{"role": "user", "content": [part]}])

    @staticmethod
    def error_body(kind, message):
        return {"type": "error", "error": {"type": kind, "message": message}}

    @staticmethod
    def tells(error):
        return error.type, None, error.api_message


both = pytest.mark.parametrize("api", [OpenAI, Anthropic], ids=["openai", "anthropic"])


def raised(api, exactly, status, call):
    """The error that call() raises: of exactly this class, not of one above it."""
    with pytest.raises(api.sdk.APIStatusError) as caught:
        call()
    assert type(caught.value) is exactly
    assert caught.value.status_code == status
    return caught.value


# --- errors that CART makes -------------------------------------------------------------------------------------------


@both
def test_413_body_too_large(api):
    client, attempts = api.client("small")
    error = raised(api, api.too_large, 413, lambda: api.ask(client, "x" * 5000))
    kind, code, message = api.tells(error)
    assert kind == {OpenAI: "invalid_request_error", Anthropic: "request_too_large"}[api]
    assert code in (None, "body_too_large") and "proxy.maxBodyBytes" in message
    assert len(attempts) == 1, "what cannot succeed was tried again"
    assert api.ask(client, "short")


@both
def test_503_no_replica(api):
    client, attempts = api.client("empty", max_retries=0)
    error = raised(api, api.unavailable, 503, lambda: api.ask(client, "x"))
    kind, code, message = api.tells(error)
    assert kind == {OpenAI: "server_error", Anthropic: "overloaded_error"}[api]
    assert code in (None, "no_replica") and "no replica is usable" in message
    assert error.response.headers["retry-after"] == "1" and len(attempts) == 1


@both
def test_400_remote_media(api):
    client, attempts = api.client("picky")
    error = raised(api, api.sdk.BadRequestError, 400, lambda: api.show_image(client, "http://10.0.0.1/cat.png"))
    kind, code, message = api.tells(error)
    assert kind == "invalid_request_error" and code in (None, "remote_media") and "data URLs" in message
    assert len(attempts) == 1


@both
def test_502_all_replicas_broken(api):
    client, attempts = api.client("faulty", max_retries=0)
    with faults("faulty", {"kind": "cut"}):
        error = raised(api, api.sdk.InternalServerError, 502, lambda: api.ask(client, "x"))
    kind, code, message = api.tells(error)
    assert kind == {OpenAI: "server_error", Anthropic: "api_error"}[api]
    assert code in (None, "all_failed") and message == "no replica answered the request"


@both
def test_504_too_slow(api):
    client, attempts = api.client("hasty", max_retries=0)
    before = stats("hasty")
    with faults("hasty", {"kind": "hang"}):
        error = raised(api, api.gateway_timeout, 504, lambda: api.ask(client, "x"))
    kind, code, message = api.tells(error)
    assert kind == {OpenAI: "server_error", Anthropic: "timeout_error"}[api]
    assert code in (None, "timeout") and "in time" in message
    assert_none_left("hasty", before)


# --- errors that the replicas make and CART passes on -------------------------------------------------------------------


@both
def test_400_of_the_replica(api):
    client, attempts = api.client()
    error = raised(api, api.sdk.BadRequestError, 400, lambda: api.ask(client, "x", tokens=0))
    assert "max_tokens: at least 1 is required" in error.message and len(attempts) == 1


@both
def test_404_of_the_replica(api):
    client, attempts = api.client()
    error = raised(api, api.sdk.NotFoundError, 404, lambda: api.ask(client, "x", model="gpt-unknown"))
    kind, code, message = api.tells(error)
    assert kind == {OpenAI: "NotFoundError", Anthropic: "not_found_error"}[api]
    assert message == "The model `gpt-unknown` does not exist." and len(attempts) == 1


@both
@pytest.mark.parametrize("status", [429, 503])
def test_backpressure_of_all_replicas(api, status):
    client, attempts = api.client("faulty", max_retries=0)
    body = json.dumps(api.error_body("busy", "not now"))
    fault = {"kind": "status", "status": status, "headers": {"Retry-After": "7"}, "body": body}
    with faults("faulty", fault):
        exactly = api.sdk.RateLimitError if status == 429 else api.unavailable
        error = raised(api, exactly, status, lambda: api.ask(client, "x"))
    kind, code, message = api.tells(error)
    assert (kind, message) == ("busy", "not now") and code in (None, "busy")
    assert error.response.headers["retry-after"] == "7", "the replica's own wish was changed"


# --- retries ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("status", [429, 503])
def test_one_busy_replica_is_no_matter_of_the_sdk(api, status):
    client, attempts = api.client("faulty")
    text = uuid.uuid4().hex
    assert api.ask(client, LONG + text)
    home = attempts[0]["peer"]
    with faults([home], {"kind": "status", "status": status, "match": text, "headers": {"Retry-After": "1"}}):
        assert api.ask(client, LONG + text)
    assert [attempt["status"] for attempt in attempts] == [200, 200]
    assert attempts[1]["peer"] != home


@both
@pytest.mark.parametrize("status", [429, 503])
def test_sdk_waits_as_long_as_the_replicas_ask_for(api, status):
    client, attempts = api.client("faulty")
    fault = {"kind": "status", "status": status, "count": 1, "headers": {"Retry-After": "1"}}
    with faults("faulty", fault):
        assert api.ask(client, "x")
    assert_waited(attempts, status)


@both
def test_sdk_waits_for_a_place(api):
    """All places are taken: CART's 503 says 1 s, the SDK waits that long and then gets the one that is free by then."""
    client, attempts = api.client("full")
    holder, _ = api.client("full")
    before = stats("full")
    with contextlib.closing(api.ask(holder, "hold the only place", tokens=1000, stream=True)) as stream:
        next(iter(stream))
        error = raised(api, api.unavailable, 503, lambda: api.ask(client.with_options(max_retries=0), "x"))
        kind, code, message = api.tells(error)
        assert kind == {OpenAI: "server_error", Anthropic: "overloaded_error"}[api]
        assert code in (None, "all_full") and "maxLoad" in message
        attempts.clear()
        asked = threading.Thread(target=lambda: api.ask(client, "y"))
        asked.start()
        eventually(lambda: attempts and "ended" in attempts[0])
        stream.close()
        asked.join()
    assert_waited(attempts, 503)
    assert stats("full")["requests"] == before["requests"] + 2, "a refused attempt reached the replica"
    assert_cancelled("full", before)


def assert_waited(attempts, status):
    *refused, last = attempts
    assert refused and last["status"] == 200
    for attempt, following in zip(refused, attempts[1:]):
        assert attempt["status"] == status
        assert following["at"] - attempt["ended"] > 0.95, "the SDK did not heed Retry-After"
        assert following["sha256"] == attempt["sha256"]


# --- timeouts and cancelled streams -------------------------------------------------------------------------------------


@both
def test_timeout_of_the_sdk(api):
    client, attempts = api.client("slow", timeout=1, max_retries=1)
    before = stats("slow")
    with faults("slow", {"kind": "hang"}):
        with pytest.raises(api.sdk.APITimeoutError):
            api.ask(client, "x")
        assert len(attempts) == 2
        assert_none_left("slow", before)


@both
def test_cancelled_stream(api):
    client, attempts = api.client("slow")
    before = stats("slow")
    stream = api.ask(client, "a long story", tokens=1000, stream=True)
    next(iter(stream))
    eventually(lambda: load("slow") == 1)
    stream.close()
    assert_cancelled("slow", before)


@both
def test_cancelled_task(api):
    async def cancel():
        client, attempts = api.async_client("slow")
        async with client:
            task = asyncio.create_task(api.ask(client, "a long answer", tokens=1000))
            while stats("slow")["running"] == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = stats("slow")
    asyncio.run(cancel())
    assert_cancelled("slow", before)


@both
def test_50_cancelled_at_once(api):
    async def begin(client):
        stream = await api.ask(client, uuid.uuid4().hex, tokens=1000, stream=True)
        async for _ in stream:
            return stream

    async def cancel():
        client, attempts = api.async_client("slow")
        async with client:
            streams = await asyncio.gather(*(begin(client) for _ in range(50)))
            assert load("slow") == 50
            await asyncio.gather(*(stream.close() for stream in streams))

    before = stats("slow")
    asyncio.run(cancel())
    assert_cancelled("slow", before, 50)


@both
def test_broken_stream_is_an_error(api):
    """A replica that dies in mid-stream must not look like one that has finished."""
    client, attempts = api.client("faulty")
    with faults("faulty", {"kind": "cut", "events": 5}):
        stream = api.ask(client, "x", tokens=100, stream=True)
        with pytest.raises((api.sdk.APIConnectionError, httpx2.TransportError)):
            for _ in stream:
                pass
    assert len(attempts) == 1
    eventually(lambda: load("faulty") == 0)
