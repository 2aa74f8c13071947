# SPDX-License-Identifier: Apache-2.0
"""Trains the tokenizer: byte-level BPE on the stories, so that any text can be encoded."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BOS, EOS, USER, ASSISTANT = "<s>", "</s>", "<|user|>", "<|assistant|>"
SPECIAL = (BOS, EOS, USER, ASSISTANT)
VOCAB_SIZE = 1024
# The model was trained on exactly this form: a request, then the story, then the end.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|user|>' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ '<|assistant|>' + message['content'] + eos_token }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def load_or_train(
    folder: pathlib.Path, texts: Iterable[str], context: int
) -> PreTrainedTokenizerFast:
    """The tokenizer of a run that goes on, or else a new one, which is saved to `folder`."""
    if (folder / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer = train(texts, context)
    tokenizer.save_pretrained(folder)
    return tokenizer


def train(texts: Iterable[str], context: int) -> PreTrainedTokenizerFast:
    """A tokenizer of VOCAB_SIZE entries; ids 0 to 3 are SPECIAL, and encoding puts BOS first."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE,
            special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B:1", special_tokens=[(BOS, 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=context,
        padding_side="left",
    )
