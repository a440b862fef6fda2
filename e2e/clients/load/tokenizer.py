"""Trains a small tokenizer, for a model that has none: usage: tokenizer.py FOLDER

AIPerf counts tokens with the tokenizer of the model that it loads. The simulated replicas have no model, so this one is
learnt from Python's own standard library; a token has about four characters, as the replicas count it."""

import pathlib
import sys
import sysconfig

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train(
    [str(path) for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))],
    trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ),
)
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(sys.argv[1])
