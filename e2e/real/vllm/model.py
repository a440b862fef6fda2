"""Makes the model that the replicas serve: a small Llama without weights, which the server draws at random, and a tokenizer.

usage: model.py FOLDER

What the model says has no meaning; what it costs to compute a prompt, and to have computed it before, is real.
"""

import json
import pathlib
import sys
import sysconfig

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<start>", "<end>", "<pad>"]

# Turns are closed, so that a chat that grows by a turn begins with the tokens of the chat before.
TEMPLATE = (
    "{% for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + ' [close]\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    # The text to learn from is what is at hand, the source of the server itself; single bytes stand for all else.
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    sources = sorted(str(path) for path in (site / "vllm" / "entrypoints").rglob("*.py"))
    bytelevel = pre_tokenizers.ByteLevel
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = bytelevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8192, special_tokens=SPECIAL, initial_alphabet=bytelevel.alphabet(), show_progress=False
    )
    tokenizer.train(sources, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[2]
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": len(fast),
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))  # written last: then the model is there


if __name__ == "__main__":
    main()
