// What the tests share: the pools behind Traefik, clients that note what they send, and looks at replicas and at CART.
// Nothing is set on the clients that a user would not set, but for the fetch that notes each request.

import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { appendFileSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const LAB = JSON.parse(readFileSync(process.env.CART_LAB));

export const MODEL = LAB.model;

// At least so many characters make a prompt that CART finds again.
export const LONG = 'You are an assistant who answers briefly and to the point. '.repeat(20);

const CALL_HEADER = 'x-client-call';

// noting returns a fetch that adds each attempt to a list, and tells the tests' server of it once it is answered.
function noting(attempts) {
  return async (url, init = {}) => {
    assert.ok(init.body == null || typeof init.body === 'string', 'the SDK sends bodies as text');
    const body = Buffer.from(init.body ?? '');
    const headers = new Headers(init.headers);
    const { pathname, search } = new URL(url);
    const attempt = {
      id: randomUUID(),
      method: (init.method ?? 'GET').toUpperCase(),
      target: pathname + search,
      bytes: body.length,
      sha256: createHash('sha256').update(body).digest('hex'),
      at: performance.now(),
    };
    headers.set(CALL_HEADER, attempt.id);
    attempt.headers = Object.fromEntries(headers);
    attempts.push(attempt);
    const response = await fetch(url, { ...init, headers });
    attempt.status = response.status;
    attempt.peer = response.headers.get('x-routed-peer') ?? '';
    attempt.ended = performance.now();
    appendFileSync(LAB.sent, JSON.stringify(attempt) + '\n');
    return response;
  };
}

export function openaiClient(pool = 'main', options = {}) {
  const attempts = [];
  const baseURL = LAB.pools[pool].url + '/v1';
  return { client: new OpenAI({ baseURL, apiKey: 'sk-openai', fetch: noting(attempts), ...options }), attempts };
}

export function anthropicClient(pool = 'main', options = {}) {
  const attempts = [];
  const baseURL = LAB.pools[pool].url;
  return { client: new Anthropic({ baseURL, apiKey: 'sk-anthropic', fetch: noting(attempts), ...options }), attempts };
}

async function ask(url, method = 'GET', body) {
  const response = await fetch(url, { method, body: body && JSON.stringify(body) });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${url}: ${response.status} ${text}`);
  return text && JSON.parse(text);
}

// stats is the sum of what the replicas of a pool count.
export async function stats(pool) {
  const total = {};
  for (const url of LAB.pools[pool].replicas) {
    for (const [key, value] of Object.entries(await ask(url + '/_sim/stats'))) {
      if (typeof value === 'number') total[key] = (total[key] ?? 0) + value;
    }
  }
  return total;
}

// load is the number of requests in flight, as CART counts them.
export async function load(pool) {
  const { workers } = await ask(LAB.pools[pool].url + '/workers');
  return workers.reduce((sum, worker) => sum + worker.load, 0);
}

// withFaults runs f while every replica of a pool, or of a list, has a fault.
export async function withFaults(where, fault, f) {
  const urls = (typeof where === 'string' ? LAB.pools[where].replicas : where).map((url) => url + '/_sim/fault');
  for (const url of urls) await ask(url, 'POST', fault);
  try {
    return await f();
  } finally {
    for (const url of urls) await ask(url, 'DELETE');
  }
}

// eventually waits until check() holds, for as long as a busy machine may take.
export async function eventually(check, within = 15_000) {
  const deadline = performance.now() + within;
  while (!(await check())) {
    assert.ok(performance.now() < deadline, `not within ${within} ms: ${check}`);
    await sleep(10);
  }
}

// assertNoneLeft: of the requests that arrived at the replicas since `before`, all were cancelled.
export async function assertNoneLeft(pool, before) {
  await eventually(async () => (await stats(pool)).running === 0 && (await load(pool)) === 0);
  const after = await stats(pool);
  assert.equal(after.aborted - before.aborted, after.requests - before.requests);
  assert.ok(after.aborted > before.aborted);
}

// assertCancelled: the replicas saw `count` clients leave since `before`, and nobody counts them any more.
export async function assertCancelled(pool, before, count = 1) {
  await eventually(async () => (await stats(pool)).aborted === before.aborted + count);
  await eventually(async () => (await stats(pool)).running === 0 && (await load(pool)) === 0);
}
