// The SDKs against llama.cpp behind CART. The model is tiny and answers noise; the forms are the engine's own.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { LONG, MODEL, anthropicClient, eventually, load, openaiClient } from './lab.js';

const CITY = {
  type: 'object',
  properties: { city: { type: 'string', enum: ['Oslo', 'Bern'] }, days: { type: 'integer', maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const Answer = z.object({ city: z.enum(['Oslo', 'Bern']), sunny: z.boolean() });

const says = (content) => [{ role: 'user', content }];

describe('openai', () => {
  test('a chat that grows', async () => {
    const { client, attempts } = openaiClient();
    const messages = [{ role: 'system', content: 'Node. ' + LONG }];
    for (let turn = 0; turn < 3; turn++) {
      messages.push(...says(`turn ${turn}`));
      const answer = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 8 });
      messages.push(answer.choices[0].message);
      if (turn) assert.ok(answer.usage.prompt_tokens_details.cached_tokens > 1000);
    }
    assert.equal(new Set(attempts.map((attempt) => attempt.peer)).size, 1);
  });

  test('stream', async () => {
    const { client } = openaiClient();
    let usage;
    for await (const chunk of await client.chat.completions.create({
      model: MODEL, messages: says('x'), max_tokens: 20, stream: true, stream_options: { include_usage: true },
    })) {
      usage = chunk.usage ?? usage;
    }
    assert.equal(usage.completion_tokens, 20);
  });

  test('streamed tool call', async () => {
    const { client } = openaiClient();
    const tools = [{ type: 'function', function: { name: 'weather', parameters: CITY } }];
    // Not with the SDK's helper: llama.cpp leaves the role out of this stream, and the helper insists on it.
    let text = '';
    for await (const chunk of await client.chat.completions.create({
      model: MODEL, messages: says('weather?'), tools, tool_choice: 'required', max_tokens: 400, stream: true,
    })) {
      // The model may go on calling until it is cut off.
      for (const call of chunk.choices[0]?.delta.tool_calls ?? []) if (call.index === 0) text += call.function.arguments;
    }
    assert.ok(['Oslo', 'Bern'].includes(JSON.parse(text).city));
  });

  test('structured output', async () => {
    const { client } = openaiClient();
    const answer = await client.chat.completions.parse({
      model: MODEL, messages: says('x'), response_format: zodResponseFormat(Answer, 'answer'), max_tokens: 2000,
    });
    assert.ok(['Oslo', 'Bern'].includes(answer.choices[0].message.parsed.city));
  });

  test('embeddings', async () => {
    const { client } = openaiClient('embeddings');
    const { data } = await client.embeddings.create({ model: MODEL, input: ['one', 'another'] });
    assert.ok(data.length === 2 && data[0].embedding.length > 10);
  });

  test('too long', async () => {
    const { client, attempts } = openaiClient();
    await assert.rejects(client.chat.completions.create({ model: MODEL, messages: says('x'.repeat(20_000)) }), (error) => {
      assert.equal(error.constructor, OpenAI.BadRequestError);
      return /exceeds the available context size/.test(error.message);
    });
    assert.equal(attempts.length, 1);
  });

  test('cancelled stream', async () => {
    const { client } = openaiClient();
    for await (const _ of await client.chat.completions.create({
      model: MODEL, messages: says('x'), max_tokens: 7000, stream: true,
    })) break;
    await eventually(async () => (await load('main')) === 0);
  });
});

describe('anthropic', () => {
  test('message and stream', async () => {
    const { client } = anthropicClient();
    const options = { model: MODEL, max_tokens: 5, system: 'Node again. ' + LONG, messages: says('x') };
    const answer = await client.messages.create(options);
    assert.equal(answer.stop_reason, 'max_tokens');
    const final = await client.messages.stream(options).finalMessage();
    assert.equal(final.usage.output_tokens, 5);
    assert.ok(final.usage.cache_read_input_tokens > 1000);
  });

  test('tools', async () => {
    const { client } = anthropicClient();
    const answer = await client.messages.create({
      model: MODEL, max_tokens: 400, messages: says('weather?'), tools: [{ name: 'weather', input_schema: CITY }],
      tool_choice: { type: 'any' },
    });
    assert.ok(['Oslo', 'Bern'].includes(answer.content.find((block) => block.type === 'tool_use').input.city));
  });

  test('too long', async () => {
    const { client, attempts } = anthropicClient();
    const call = client.messages.create({ model: MODEL, max_tokens: 5, messages: says('x'.repeat(20_000)) });
    await assert.rejects(call, (error) => {
      assert.equal(error.constructor, Anthropic.BadRequestError);
      return /exceeds the available context size/.test(error.message);
    });
    assert.equal(attempts.length, 1);
  });
});
