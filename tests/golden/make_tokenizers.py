#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/: small tokenizers in the shapes that models have, and
what Hugging Face's library makes of some texts.

Needs the package tokenizers; made with 0.23. Usage: tests/golden/make_tokenizers.py"""
import glob
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Prepend, Replace, Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Sequence, Split
from tokenizers.processors import ByteLevel as ByteLevelProcessor
from tokenizers.processors import Sequence as Processors
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
OTHERS = """Größe und Maß, naïve café, coöperate; Ελληνικά γράμματα; Русский текст здесь;
中文文本在这里；日本語のテキスト；한국어 텍스트; हिन्दी पाठ; ไทย; עברית; العربية ١٢٣
for (int i = 0; i < 1024; i++) {\n    x[i] += 2.5e-3 * y[i];\n}\n"""


def corpus():
    for path in sorted(glob.glob(os.path.join(HERE, "../../examples/text/*.txt"))):
        with open(path, encoding="utf-8") as file:
            yield from file.read().split("\n\n")
    for _ in range(20):
        yield OTHERS


def byte_level(pattern, begin):
    tokenizer = Tokenizer(BPE(ignore_merges=pattern is not None))
    if pattern is None:
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = Sequence([
            Split(Regex(CONTRACTIONS + pattern + REST), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False)])
    end = "<|endoftext|>" if begin is None else "<|end_of_text|>"
    tokenizer.train_from_iterator(corpus(), BpeTrainer(
        vocab_size=700, initial_alphabet=ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([end] + ([begin] if begin else []))
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>>", normalized=False)])
    tokenizer.post_processor = ByteLevelProcessor(trim_offsets=False)
    if begin:
        tokenizer.post_processor = Processors([tokenizer.post_processor, TemplateProcessing(
            single=begin + " $A", special_tokens=[(begin, tokenizer.token_to_id(begin))])])
    return tokenizer


def marked(metaspace):
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % byte for byte in range(256)]
    tokenizer = Tokenizer(BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = Replace(" ", "\u2581")
    tokenizer.train_from_iterator(
        (word for text in corpus() for word in ["\u2581" + w for w in text.split()]),
        BpeTrainer(vocab_size=900, limit_alphabet=150, special_tokens=special, show_progress=False))
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["id"] < 3]
    state["model"]["merges"] = [["\u2581", "\u2581"]] + state["model"]["merges"]
    state["model"]["vocab"]["\u2581\u2581"] = 900
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if metaspace:
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = Metaspace(prepend_scheme=metaspace, split=metaspace == "always")
    else:
        tokenizer.normalizer = Normalizers([Prepend("\u2581"), Replace(" ", "\u2581")])
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


TOKENIZERS = {
    "gpt2": byte_level(None, None),
    "llama3": byte_level(r"\p{N}{1,3}", "<|begin_of_text|>"),
    "qwen2": byte_level(r"\p{N}", "<|begin_of_text|>"),
    "llama2": marked(None),
    "mistral": marked("first"),
    "metaspace": marked("always"),
}
TEXTS = [
    "", " ", "a", " a", "a ", "  a  b   ", "Alice was beginning to get very tired of sitting",
    "I'll we've it's don't I'M HE'D '' 's 'S o\u2019clock 'sun 'veil 'Re'LL '\u017f",
    "x = 1234567890; y=12.50e-3, z: 0x1F", "1\u00bd\u00b2\u0663\u0664 \u2167 \u4e09\u5341",
    "line\nline\r\n\r\n  indented\n\n\n\ttab\t\tend \n ", "\n", " \n", "\n ", " \n \n x", "\t \tx \u00a0y\u3000z",
    "!!! ... ?! (a) [b] {c}\n\n\n -- d\n", " !\n\n!\n", "caf\u00e9 cafe\u0301 na\u00efve Gr\u00f6\u00dfe \u1e9e",
    "\u4e2d\u6587\u6587\u672c\uff0c\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\ud55c\uad6d\uc5b4",
    "\U0001f600\U0001f44d\U0001f3fd family: \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u05e2\u05d1 \u0627\u0644",
    "<|endoftext|>a<|end_of_text|> b<s>c</s><unk> <tool>>d<tool>e<tool", "<s> a <s>b", "</s>", "a</s> b </s>",
    "\u2581\u2581a \u2581 b", "   leading", "trailing   ", "\u00ad\u200b\ufeffx\u2028y\u0085z\x0b\x0c\x1c!",
    "for (int i = 0; i < 1024; i++) {\n    x[i] += 2.5e-3 * y[i];\n}\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the  the   the    the", "Wolf! Wolf! the the Wolf\u2014truly\u2014came\u2026 at\u00a0last",
    "\x01\x02 \x7f \U000e0041 \ue000 \ufffd", "\U0001d504\U00010400 \u1c89 \ua7da",
]

out = os.path.join(HERE, "tokenizers")
os.makedirs(out, exist_ok=True)
for name, tokenizer in TOKENIZERS.items():
    state = json.loads(tokenizer.to_str())
    if name in ("gpt2", "llama2"):  # the older spelling of merges
        state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
        tokenizer = Tokenizer.from_str(json.dumps(state))
    with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as file:
        json.dump(state, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    rows = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]
    with open(os.path.join(out, name + ".ids.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
