"""What the tests share: the pools behind Traefik, clients that note what they send, and looks at replicas and at CART.

Nothing is set on the clients that a user would not set, but for the transport that notes each request.
"""

import hashlib
import json
import os
import threading
import time
import urllib.request
import uuid

import anthropic
import httpx2
import openai

with open(os.environ["CART_LAB"]) as f:
    LAB = json.load(f)

MODEL = LAB["model"]

# At least so many characters make a prompt that CART finds again.
LONG = "You are an assistant who answers briefly and to the point. " * 20

CALL_HEADER = "x-client-call"

opened = []  # clients, which the test that opened them does not have to close

_sent = threading.Lock()


class Attempts(list):
    """The attempts of one client, in order: dicts as written for the tests' server, with the time as well."""

    def note(self, request, body):
        attempt = {
            "id": uuid.uuid4().hex,
            "method": request.method,
            "target": request.url.raw_path.decode(),
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "at": time.monotonic(),
        }
        request.headers[CALL_HEADER] = attempt["id"]
        attempt["headers"] = {name.lower(): value for name, value in request.headers.items()}
        self.append(attempt)
        return attempt

    def answered(self, attempt, response):
        attempt["status"] = response.status_code
        attempt["peer"] = response.headers.get("x-routed-peer", "")
        attempt["ended"] = time.monotonic()
        with _sent, open(LAB["sent"], "a") as out:
            out.write(json.dumps(attempt) + "\n")


class Transport(httpx2.HTTPTransport):
    def __init__(self, attempts):
        super().__init__()
        self.attempts = attempts

    def handle_request(self, request):
        attempt = self.attempts.note(request, request.read())
        response = super().handle_request(request)
        self.attempts.answered(attempt, response)
        return response


class AsyncTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, attempts):
        super().__init__()
        self.attempts = attempts

    async def handle_async_request(self, request):
        attempt = self.attempts.note(request, await request.aread())
        response = await super().handle_async_request(request)
        self.attempts.answered(attempt, response)
        return response


def openai_client(pool="main", **options):
    attempts = Attempts()
    client = openai.OpenAI(
        base_url=LAB["pools"][pool]["url"] + "/v1",
        api_key="sk-openai",
        http_client=openai.DefaultHttpxClient(transport=Transport(attempts)),
        **options,
    )
    opened.append(client)
    return client, attempts


def async_openai_client(pool="main", **options):
    attempts = Attempts()
    client = openai.AsyncOpenAI(
        base_url=LAB["pools"][pool]["url"] + "/v1",
        api_key="sk-openai",
        http_client=openai.DefaultAsyncHttpxClient(transport=AsyncTransport(attempts)),
        **options,
    )
    return client, attempts


def anthropic_client(pool="main", **options):
    attempts = Attempts()
    client = anthropic.Anthropic(
        base_url=LAB["pools"][pool]["url"],
        api_key="sk-anthropic",
        http_client=anthropic.DefaultHttpxClient(transport=Transport(attempts)),
        **options,
    )
    opened.append(client)
    return client, attempts


def async_anthropic_client(pool="main", **options):
    attempts = Attempts()
    client = anthropic.AsyncAnthropic(
        base_url=LAB["pools"][pool]["url"],
        api_key="sk-anthropic",
        http_client=anthropic.DefaultAsyncHttpxClient(transport=AsyncTransport(attempts)),
        **options,
    )
    return client, attempts


def fetch(url, method="GET", body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=10) as response:
        text = response.read()
    return json.loads(text) if text else None


def stats(pool):
    """The sum of what the replicas of a pool count."""
    total = {}
    for url in LAB["pools"][pool]["replicas"]:
        for key, value in fetch(url + "/_sim/stats").items():
            if isinstance(value, int):
                total[key] = total.get(key, 0) + value
    return total


def load(pool):
    """The requests in flight, as CART counts them."""
    return sum(worker["load"] for worker in fetch(LAB["pools"][pool]["url"] + "/workers")["workers"])


class faults:
    """Every replica of a pool, or of a list, has these faults while the block runs."""

    def __init__(self, where, *list):
        replicas = LAB["pools"][where]["replicas"] if isinstance(where, str) else where
        self.urls = [url + "/_sim/fault" for url in replicas]
        self.list = list

    def __enter__(self):
        for url in self.urls:
            fetch(url, "POST", self.list)

    def __exit__(self, *_):
        for url in self.urls:
            fetch(url, "DELETE")


def eventually(check, within=15):
    """Waits until check() is true, for as long as a busy machine may take."""
    deadline = time.monotonic() + within
    while not check():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.01)


def assert_cancelled(pool, before, count=1):
    """The replicas saw `count` clients leave since `before`, and nobody counts them any more."""
    eventually(lambda: stats(pool)["aborted"] == before["aborted"] + count)
    eventually(lambda: stats(pool)["running"] == 0 and load(pool) == 0)


def assert_none_left(pool, before):
    """Of the requests that arrived at the replicas since `before`, all were cancelled."""
    eventually(lambda: stats(pool)["running"] == 0 and load(pool) == 0)
    after = stats(pool)
    assert after["aborted"] - before["aborted"] == after["requests"] - before["requests"] > 0
