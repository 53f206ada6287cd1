# SPDX-License-Identifier: Apache-2.0
"""Byte-pair tokenizers and what Hugging Face's library makes of texts: make_bpe.py DIR

Writes DIR/digits and DIR/plain (with and without a word for each digit), trained on LICENSE and a few
other scripts: tokenizer.json, and texts.txt, a line for each text: its UTF-8 in hex, then its ids. Needs
tokenizers; what it made with 0.23 lies in bpe/ beside this file, for test_worker_tokenizer.
"""
import json
import pathlib
import random
import sys
import unicodedata

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LICENCE = pathlib.Path(__file__).parents[2] / "LICENSE"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>+"]
OTHERS = ("Die größte Übung, Straße für Straße. Ça va déjà, où est le garçon? Приветствую вас, друзья! "
          "Καλημέρα κόσμε. これは日本語の文章です。漢字とかな。你好，世界。안녕하세요 세계. שלום עולם مرحبا بالعالم. "
          "नमस्ते दुनिया สวัสดีชาวโลก 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ½ ² Ⅻ ٣٤٥ ௧௨ 3.14159 10,000 2026-11-26\n"
          + "".join(map(chr, range(32, 127)))) * 8
HARD = [
    "", " ", "  ", "   x", "\n", "\n\n", " \n ", "a\n\nb", "\t\tif (x)\n\t\t\treturn;\n", "x  ", "x \n",
    "it's I'll we've they're I'm he'd don't 'S 'LL ''s 'sx", "a 'quote' b", "!'s", "12", " 1 22  333",
    "a1b2", "1st 2nd", "x²y½zⅫ", "\u00a0\u00a0a\u2003b\u3000c\u0085d\u200be", "don\u2019t", "e\u0301",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>+<|im_end|>", "<|im_end|",
    "<<|im_end|>>", " <|im_end|> ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\u0000\u0001\u007f",
    "\ufffd\ufeff", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0010ffff", "ǅ ʰ ª º ـ ゙", OTHERS,
]


def random_texts(seed, n):
    """Characters of all sorts, and pieces of a text in English."""
    rng = random.Random(seed)
    english = LICENCE.read_text() + OTHERS
    for _ in range(n):
        how = rng.randrange(4)
        size = rng.randrange(1, 60)
        if how == 0:
            begin = rng.randrange(len(english))
            yield english[begin:begin + rng.randrange(1, 400)]
        elif how == 1:
            yield "".join(rng.choice(" \n\t'!.a1Zé世é0٣'s\u00a0-_") for _ in range(size))
        elif how == 2:  # of the first plane, what this Python's Unicode knows
            yield "".join(c for c in (chr(rng.randrange(0xD800)) for _ in range(size))
                          if unicodedata.category(c) != "Cn")
        else:
            pieces = [english[(b := rng.randrange(len(english))):b + rng.randrange(1, 9)]
                      for _ in range(size)]
            yield "".join(p + rng.choice(["", "", "", *SPECIALS]) for p in pieces)


def write_texts(tokenizer, path, seed, n):
    with path.open("w", encoding="utf-8") as file:
        for text in [*HARD, *random_texts(seed, n)]:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            print(text.encode().hex() or "-", *ids, file=file)


def make(directory, digits):
    directory.mkdir(parents=True, exist_ok=True)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIALS[0] if digits else None))
    tokenizer.pre_tokenizer = (pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), level]) if digits else level)
    tokenizer.decoder = decoders.ByteLevel()
    # Not all bytes: of those that no text had, one has the unknown token, the other nothing.
    tokenizer.train_from_iterator(
        [LICENCE.read_text(), OTHERS],
        trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIALS, show_progress=False))
    (directory / "tokenizer.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")
    write_texts(tokenizer, directory / "texts.txt", 20261126, 150)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(pathlib.Path(sys.argv[1]) / "digits", True)
    (pathlib.Path(sys.argv[1]) / "digits" / "chat.json").write_text(json.dumps(
        {"default_system": "You help.", **{role: [f"<|im_start|>{role}\n", "<|im_end|>\n"]
                                           for role in ("system", "user", "assistant")}}) + "\n")
    make(pathlib.Path(sys.argv[1]) / "plain", False)


if __name__ == "__main__":
    main()
