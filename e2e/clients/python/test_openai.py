"""OpenAI's SDK against CART, as applications use it."""

import asyncio
import base64
import json
import os
from typing import Literal

import openai
import pydantic
import pytest
from lab import LONG, MODEL, async_openai_client, load, openai_client

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Zürich", "Oslo"]}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}


class Room(pydantic.BaseModel):
    name: str
    kind: Literal["kitchen", "bath"]


class House(pydantic.BaseModel):
    """A schema with a part of its own, as pydantic writes it: with $defs and $ref."""

    rooms: list[Room]
    floors: int
    sold: bool


@pytest.fixture
def client():
    client, attempts = openai_client()
    with client:
        yield client
    assert attempts, "the SDK did not use the transport that notes what it sends"


def test_chat(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "system", "content": LONG}, {"role": "user", "content": "Grüezi — 你好 🙂"}], max_tokens=9
    )
    assert answer.object == "chat.completion" and answer.model == MODEL
    assert len(answer.choices[0].message.content) == 36
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 9


def test_chat_that_grows_stays_where_it_is_cached(client):
    messages = [{"role": "system", "content": "Growing. " + LONG}]
    peers, reasons, cached = set(), [], 0
    for turn in range(4):
        messages.append({"role": "user", "content": f"turn {turn}: go on"})
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
        answer = raw.parse()
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        peers.add(raw.headers["x-routed-peer"])
        reasons.append(raw.headers["x-cart-reason"])
        cached = answer.usage.prompt_tokens_details.cached_tokens
    assert len(peers) == 1
    assert reasons[0] == "miss" and set(reasons[1:]) == {"cache_hit"}
    assert cached > 200


def test_streaming(client):
    text, usage, finish = "", None, None
    for chunk in client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "stream it"}],
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=12,
    ):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
        usage = chunk.usage or usage
    assert len(text) == 48 and finish == "length"
    assert usage.completion_tokens == 12


def test_stream_helper(client):
    with client.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": "help"}]) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "".join(deltas) and len(final.choices[0].message.content) == 64


def test_tools_loop(client):
    messages = [{"role": "system", "content": "Tools. " + LONG}, {"role": "user", "content": "What is the weather?"}]
    first = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, tools=[WEATHER])
    answer = first.parse()
    assert answer.choices[0].finish_reason == "tool_calls"
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Zürich", "days": 7}
    messages.append(answer.choices[0].message)  # as the SDK's own object
    messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"sun": true}'})
    second = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, tools=[WEATHER])
    assert second.parse().choices[0].finish_reason == "stop"
    assert second.parse().usage.prompt_tokens_details.cached_tokens > 200
    assert second.headers["x-routed-peer"] == first.headers["x-routed-peer"]
    assert second.headers["x-cart-reason"] == "cache_hit"


def test_streamed_tool_call(client):
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "weather, streamed"}], tools=[WEATHER]
    ) as stream:
        final = stream.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert call.function.name == "weather" and json.loads(call.function.arguments) == {"city": "Zürich", "days": 7}
    assert call.id


def test_structured_output(client):
    answer = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "describe a house"}], response_format=House
    )
    house = answer.choices[0].message.parsed
    assert house.rooms[0].kind == "kitchen" and house.floors == 7 and house.sold


def test_json_object(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "JSON, please"}], response_format={"type": "json_object"}
    )
    assert "answer" in json.loads(answer.choices[0].message.content)


@pytest.mark.parametrize("size", [1_000, 700_000])
def test_vision_data_url(client, size):
    image = base64.b64encode(os.urandom(size)).decode()
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64," + image}},
                ],
            }
        ],
    )
    assert answer.usage.prompt_tokens > size / 4 and answer.choices[0].message.content


def test_completions(client):
    answer = client.completions.create(model=MODEL, prompt=["one", "two"], max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    streamed = client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=3, stream=True)
    assert len("".join(chunk.choices[0].text for chunk in streamed)) == 12


def test_responses(client):
    answer = client.responses.create(model=MODEL, instructions=LONG, input="hello", max_output_tokens=5)
    assert answer.status == "completed" and len(answer.output_text) == 20
    with client.responses.stream(model=MODEL, input="hello") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == "".join(deltas)


def test_responses_tools_loop(client):
    tool = {"type": "function", **WEATHER["function"], "strict": False}
    messages = [{"role": "user", "content": "weather? " + LONG}]
    first = client.responses.create(model=MODEL, input=messages, tools=[tool])
    (call,) = (item for item in first.output if item.type == "function_call")
    assert call.name == "weather" and json.loads(call.arguments) == {"city": "Zürich", "days": 7}
    messages += first.output
    messages.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    second = client.responses.create(model=MODEL, input=messages, tools=[tool])
    assert second.output_text and second.usage.input_tokens_details.cached_tokens > 200


def test_responses_structured_output(client):
    answer = client.responses.parse(model=MODEL, input="describe a house", text_format=House)
    assert answer.output_parsed.rooms[0].kind == "kitchen"


def test_embeddings(client):
    answer = client.embeddings.create(model=MODEL, input=["a", "b"])  # which the SDK asks for in base64
    plain = client.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float")
    assert len(answer.data) == 2 and answer.data[0].embedding != answer.data[1].embedding
    assert answer.data[1].embedding == pytest.approx(plain.data[1].embedding, abs=1e-6)


def test_models_list(client):
    for _ in range(2):  # from a replica, then from what CART keeps
        models = list(client.models.list())
        assert [model.id for model in models] == [MODEL] and models[0].owned_by == "vllm"


def test_members_that_the_sdk_does_not_know_pass(client):
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "x"}],
        extra_body={"cache_salt": "mine", "top_k": 3, "big": 12345678901234567890, "half": 0.50},
        extra_query={"trace": "a b&c"},
        extra_headers={"x-tenant": "blue"},
    )
    assert answer.choices


def test_50_at_once():
    async def one(client, i):
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": f"number {i}"}]
        if i % 2:
            answer = await client.chat.completions.create(model=MODEL, messages=messages)
            return answer.choices[0].message.content
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them():
        client, attempts = async_openai_client()
        async with client:
            texts = await asyncio.gather(*(one(client, i) for i in range(50)))
        return texts, attempts

    texts, attempts = asyncio.run(all_of_them())
    assert all(len(text) == 64 for text in texts)
    assert len(set(texts)) == 50, "answers went to the wrong callers"
    assert len(attempts) == 50, "the SDK had to retry"
    assert load("main") == 0
