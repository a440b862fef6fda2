"""The SDKs against llama.cpp behind CART. The model is tiny and answers noise; the forms are the engine's own."""

import asyncio
import json
import urllib.request
from typing import Literal

import anthropic
import openai
import pydantic
import pytest
from lab import LAB, LONG, MODEL, anthropic_client, async_openai_client, eventually, load, openai_client

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Bern"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


class Answer(pydantic.BaseModel):
    city: Literal["Oslo", "Bern"]
    sunny: bool


def says(text):
    return [{"role": "user", "content": text}]


def slots_in_use():
    """As the engines count them."""
    busy = 0
    for url in LAB["pools"]["main"]["replicas"]:
        with urllib.request.urlopen(url + "/metrics", timeout=10) as response:
            for line in response.read().decode().splitlines():
                if line.startswith("llamacpp:requests_processing "):
                    busy += float(line.split()[1])
    return busy


def test_openai_chat_that_grows():
    client, attempts = openai_client()
    messages = [{"role": "system", "content": "Python. " + LONG}]
    for turn in range(3):
        messages += says(f"turn {turn}")
        answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        if turn:
            assert answer.usage.prompt_tokens_details.cached_tokens > 1000
    assert len({attempt["peer"] for attempt in attempts}) == 1


def test_openai_stream():
    client, attempts = openai_client()
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=says("x"), max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].usage.completion_tokens == 20


def test_openai_tools():
    client, attempts = openai_client()
    tool = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
    messages = says("weather?")
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[tool], tool_choice="required", max_tokens=400
    )
    call = answer.choices[0].message.tool_calls[0]  # the model may go on calling until it is cut off
    assert json.loads(call.function.arguments)["city"] in ("Oslo", "Bern")
    messages += [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    assert client.chat.completions.create(model=MODEL, messages=messages, tools=[tool], max_tokens=8).choices


def test_openai_structured_output():
    client, attempts = openai_client()
    answer = client.chat.completions.parse(
        model=MODEL, messages=says("x"), response_format=Answer, max_tokens=2000
    )
    assert answer.choices[0].message.parsed.city in ("Oslo", "Bern")


def test_openai_responses():
    client, attempts = openai_client()
    assert client.responses.create(model=MODEL, input="x", max_output_tokens=5).usage.output_tokens == 5


def test_openai_embeddings():
    client, attempts = openai_client("embeddings")
    answer = client.embeddings.create(model=MODEL, input=["one", "another"])
    plain = client.embeddings.create(model=MODEL, input=["one", "another"], encoding_format="float")
    assert answer.data[0].embedding != answer.data[1].embedding
    assert answer.data[1].embedding == pytest.approx(plain.data[1].embedding, abs=1e-4)


def test_openai_models():
    client, attempts = openai_client()
    assert [model.id for model in client.models.list()] == [MODEL]


def test_openai_50_at_once():
    async def all_of_them():
        client, attempts = async_openai_client()
        async with client:
            calls = (
                client.chat.completions.create(model=MODEL, messages=says(LONG + str(i)), max_tokens=4) for i in range(50)
            )
            return await asyncio.gather(*calls)

    answers = asyncio.run(all_of_them())
    assert sum(answer.usage.completion_tokens for answer in answers) == 200


def test_openai_too_long():
    client, attempts = openai_client()
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
        client.chat.completions.create(model=MODEL, messages=says("x" * 20_000))
    assert len(attempts) == 1


def test_openai_cancelled_stream():
    client, attempts = openai_client()
    stream = client.chat.completions.create(model=MODEL, messages=says("x"), max_tokens=7000, stream=True)
    next(iter(stream))
    stream.close()
    eventually(lambda: load("main") == 0 and slots_in_use() == 0)


def test_anthropic_message_and_stream():
    client, attempts = anthropic_client()
    answer = client.messages.create(model=MODEL, max_tokens=5, system=LONG, messages=says("x"))
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 5
    with client.messages.stream(model=MODEL, max_tokens=5, system=LONG, messages=says("x")) as stream:
        final = stream.get_final_message()
    assert final.usage.output_tokens == 5 and final.usage.cache_read_input_tokens > 1000


def test_anthropic_tools():
    client, attempts = anthropic_client()
    answer = client.messages.create(
        model=MODEL,
        max_tokens=400,
        messages=says("weather?"),
        tools=[{"name": "weather", "input_schema": CITY}],
        tool_choice={"type": "any"},
    )
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert calls[0].input["city"] in ("Oslo", "Bern")


def test_anthropic_count_tokens():
    client, attempts = anthropic_client()
    assert client.messages.count_tokens(model=MODEL, messages=says("hello")).input_tokens > 5


def test_anthropic_too_long():
    client, attempts = anthropic_client()
    with pytest.raises(anthropic.BadRequestError, match="exceeds the available context size"):
        client.messages.create(model=MODEL, max_tokens=5, messages=says("x" * 20_000))
    assert len(attempts) == 1
