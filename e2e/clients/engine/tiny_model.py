"""Writes a tiny chat model with random weights, for a real engine that need not say anything sensible.

usage: tiny_model.py FILE.gguf

It has Qwen2's architecture and one token for each byte. What it answers is noise, but caching, streaming, grammars and the
forms of answers are the engine's own. One token is likelier than the others everywhere: the one that begins a tool's call,
so that an answer which has to contain a call, as the engine's grammar then demands, comes to it soon.
"""

import sys

import gguf
import numpy as np

LAYERS, HIDDEN, HEADS, CONTEXT, SEED = 2, 64, 4, 32768, 7

# The form of a tool's call is what llama.cpp recognises, and then enforces.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}
Return a call as JSON: <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif -%}
{%- for message in messages %}<|im_start|>{{ message.role }}
{%- if message.content %}
{{ message.content }}
{%- endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""


def byte_tokens():
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    names = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


def main(path):
    random = np.random.default_rng(SEED)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    call = '<tool_call>\n{"name": "'
    tokens = byte_tokens()
    # llama.cpp wants at least one merge.
    merged = ["th"]
    kinds = [gguf.TokenType.NORMAL] * (len(tokens) + len(merged)) + [gguf.TokenType.CONTROL] * len(special)
    kinds.append(gguf.TokenType.USER_DEFINED)
    tokens += merged + special + [call]

    w = gguf.GGUFWriter(path, "qwen2")
    w.add_name("tiny")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(2 * HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(1e6)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_merges(["t h"])
    w.add_bos_token_id(tokens.index("<|endoftext|>"))
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_pad_token_id(tokens.index("<|endoftext|>"))
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)

    def normal(*shape):
        return random.normal(0, 0.1, shape).astype(np.float32)

    def weights(name, *shape):
        w.add_tensor(name, normal(*shape))

    def ones(name, size):
        w.add_tensor(name, np.ones(size, np.float32))

    embeddings, output = normal(len(tokens), HIDDEN), normal(len(tokens), HIDDEN)
    embeddings[:, 0] = 1  # in every token, and so in every state
    output[tokens.index(call), 0] = 0.5
    w.add_tensor("token_embd.weight", embeddings)
    w.add_tensor("output.weight", output)
    ones("output_norm.weight", HIDDEN)
    for i in range(LAYERS):
        block = f"blk.{i}."
        ones(block + "attn_norm.weight", HIDDEN)
        ones(block + "ffn_norm.weight", HIDDEN)
        for name in ("attn_q", "attn_k", "attn_v"):
            weights(block + name + ".weight", HIDDEN, HIDDEN)
            weights(block + name + ".bias", HIDDEN)
        weights(block + "attn_output.weight", HIDDEN, HIDDEN)
        for name, shape in (("ffn_gate", (2 * HIDDEN, HIDDEN)), ("ffn_up", (2 * HIDDEN, HIDDEN)), ("ffn_down", (HIDDEN, 2 * HIDDEN))):
            weights(block + name + ".weight", *shape)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main(sys.argv[1])
