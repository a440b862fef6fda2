// Anthropic's SDK against CART, as applications use it.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';

import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { z } from 'zod';

import { LONG, MODEL, anthropicClient, load } from './lab.js';

const WEATHER = {
  name: 'weather',
  description: 'Tells the weather of a city.',
  input_schema: {
    type: 'object',
    properties: { city: { type: 'string', enum: ['Zürich', 'Oslo'] }, days: { type: 'integer' } },
    required: ['city', 'days'],
  },
};
const forecast = { city: 'Zürich', days: 7 };

const House = z.object({ floors: z.number(), sold: z.boolean() });

const says = (content) => [{ role: 'user', content }];

describe('anthropic', () => {
  const { client, attempts } = anthropicClient();

  test('message', async () => {
    const answer = await client.messages.create({ model: MODEL, max_tokens: 9, system: LONG, messages: says('Grüezi — 你好 🙂') });
    assert.equal(answer.content[0].text.length, 36);
    assert.equal(answer.stop_reason, 'max_tokens');
    assert.equal(answer.usage.output_tokens, 9);
  });

  test('a marked conversation stays where it is cached', async () => {
    // cache_control moves to the last message with each turn, as clients do it.
    const messages = [];
    const peers = new Set();
    const reasons = [];
    let read = 0;
    for (let turn = 0; turn < 4; turn++) {
      for (const { content } of messages) if (Array.isArray(content)) delete content.at(-1).cache_control;
      messages.push(...says([{ type: 'text', text: `turn ${turn}: go on`, cache_control: { type: 'ephemeral' } }]));
      const { data, response } = await client.messages
        .create({ model: MODEL, max_tokens: 16, system: 'Marked. ' + LONG, messages })
        .withResponse();
      messages.push({ role: 'assistant', content: data.content[0].text });
      peers.add(response.headers.get('x-routed-peer'));
      reasons.push(response.headers.get('x-cart-reason'));
      read = data.usage.cache_read_input_tokens;
    }
    assert.equal(peers.size, 1);
    assert.deepEqual(reasons, ['miss', 'cache_hit', 'cache_hit', 'cache_hit']);
    assert.ok(read > 200);
  });

  test('streaming', async () => {
    const types = [];
    let text = '';
    for await (const event of await client.messages.create({
      model: MODEL, max_tokens: 12, messages: says('stream it'), stream: true,
    })) {
      types.push(event.type);
      if (event.type === 'content_block_delta') text += event.delta.text;
    }
    assert.equal(types[0], 'message_start');
    assert.equal(types.at(-1), 'message_stop');
    assert.equal(text.length, 48);
  });

  test('stream helper', async () => {
    const stream = client.messages.stream({ model: MODEL, max_tokens: 7, messages: says('help') });
    let text = '';
    stream.on('text', (delta) => (text += delta));
    const final = await stream.finalMessage();
    assert.equal(final.content[0].text, text);
    assert.equal(final.usage.output_tokens, 7);
  });

  test('tools loop', async () => {
    const messages = says('What is the weather?');
    const options = { model: MODEL, max_tokens: 1000, system: 'Tools. ' + LONG, tools: [WEATHER] };
    const first = await client.messages.create({ ...options, messages }).withResponse();
    assert.equal(first.data.stop_reason, 'tool_use');
    const [call] = first.data.content;
    assert.deepEqual(call.input, forecast);
    messages.push({ role: 'assistant', content: first.data.content });
    messages.push(...says([{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }]));
    const second = await client.messages.create({ ...options, messages }).withResponse();
    assert.equal(second.data.content[0].type, 'text');
    assert.ok(second.data.usage.cache_read_input_tokens > 200);
    assert.equal(second.response.headers.get('x-routed-peer'), first.response.headers.get('x-routed-peer'));
  });

  test('toolRunner runs the loop itself', async () => {
    // With a query of its own, ?beta=true, and headers to match.
    const asked = [];
    const weather = betaZodTool({
      name: 'weather',
      description: 'Tells the weather.',
      inputSchema: z.object({ city: z.string() }),
      run: ({ city }) => (asked.push(city), 'sunny'),
    });
    const final = await client.beta.messages.toolRunner({
      model: MODEL, max_tokens: 1000, tools: [weather], messages: says('What is the weather?'),
    });
    assert.equal(asked.length, 1);
    assert.ok(final.content[0].text);
  });

  test('streamed tool call', async () => {
    const stream = client.messages.stream({
      model: MODEL, max_tokens: 1000, tools: [WEATHER], messages: says('weather, streamed'),
    });
    const final = await stream.finalMessage();
    assert.deepEqual(final.content[0].input, forecast);
    assert.equal(final.stop_reason, 'tool_use');
  });

  test('structured output', async () => {
    const answer = await client.messages.parse({
      model: MODEL, max_tokens: 1000, messages: says('describe a house'), output_config: { format: zodOutputFormat(House) },
    });
    assert.deepEqual(answer.parsed_output, { floors: 7, sold: true });
  });

  for (const size of [1_000, 700_000]) {
    test(`vision with ${size} bytes`, async () => {
      const source = { type: 'base64', media_type: 'image/png', data: randomBytes(size).toString('base64') };
      const answer = await client.messages.create({
        model: MODEL, max_tokens: 16, messages: says([{ type: 'image', source }, { type: 'text', text: 'What is this?' }]),
      });
      assert.ok(answer.usage.input_tokens > size / 4);
    });
  }

  test('count tokens', async () => {
    const messages = says(LONG);
    const counted = await client.messages.countTokens({ model: MODEL, messages });
    const { usage } = await client.messages.create({ model: MODEL, max_tokens: 1, messages });
    assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
  });

  test('models list', async () => {
    const models = [];
    for await (const model of client.models.list()) models.push(model.id);
    assert.deepEqual(models, [MODEL]);
  });

  test('50 at once', async () => {
    const before = attempts.length;
    const texts = await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        const options = { model: MODEL, max_tokens: 16, system: LONG, messages: says(`number ${i}`) };
        if (i % 2) return (await client.messages.create(options)).content[0].text;
        return client.messages.stream(options).finalText();
      }),
    );
    assert.ok(texts.every((text) => text.length === 64));
    assert.equal(new Set(texts).size, 50, 'answers went to the wrong callers');
    assert.equal(attempts.length - before, 50, 'the SDK had to retry');
    assert.equal(await load('main'), 0);
  });
});
