// What the SDKs make of CART's and of the replicas' failures: error classes, retries, timeouts, cancelled and broken streams.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, test } from 'node:test';

import Anthropic, { ContentTooLargeError, GatewayTimeoutError, ServiceUnavailableError } from '@anthropic-ai/sdk';
import OpenAI from 'openai';

import { LONG, MODEL, anthropicClient, assertCancelled, assertNoneLeft, eventually, load, openaiClient, stats, withFaults } from './lab.js';

const says = (content) => [{ role: 'user', content }];

// The SDKs' names for what both have, and what CART's errors are called in their APIs.
const apis = {
  openai: {
    sdk: OpenAI,
    connect: openaiClient,
    ask: (client, text, body, options) =>
      client.chat.completions.create({ model: MODEL, max_tokens: 4, messages: says(text), ...body }, options),
    image: (url) => [{ type: 'image_url', image_url: { url } }],
    errorBody: (kind, message) => ({ error: { message, type: kind, param: null, code: kind } }),
    tells: (error) => ({ type: error.type, message: error.error.message }),
    tooLarge: OpenAI.APIError, // there is no class of its own for 413
    unavailable: OpenAI.InternalServerError,
    gatewayTimeout: OpenAI.InternalServerError,
    types: { large: 'invalid_request_error', none: 'server_error', failed: 'server_error', late: 'server_error', model: 'NotFoundError' },
  },
  anthropic: {
    sdk: Anthropic,
    connect: anthropicClient,
    ask: (client, text, body, options) =>
      client.messages.create({ model: MODEL, max_tokens: 4, messages: says(text), ...body }, options),
    image: (url) => [{ type: 'image', source: { type: 'url', url } }],
    errorBody: (kind, message) => ({ type: 'error', error: { type: kind, message } }),
    tells: (error) => ({ type: error.type, message: error.apiMessage }),
    tooLarge: ContentTooLargeError,
    unavailable: ServiceUnavailableError,
    gatewayTimeout: GatewayTimeoutError,
    types: { large: 'request_too_large', none: 'overloaded_error', failed: 'api_error', late: 'timeout_error', model: 'not_found_error' },
  },
};

// thrown is the error of a call: of exactly this class, not of one above it.
async function thrown(exactly, status, call) {
  try {
    await call();
  } catch (error) {
    assert.equal(error.constructor, exactly, `${error}`);
    assert.equal(error.status, status);
    return error;
  }
  return assert.fail('the call succeeded');
}

for (const [name, api] of Object.entries(apis)) {
  const { sdk, ask, types } = api;
  // OpenAI's errors have a code as well.
  const assertTells = (error, type, code, message) => {
    const told = api.tells(error);
    assert.equal(told.type, type);
    assert.match(told.message, message);
    if (name === 'openai') assert.equal(error.code, code);
  };

  describe(name + ', errors that CART makes', () => {
    test('413 body too large', async () => {
      const { client, attempts } = api.connect('small');
      const error = await thrown(api.tooLarge, 413, () => ask(client, 'x'.repeat(5000)));
      assertTells(error, types.large, 'body_too_large', /proxy\.maxBodyBytes/);
      assert.equal(attempts.length, 1, 'what cannot succeed was tried again');
      assert.ok(await ask(client, 'short'));
    });

    test('503 no replica', async () => {
      const { client, attempts } = api.connect('empty', { maxRetries: 0 });
      const error = await thrown(api.unavailable, 503, () => ask(client, 'x'));
      assertTells(error, types.none, 'no_replica', /no replica is usable/);
      assert.equal(error.headers.get('retry-after'), '1');
      assert.equal(attempts.length, 1);
    });

    test('400 remote media', async () => {
      const { client, attempts } = api.connect('picky');
      const error = await thrown(sdk.BadRequestError, 400, () => ask(client, api.image('http://10.0.0.1/cat.png')));
      assertTells(error, 'invalid_request_error', 'remote_media', /data URLs/);
      assert.equal(attempts.length, 1);
    });

    test('502 all replicas broken', async () => {
      const { client } = api.connect('faulty', { maxRetries: 0 });
      const error = await withFaults('faulty', { kind: 'cut' }, () =>
        thrown(sdk.InternalServerError, 502, () => ask(client, 'x')),
      );
      assertTells(error, types.failed, 'all_failed', /no replica answered the request/);
    });

    test('504 too slow', async () => {
      const { client } = api.connect('hasty', { maxRetries: 0 });
      const before = await stats('hasty');
      const error = await withFaults('hasty', { kind: 'hang' }, () =>
        thrown(api.gatewayTimeout, 504, () => ask(client, 'x')),
      );
      assertTells(error, types.late, 'timeout', /in time/);
      await assertNoneLeft('hasty', before);
    });
  });

  describe(name + ', errors that the replicas make', () => {
    test('400', async () => {
      const { client, attempts } = api.connect();
      const error = await thrown(sdk.BadRequestError, 400, () => ask(client, 'x', { max_tokens: 0 }));
      assert.match(error.message, /max_tokens: at least 1 is required/);
      assert.equal(attempts.length, 1);
    });

    test('404', async () => {
      const { client, attempts } = api.connect();
      const error = await thrown(sdk.NotFoundError, 404, () => ask(client, 'x', { model: 'gpt-unknown' }));
      assertTells(error, types.model, 404, /The model `gpt-unknown` does not exist\./);
      assert.equal(attempts.length, 1);
    });

    for (const status of [429, 503]) {
      test(`${status} of all of them`, async () => {
        const { client } = api.connect('faulty', { maxRetries: 0 });
        const body = JSON.stringify(api.errorBody('busy', 'not now'));
        const fault = { kind: 'status', status, headers: { 'Retry-After': '7' }, body };
        const exactly = status === 429 ? sdk.RateLimitError : api.unavailable;
        const error = await withFaults('faulty', fault, () => thrown(exactly, status, () => ask(client, 'x')));
        assertTells(error, 'busy', 'busy', /not now/);
        assert.equal(error.headers.get('retry-after'), '7', "the replica's own wish was changed");
      });
    }
  });

  const assertWaited = (attempts, status) => {
    assert.ok(attempts.length > 1);
    assert.equal(attempts.at(-1).status, 200);
    attempts.slice(0, -1).forEach((attempt, i) => {
      assert.equal(attempt.status, status);
      assert.ok(attempts[i + 1].at - attempt.ended > 950, 'the SDK did not heed Retry-After');
      assert.equal(attempts[i + 1].sha256, attempt.sha256);
    });
  };

  describe(name + ', retries', () => {
    for (const status of [429, 503]) {
      test(`${status} of one replica is no matter of the SDK`, async () => {
        const { client, attempts } = api.connect('faulty');
        const text = LONG + randomUUID();
        await ask(client, text);
        const [{ peer: home }] = attempts;
        const fault = { kind: 'status', status, match: text.slice(-36), headers: { 'Retry-After': '1' } };
        await withFaults([home], fault, () => ask(client, text));
        assert.deepEqual(attempts.map((attempt) => attempt.status), [200, 200]);
        assert.notEqual(attempts[1].peer, home);
      });

      test(`the SDK waits as long as the replicas ask for with a ${status}`, async () => {
        const { client, attempts } = api.connect('faulty');
        const fault = { kind: 'status', status, count: 1, headers: { 'Retry-After': '1' } };
        assert.ok(await withFaults('faulty', fault, () => ask(client, 'x')));
        assertWaited(attempts, status);
      });
    }

    test('the SDK waits for a place', async () => {
      // All places are taken: CART's 503 says 1 s, the SDK waits that long and then gets the one that is free by then.
      const { client, attempts } = api.connect('full');
      const before = await stats('full');
      const stream = await ask(api.connect('full').client, 'hold the only place', { max_tokens: 1000, stream: true });
      try {
        const error = await thrown(api.unavailable, 503, () => ask(client, 'x', {}, { maxRetries: 0 }));
        assertTells(error, types.none, 'all_full', /maxLoad/);
        attempts.length = 0;
        const answer = ask(client, 'y');
        await eventually(() => attempts[0]?.ended);
        stream.controller.abort();
        assert.ok(await answer);
      } finally {
        stream.controller.abort();
      }
      assertWaited(attempts, 503);
      assert.equal((await stats('full')).requests, before.requests + 2, 'a refused attempt reached the replica');
      await assertCancelled('full', before);
    });
  });

  describe(name + ', timeouts and cancelled streams', () => {
    test('timeout of the SDK', async () => {
      const { client, attempts } = api.connect('slow', { timeout: 1000, maxRetries: 1 });
      const before = await stats('slow');
      await withFaults('slow', { kind: 'hang' }, async () => {
        await assert.rejects(ask(client, 'x'), sdk.APIConnectionTimeoutError);
        assert.equal(attempts.length, 2);
        await assertNoneLeft('slow', before);
      });
    });

    test('a stream that is left', async () => {
      const { client } = api.connect('slow');
      const before = await stats('slow');
      for await (const _ of await ask(client, 'a long story', { max_tokens: 1000, stream: true })) break;
      await assertCancelled('slow', before);
    });

    test('an aborted call', async () => {
      const { client } = api.connect('slow');
      const before = await stats('slow');
      const controller = new AbortController();
      const answer = ask(client, 'a long answer', { max_tokens: 1000 }, { signal: controller.signal });
      await eventually(async () => (await stats('slow')).running === 1);
      controller.abort();
      await assert.rejects(answer, sdk.APIUserAbortError);
      await assertCancelled('slow', before);
    });

    test('50 cancelled at once', async () => {
      const { client } = api.connect('slow');
      const before = await stats('slow');
      const options = { max_tokens: 1000, stream: true };
      const streams = await Promise.all(Array.from({ length: 50 }, () => ask(client, randomUUID(), options)));
      assert.equal(await load('slow'), 50);
      for (const stream of streams) stream.controller.abort();
      await assertCancelled('slow', before, 50);
    });

    test('a broken stream is an error', async () => {
      // A replica that dies in mid-stream must not look like one that has finished.
      const { client, attempts } = api.connect('faulty');
      await withFaults('faulty', { kind: 'cut', events: 5 }, () =>
        assert.rejects(async () => {
          for await (const _ of await ask(client, 'x', { max_tokens: 100, stream: true }));
        }, /terminated|Connection error/),
      );
      assert.equal(attempts.length, 1);
      await eventually(async () => (await load('faulty')) === 0);
    });
  });
}
