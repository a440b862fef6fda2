"""Runs llama.cpp's own HTTP server until it is told to end.

usage: serve.py FILE.gguf embeddings|text

Its first line of output is "listening http://127.0.0.1:PORT"."""

import signal
import socket
import sys
import threading

import xllamacpp


def main(model, purpose):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    p = xllamacpp.CommonParams()
    p.model.path = model
    p.model_alias = {"tiny"}
    p.hostnames = ["127.0.0.1"]
    p.port = port
    p.n_parallel = 4
    p.n_ctx = 4 * 8192
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.cache_ram_mib = 64
    p.endpoint_metrics = True
    p.use_jinja = True
    p.offline = True
    p.ui = False
    if purpose == "embeddings":
        p.embedding = True
        p.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    end = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: end.set())
    server = xllamacpp.Server(p)
    print("listening", server.listening_address, flush=True)
    while not end.wait(0.1):
        pass
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
