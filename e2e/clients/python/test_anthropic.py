"""Anthropic's SDK against CART, as applications use it."""

import asyncio
import base64
import os

import anthropic
import pydantic
import pytest
from lab import LONG, MODEL, anthropic_client, async_anthropic_client, load

WEATHER = {
    "name": "weather",
    "description": "Tells the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Zürich", "Oslo"]}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}


class House(pydantic.BaseModel):
    floors: int
    sold: bool


@pytest.fixture
def client():
    client, attempts = anthropic_client()
    with client:
        yield client
    assert attempts, "the SDK did not use the transport that notes what it sends"


def test_message(client):
    answer = client.messages.create(
        model=MODEL, max_tokens=9, system=LONG, messages=[{"role": "user", "content": "Grüezi — 你好 🙂"}]
    )
    assert answer.type == "message" and answer.model == MODEL
    assert len(answer.content[0].text) == 36
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 9


def test_marked_conversation_stays_where_it_is_cached(client):
    """cache_control moves to the last message with each turn, as clients do it."""
    messages, peers, reasons, read = [], set(), [], 0
    for turn in range(4):
        for message in messages:
            if isinstance(message["content"], list):
                message["content"][-1].pop("cache_control", None)
        part = {"type": "text", "text": f"turn {turn}: go on", "cache_control": {"type": "ephemeral"}}
        messages.append({"role": "user", "content": [part]})
        raw = client.messages.with_raw_response.create(
            model=MODEL, max_tokens=16, system="Marked. " + LONG, messages=messages
        )
        answer = raw.parse()
        messages.append({"role": "assistant", "content": answer.content[0].text})
        peers.add(raw.headers["x-routed-peer"])
        reasons.append(raw.headers["x-cart-reason"])
        read = answer.usage.cache_read_input_tokens
    assert len(peers) == 1
    assert reasons[0] == "miss" and set(reasons[1:]) == {"cache_hit"}
    assert read > 200


def test_streaming(client):
    events = list(
        client.messages.create(
            model=MODEL, max_tokens=12, messages=[{"role": "user", "content": "stream it"}], stream=True
        )
    )
    assert events[0].type == "message_start" and events[-1].type == "message_stop"
    text = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    assert len(text) == 48


def test_stream_helper(client):
    with client.messages.stream(model=MODEL, max_tokens=7, messages=[{"role": "user", "content": "help"}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].text == text and len(text) == 28
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == 7


def test_tools_loop(client):
    messages = [{"role": "user", "content": "What is the weather?"}]
    options = {"model": MODEL, "max_tokens": 1000, "system": "Tools. " + LONG, "tools": [WEATHER]}
    first = client.messages.with_raw_response.create(messages=messages, **options)
    answer = first.parse()
    assert answer.stop_reason == "tool_use"
    call = answer.content[0]
    assert call.name == "weather" and call.input == {"city": "Zürich", "days": 7}
    messages.append({"role": "assistant", "content": answer.content})  # as the SDK's own objects
    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]})
    second = client.messages.with_raw_response.create(messages=messages, **options)
    assert second.parse().content[0].type == "text"
    assert second.parse().usage.cache_read_input_tokens > 200
    assert second.headers["x-routed-peer"] == first.headers["x-routed-peer"]


def test_tool_runner(client):
    """The beta helper runs the loop itself, with a query of its own (?beta=true) and headers to match."""
    asked = []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Tells the weather.

        Args:
            city: where
        """
        asked.append(city)
        return "sunny"

    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=1000, tools=[weather], messages=[{"role": "user", "content": "What is the weather?"}]
    )
    final = runner.until_done()
    assert len(asked) == 1 and final.content[0].text


def test_streamed_tool_call(client):
    with client.messages.stream(
        model=MODEL, max_tokens=1000, tools=[WEATHER], messages=[{"role": "user", "content": "weather, streamed"}]
    ) as stream:
        final = stream.get_final_message()
    assert final.content[0].input == {"city": "Zürich", "days": 7} and final.stop_reason == "tool_use"


def test_structured_output(client):
    answer = client.messages.parse(
        model=MODEL, max_tokens=1000, messages=[{"role": "user", "content": "describe a house"}], output_format=House
    )
    assert answer.parsed_output == House(floors=7, sold=True)


@pytest.mark.parametrize("size", [1_000, 700_000])
def test_vision(client, size):
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(os.urandom(size)).decode()}
    answer = client.messages.create(
        model=MODEL,
        max_tokens=16,
        messages=[
            {"role": "user", "content": [{"type": "image", "source": image}, {"type": "text", "text": "What is this?"}]}
        ],
    )
    assert answer.usage.input_tokens > size / 4 and answer.content[0].text


def test_count_tokens(client):
    messages = [{"role": "user", "content": LONG}]
    counted = client.messages.count_tokens(model=MODEL, messages=messages).input_tokens
    used = client.messages.create(model=MODEL, max_tokens=1, messages=messages).usage
    assert counted == used.input_tokens + used.cache_read_input_tokens


def test_models_list(client):
    assert [model.id for model in client.models.list()] == [MODEL]


def test_50_at_once():
    async def one(client, i):
        options = {"model": MODEL, "max_tokens": 16, "system": LONG, "messages": [{"role": "user", "content": f"number {i}"}]}
        if i % 2:
            return (await client.messages.create(**options)).content[0].text
        async with client.messages.stream(**options) as stream:
            return await stream.get_final_text()

    async def all_of_them():
        client, attempts = async_anthropic_client()
        async with client:
            texts = await asyncio.gather(*(one(client, i) for i in range(50)))
        return texts, attempts

    texts, attempts = asyncio.run(all_of_them())
    assert all(len(text) == 64 for text in texts)
    assert len(set(texts)) == 50, "answers went to the wrong callers"
    assert len(attempts) == 50, "the SDK had to retry"
    assert load("main") == 0
