#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/cases.json and data/*.model: small tokenizers of our own, and what the real libraries make of
a list of texts with them. Needs the PyPI packages tokenizers (written with 0.23.3) and sentencepiece (0.2.3).

usage: make_cases.py [folder with the reference data, for the models under it]
"""
import io
import json
import pathlib
import random
import sys

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers

HERE = pathlib.Path(__file__).parent / "data"
NAMES = ["Anna", "Ben", "the old cat", "a small bird", "the teacher", "my brother", "the moon", "our dog"]
VERBS = ["likes", "found", "painted", "carried", "was looking for", "didn't see", "we'll give", "'s hidden"]
THINGS = ["a red ball", "3 apples", "the café on street 12", "2024's first snow", "an emoji 🙂", "日本語", "naïve ideas",
          "some  double  spaces", "tabs\tand\nnew lines", "UPPER and Mixed CASE", "x = f(y) + 10;", "it's 100% fine"]

# Split patterns as published in the tokenizer.json of Llama 3, Qwen2 and gpt-oss.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = ["", " ", "   ", "Anna likes the old cat.", " the teacher", "Ben  found   3 apples\n\n  and more", "I'm WE'LL it's 'S",
         "a" * 40, " " * 50, " " * 30 + "x", "\n\n\n\t\t x", "1234567 12 3.14", "日本語テキスト 中文 한국어", "🙂👨‍👩‍👧 é e\u0301 ﬁ Å Ⅷ",
         "foo<s>bar</s> baz <unk>", "<|eot|>hi<|im_start|>user\n<|im_end|>", "\u00a0nbsp\u2003em\u3000", "\0\1", "▁x ▁",
         "<0x0A> <0x41>", "ſ 's 'ſ İstanbul", "def f(x):\n    return x+1\n", "$+<=>^`|~ !\"#%&'()*,-./:;?@[\\]_{}",
         "\r\n\r\n a\r b", "x²³½ Ⅻ ٣٤٥", "\u180e\u200b\u0085a\u2028b", "\u0300a", "x cat y", "concat cats cat.", "écat cat_",
         "a  [M]  b", "a  [R]   b [R][M] [M][R]", "NORM aNORMb", "<tool>x<tool> y"]


def corpus():
    draw = random.Random(1)
    return [f"{draw.choice(NAMES)} {draw.choice(VERBS)} {draw.choice(THINGS)}." for _ in range(3000)]


def byte_level_base():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def byte_fallback_base():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=440, special_tokens=special, limit_alphabet=60, show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def byte_level_added():
    extra = [AddedToken("<tool>", normalized=False), AddedToken("cat", single_word=True, normalized=False),
             AddedToken("[M]", lstrip=True, normalized=False), AddedToken("[R]", rstrip=True, normalized=False),
             AddedToken("NORM", normalized=True), AddedToken("<|", normalized=False)]
    special = [AddedToken(name, special=True, normalized=False)
               for name in ["<|begin|>", "<|eot|>", "<|im_start|>", "<|im_end|>"]]
    return special, extra


def byte_level(model, pre, normalizer=None, post=None, decoder=None, **options):
    tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": {**model, **options}}))
    special, extra = byte_level_added()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoder or decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(extra)
    if post:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def byte_fallback(model, pre=None, normalizer=None, decoder=None, bos=True, **options):
    tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": {**model, **options}}))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    if decoder:
        tokenizer.decoder = decoder
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def begin_template(tokenizer):
    begin = tokenizer.token_to_id("<|begin|>")
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", begin)])])


def byte_level_tokenizers(model):
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = lambda pattern, how="isolated", **k: pre_tokenizers.Split(Regex(pattern), how, **k)
    chain = lambda *parts: pre_tokenizers.Sequence([*parts, plain])
    yield "llama 3", byte_level(model, chain(split(LLAMA3)), post=begin_template, ignore_merges=True)
    yield "qwen 2", byte_level(model, chain(split(QWEN2)), normalizer=normalizers.NFC())
    yield "o200k, inverted", byte_level(model, chain(split(O200K, "removed", invert=True)))
    yield "gpt2", byte_level(model, pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield "gpt2, prefix space", byte_level(model, pre_tokenizers.ByteLevel(add_prefix_space=True))
    yield "single digits, nfkc", byte_level(model, chain(pre_tokenizers.Digits(True)), normalizer=normalizers.NFKC())
    yield "digits, punctuation", byte_level(model, chain(pre_tokenizers.Digits(False),
                                                         pre_tokenizers.Punctuation("contiguous")))
    yield "lower case", byte_level(model, chain(), normalizer=normalizers.Sequence(
        [normalizers.NFD(), normalizers.Strip(), normalizers.Lowercase()]))
    yield "whitespace", byte_level(model, chain(pre_tokenizers.Whitespace()),
                                   normalizer=normalizers.Replace(Regex(r"\s+"), "  "))
    yield "whitespace split", byte_level(model, chain(pre_tokenizers.WhitespaceSplit(),
                                                      pre_tokenizers.CharDelimiterSplit("a")))
    for how in ["removed", "merged_with_previous", "merged_with_next", "contiguous"]:
        yield how, byte_level(model, chain(pre_tokenizers.Split(" ", how), split(r"\p{N}|[a-c]", how)),
                              normalizer=normalizers.NFKD())


def byte_fallback_tokenizers(model):
    mark = "▁"
    to_mark = normalizers.Replace(" ", mark)
    fused = [decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse()]
    llama = decoders.Sequence([*fused, decoders.Strip(" ", 1, 0)])
    prepended = normalizers.Sequence([normalizers.Prepend(mark), to_mark])
    yield "llama 2", byte_fallback(model, normalizer=prepended, decoder=llama)
    yield "llama 2, no byte fallback", byte_fallback(model, normalizer=prepended, decoder=llama, byte_fallback=False)
    yield "gemma", byte_fallback(model, normalizer=to_mark, decoder=decoders.Sequence(fused), bos=False)
    for scheme in ["always", "first", "never"]:
        yield f"metaspace {scheme}", byte_fallback(
            model, pre=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "first"),
            decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]))
    yield "no decoder", byte_fallback(model, normalizer=to_mark)


def cases_of(tokenizer):
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        cases.append([text, ids, tokenizer.decode(ids)])
    return cases


def described(name, base, tokenizer):
    document = json.loads(tokenizer.to_str())
    model = document["model"]
    options = {key: model[key] for key in ["byte_fallback", "ignore_merges", "fuse_unk", "unk_token"]}
    parts = {key: document[key] for key in ["added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"]}
    return {"name": name, "base": base, "options": options, "parts": parts, "cases": cases_of(tokenizer)}


def sentencepiece_cases(model_bytes):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    cases = []
    for text in TEXTS:
        # Control symbols are found in text by us, not by the library.
        if "<s>" in text or "\0" in text:
            continue
        ids = processor.encode(text)
        cases.append([text, ids, processor.decode(ids)])
    return cases


def train_sentencepiece(kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, model_type=kind, vocab_size=340, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        user_defined_symbols=["<tool>"], minloglevel=2, num_threads=1)
    return model.getvalue()


def shared_cases(folder):
    result = {}
    for name in ["models/stories260K/tokenizer.json", "models/stories15M/tokenizer.json"]:
        result[name] = cases_of(Tokenizer.from_file(str(folder / name)))
    name = "models/stories15M/tokenizer.model"
    result[name] = sentencepiece_cases((folder / name).read_bytes())
    return result


def dump(document):
    """One case a line, so that a difference is readable."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace('],["', '],\n["').replace('{"name"', '\n{"name"') + "\n"


def main():
    bases = {"byte_level": byte_level_base(), "byte_fallback": byte_fallback_base()}
    all_tokenizers = [described(name, "byte_level", t) for name, t in byte_level_tokenizers(bases["byte_level"])]
    all_tokenizers += [described(name, "byte_fallback", t) for name, t in byte_fallback_tokenizers(bases["byte_fallback"])]
    document = {"written_with": {"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__},
                "bases": bases, "tokenizers": all_tokenizers, "sentencepiece": {}}
    for kind in ["bpe", "unigram"]:
        model = train_sentencepiece(kind)
        (HERE / f"{kind}.model").write_bytes(model)
        document["sentencepiece"][f"{kind}.model"] = sentencepiece_cases(model)
    if len(sys.argv) > 1:
        document["shared"] = shared_cases(pathlib.Path(sys.argv[1]))
    (HERE / "cases.json").write_text(dump(document), encoding="utf-8")


if __name__ == "__main__":
    main()
