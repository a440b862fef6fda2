// OpenAI's SDK against CART, as applications use it.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';

import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { LONG, MODEL, load, openaiClient } from './lab.js';

const WEATHER = {
  name: 'weather',
  description: 'Tells the weather of a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', enum: ['Zürich', 'Oslo'] }, days: { type: 'integer' } },
    required: ['city', 'days'],
  },
};
const weatherTool = { type: 'function', function: WEATHER };
const forecast = { city: 'Zürich', days: 7 };

const House = z.object({
  rooms: z.array(z.object({ name: z.string(), kind: z.enum(['kitchen', 'bath']) })),
  floors: z.number().int(),
  sold: z.boolean(),
});

const says = (content) => [{ role: 'user', content }];

describe('openai', () => {
  const { client, attempts } = openaiClient();

  test('chat', async () => {
    const answer = await client.chat.completions.create({
      model: MODEL, max_tokens: 9, messages: [{ role: 'system', content: LONG }, ...says('Grüezi — 你好 🙂')],
    });
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.choices[0].message.content.length, 36);
    assert.equal(answer.choices[0].finish_reason, 'length');
    assert.equal(answer.usage.completion_tokens, 9);
  });

  test('a chat that grows stays where it is cached', async () => {
    const messages = [{ role: 'system', content: 'Growing. ' + LONG }];
    const peers = new Set();
    const reasons = [];
    let cached = 0;
    for (let turn = 0; turn < 4; turn++) {
      messages.push(...says(`turn ${turn}: go on`));
      const { data, response } = await client.chat.completions.create({ model: MODEL, messages }).withResponse();
      messages.push(data.choices[0].message);
      peers.add(response.headers.get('x-routed-peer'));
      reasons.push(response.headers.get('x-cart-reason'));
      cached = data.usage.prompt_tokens_details.cached_tokens;
    }
    assert.equal(peers.size, 1);
    assert.deepEqual(reasons, ['miss', 'cache_hit', 'cache_hit', 'cache_hit']);
    assert.ok(cached > 200);
  });

  test('streaming', async () => {
    let text = '';
    let usage;
    for await (const chunk of await client.chat.completions.create({
      model: MODEL, messages: says('stream it'), stream: true, stream_options: { include_usage: true }, max_tokens: 12,
    })) {
      text += chunk.choices[0]?.delta.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text.length, 48);
    assert.equal(usage.completion_tokens, 12);
  });

  test('stream helper', async () => {
    const stream = client.chat.completions.stream({ model: MODEL, messages: says('help') });
    let text = '';
    stream.on('content', (delta) => (text += delta));
    assert.equal(await stream.finalContent(), text);
    assert.equal(text.length, 64);
  });

  test('tools loop', async () => {
    const messages = [{ role: 'system', content: 'Tools. ' + LONG }, ...says('What is the weather?')];
    const first = await client.chat.completions.create({ model: MODEL, messages, tools: [weatherTool] }).withResponse();
    const [choice] = first.data.choices;
    assert.equal(choice.finish_reason, 'tool_calls');
    const [call] = choice.message.tool_calls;
    assert.equal(call.function.name, 'weather');
    assert.deepEqual(JSON.parse(call.function.arguments), forecast);
    messages.push(choice.message, { role: 'tool', tool_call_id: call.id, content: '{"sun": true}' });
    const second = await client.chat.completions.create({ model: MODEL, messages, tools: [weatherTool] }).withResponse();
    assert.equal(second.data.choices[0].finish_reason, 'stop');
    assert.ok(second.data.usage.prompt_tokens_details.cached_tokens > 200);
    assert.equal(second.response.headers.get('x-routed-peer'), first.response.headers.get('x-routed-peer'));
    assert.equal(second.response.headers.get('x-cart-reason'), 'cache_hit');
  });

  test('runTools runs the loop itself', async () => {
    const asked = [];
    const run = (args) => (asked.push(args), 'sunny');
    const runner = client.chat.completions.runTools({
      model: MODEL,
      messages: says('What is the weather?'),
      tools: [{ type: 'function', function: { ...WEATHER, parse: JSON.parse, function: run } }],
    });
    assert.ok(await runner.finalContent());
    assert.deepEqual(asked, [forecast]);
  });

  test('streamed tool call', async () => {
    const stream = client.chat.completions.stream({ model: MODEL, messages: says('weather, streamed'), tools: [weatherTool] });
    const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
    assert.deepEqual(JSON.parse(call.function.arguments), forecast);
  });

  test('structured output', async () => {
    const answer = await client.chat.completions.parse({
      model: MODEL, messages: says('describe a house'), response_format: zodResponseFormat(House, 'house'),
    });
    const house = answer.choices[0].message.parsed;
    assert.equal(house.rooms[0].kind, 'kitchen');
    assert.equal(house.floors, 7);
  });

  for (const size of [1_000, 700_000]) {
    test(`vision data URL of ${size} bytes`, async () => {
      const url = 'data:image/png;base64,' + randomBytes(size).toString('base64');
      const content = [{ type: 'text', text: 'What is this?' }, { type: 'image_url', image_url: { url } }];
      const answer = await client.chat.completions.create({ model: MODEL, messages: says(content) });
      assert.ok(answer.usage.prompt_tokens > size / 4);
    });
  }

  test('completions', async () => {
    const answer = await client.completions.create({ model: MODEL, prompt: ['one', 'two'], max_tokens: 3 });
    assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1]);
    let text = '';
    for await (const chunk of await client.completions.create({ model: MODEL, prompt: [1, 2, 3], max_tokens: 3, stream: true })) {
      text += chunk.choices[0].text;
    }
    assert.equal(text.length, 12);
  });

  test('responses', async () => {
    const answer = await client.responses.create({ model: MODEL, instructions: LONG, input: 'hello', max_output_tokens: 5 });
    assert.equal(answer.output_text.length, 20);
    const stream = client.responses.stream({ model: MODEL, input: 'hello' });
    let text = '';
    for await (const event of stream) if (event.type === 'response.output_text.delta') text += event.delta;
    assert.equal((await stream.finalResponse()).output_text, text);
  });

  test('responses: tools loop', async () => {
    const tools = [{ type: 'function', ...WEATHER, strict: false }];
    const input = says('weather? ' + LONG);
    const first = await client.responses.create({ model: MODEL, input, tools });
    const call = first.output.find((item) => item.type === 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), forecast);
    input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: 'sunny' });
    const second = await client.responses.create({ model: MODEL, input, tools });
    assert.ok(second.output_text);
    assert.ok(second.usage.input_tokens_details.cached_tokens > 200);
  });

  test('responses: structured output', async () => {
    const answer = await client.responses.parse({
      model: MODEL, input: 'describe a house', text: { format: zodTextFormat(House, 'house') },
    });
    assert.equal(answer.output_parsed.rooms[0].kind, 'kitchen');
  });

  test('embeddings', async () => {
    const input = ['a', 'b'];
    const answer = await client.embeddings.create({ model: MODEL, input }); // which the SDK asks for in base64
    const plain = await client.embeddings.create({ model: MODEL, input, encoding_format: 'float' });
    assert.equal(answer.data.length, 2);
    answer.data[1].embedding.forEach((x, i) => assert.ok(Math.abs(x - plain.data[1].embedding[i]) < 1e-6));
  });

  test('models list', async () => {
    for (const from of ['a replica', 'what CART keeps']) {
      const models = [];
      for await (const model of client.models.list()) models.push(model.id);
      assert.deepEqual(models, [MODEL], from);
    }
  });

  test('50 at once', async () => {
    const before = attempts.length;
    const texts = await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        const messages = [{ role: 'system', content: LONG }, ...says(`number ${i}`)];
        if (i % 2) return (await client.chat.completions.create({ model: MODEL, messages })).choices[0].message.content;
        return client.chat.completions.stream({ model: MODEL, messages }).finalContent();
      }),
    );
    assert.ok(texts.every((text) => text.length === 64));
    assert.equal(new Set(texts).size, 50, 'answers went to the wrong callers');
    assert.equal(attempts.length - before, 50, 'the SDK had to retry');
    assert.equal(await load('main'), 0);
  });
});
