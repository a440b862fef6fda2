"""Serves the model of model.py with vLLM on the CPU, until it gets SIGTERM or its standard input ends.

usage: serve.py MODEL PORT BLOCKS      BLOCKS blocks of 128 tokens are the KV cache
"""

import os
import runpy
import signal
import sys
import threading

# The engine runs in a process of its own, which has to find these set.
os.environ.update(
    VLLM_TARGET_DEVICE="cpu",  # no search for others
    VLLM_CPU_KVCACHE_SPACE="1",  # GiB; the number of blocks below is what counts
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS="1",
    VLLM_SERVER_DEV_MODE="1",  # for /reset_prefix_cache
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
)


def end_with_input() -> None:
    """Ends the whole process group when whoever started this has ended, however it ended."""
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    model, port, blocks = sys.argv[1:4]
    threading.Thread(target=end_with_input, daemon=True).start()
    sys.argv = [sys.argv[0], "--model", model]
    sys.argv += ["--host", "127.0.0.1", "--port", port, "--served-model-name", "tiny"]
    # A CPU without instructions for shorter numbers computes these many times faster.
    sys.argv += ["--load-format", "dummy", "--dtype", "float32", "--enforce-eager"]
    sys.argv += ["--max-model-len", "8192", "--max-num-seqs", "16", "--num-gpu-blocks-override", blocks]
    sys.argv += ["--enable-prompt-tokens-details"]
    # The command vllm does the same, but it wants a distribution of its own name.
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")


if __name__ == "__main__":
    main()
