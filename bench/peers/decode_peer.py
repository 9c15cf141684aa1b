#!/usr/bin/env python3
"""Decoding beside flashlight-text, pyctcdecode and fast-ctc-decode: time and word error rates on the same outputs.

    bench/peers/decode_peer.py                 needs build/bench/decode_bench, build/tools/rondo, and of the peers what is
    bench/peers/decode_peer.py --repeats 9     importable here (numpy, kenlm for those with a language model)
    bench/peers/decode_peer.py --write         figures into bench/results/

The outputs are drawn: 16 utterances of 500 frames and 32 classes, whose most probable classes are those of a text but for
noise and for letters that are heard as another. The text is the documentation's, as is what a bigram model and a lexicon
are made of; weights are the same for all, as far as they have them (flashlight's are of base-10 logarithms). Times are
milliseconds of processor per utterance, of one process and thread, the median of the repeats. Utterances are decoded by all
programs in the same minute, one program after the other, in each repeat.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import tempfile
import time

import common
import numpy

CLASSES, FRAMES, UTTERANCES, BEAM = 32, 500, 16, 100
LM_WEIGHT, WORD_SCORE = 0.6, 1.0
TOKENS = ["<blank>", "|"] + [chr(ord("a") + i) for i in range(26)] + list("'-.,")


def documentation():
    words = []
    for page in sorted((common.ROOT / "docs").glob("*.md")):
        if page.name == "decoding.md":  # quotes the figures that come out
            continue
        words += re.findall(r"[a-z]+", page.read_text().lower())
    return words


def draw(words, draw_from):
    """Logits of a text, and the text."""
    begin = int(draw_from.integers(len(words) - 200))
    path, said = [], []
    for word in words[begin:]:
        frames, before = [], None
        for letter in ("|" if said else "") + word:
            label = TOKENS.index(letter)
            if label == before:
                frames.append(0)
            heard = label if draw_from.random() > 0.06 else int(draw_from.integers(2, 28))
            frames += [(label, heard)] * int(draw_from.integers(1, 3)) + [0] * int(draw_from.integers(0, 4))
            before = label
        if len(path) + len(frames) > FRAMES:
            break
        path += frames
        said.append(word)
    logits = draw_from.normal(0, 1, (FRAMES, CLASSES)).astype("<f4")
    for t, here in enumerate(path + [0] * (FRAMES - len(path))):
        label, heard = here if isinstance(here, tuple) else (here, here)
        logits[t, heard] += 8
        if heard != label:
            logits[t, label] += 7
    return logits, " ".join(said)


def word_errors(reference, hypothesis):
    a, b = reference.split(), hypothesis.split()
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(last + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


class Bench:
    def __init__(self, folder, repeats):
        self.folder, self.repeats, self.rows, self.programs = folder, repeats, [], {}
        self.words = documentation()
        cut = len(self.words) * 9 // 10
        draws = numpy.random.default_rng(1)
        (folder / "outputs").mkdir()
        self.outputs, self.texts = [], []
        for i in range(UTTERANCES):
            logits, text = draw(self.words[cut:], draws)
            numpy.save(folder / "outputs" / f"{i:02}.npy", logits)
            self.outputs.append(logits)
            self.texts.append(text)
        (folder / "tokens.txt").write_text("\n".join(TOKENS) + "\n")
        self.lexicon = sorted(set(self.words))
        (folder / "lexicon.txt").write_text("\n".join(self.lexicon) + "\n")
        (folder / "text.txt").write_text("\n".join(" ".join(self.words[i:i + 12]) for i in range(0, cut, 12)) + "\n")
        subprocess.run([common.ROOT / "build/tools/rondo", "lm", "train", folder / "text.txt", "--order", "2", "--out",
                        folder / "2gram.arpa"], check=True, stderr=subprocess.DEVNULL)
        # Names, as hot words are: none of them is in the texts.
        names = [f"{a}{b}{c}" for a in ("ber", "han", "mon", "kal", "ros") for b in ("to", "li", "ne", "da", "mi")
                 for c in ("ski", "mann", "well", "ford", "berg", "stein", "ton", "ler")]
        names += [f"{name}{end}" for name in names for end in ("a", "us", "son", "ius")]
        self.hot = [name for name in names if name not in set(self.lexicon)][:1000]
        (folder / "hot.txt").write_text("\n".join(self.hot) + "\n")

    def ours(self, name, **options):
        command = [common.ROOT / "build/bench/decode_bench", self.folder / "tokens.txt", self.folder / "outputs", "1"]
        command += [f"{key}={value}" for key, value in options.items()]

        def run():
            done = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            return done["ms"][0], done["texts"]
        self.programs[name] = run

    def peer(self, name, decode, prepared):
        def run():
            began = time.process_time()
            texts = [decode(p) for p in prepared]
            return 1e3 * (time.process_time() - began) / UTTERANCES, texts
        self.programs[name] = run

    def run(self):
        times = {name: [] for name in self.programs}
        texts = {}
        for _ in range(self.repeats):
            for name, run in self.programs.items():
                ms, texts[name] = run()
                times[name].append(ms)
        total = sum(len(text.split()) for text in self.texts)
        for name, values in times.items():
            wrong = sum(word_errors(r, h) for r, h in zip(self.texts, texts[name]))
            row = {"name": name, "ms": sorted(values)[len(values) // 2], "least_ms": min(values), "wer": wrong / total}
            self.rows.append(row)
            print(f"{name:46} {row['ms']:9.2f} ms   WER {100 * row['wer']:5.2f} %", flush=True)


def add_fast_ctc_decode(bench):
    import fast_ctc_decode
    alphabet = "".join(" " if t == "|" else "~" if t == "<blank>" else t for t in TOKENS)
    bench.peer("fast-ctc-decode, cut 1e-3", lambda p: fast_ctc_decode.beam_search(p, alphabet, BEAM, 1e-3)[0],
               [softmax(x) for x in bench.outputs])


def add_pyctcdecode(bench):
    import pyctcdecode
    labels = ["" if t == "<blank>" else " " if t == "|" else t for t in TOKENS]
    plain = pyctcdecode.build_ctcdecoder(labels)
    logits = [log_softmax(x) for x in bench.outputs]
    bench.peer("pyctcdecode", lambda x: plain.decode(x, beam_width=BEAM), logits)
    known = pyctcdecode.build_ctcdecoder(labels, str(bench.folder / "2gram.arpa"), unigrams=bench.lexicon,
                                         alpha=LM_WEIGHT, beta=WORD_SCORE)
    bench.peer("pyctcdecode, bigram", lambda x: known.decode(x, beam_width=BEAM), logits)
    bench.peer("pyctcdecode, bigram, 100 hot words",
               lambda x: known.decode(x, beam_width=BEAM, hotwords=bench.hot[:100], hotword_weight=3.0), logits)


def add_flashlight(bench):
    from flashlight.lib.text.decoder import (CriterionType, KenLM, LexiconDecoder, LexiconDecoderOptions,
                                             SmearingMode, Trie)
    from flashlight.lib.text.dictionary import Dictionary
    tokens, words = Dictionary(TOKENS), Dictionary(bench.lexicon + ["<unk>"])
    model = KenLM(str(bench.folder / "2gram.arpa"), words)
    trie = Trie(tokens.index_size(), tokens.get_index("|"))
    for word in bench.lexicon:
        index = words.get_index(word)
        _, score = model.score(model.start(False), index)
        trie.insert([tokens.get_index(c) for c in word + "|"], index, score)
    trie.smear(SmearingMode.MAX)
    options = LexiconDecoderOptions(BEAM, CLASSES, 50.0, LM_WEIGHT * 2.302585, WORD_SCORE, float("-inf"), 0.0, True,
                                    CriterionType.CTC)
    decoder = LexiconDecoder(options, trie, model, tokens.get_index("|"), tokens.get_index("<blank>"),
                             words.get_index("<unk>"), [], False)

    def decode(x):
        best = decoder.decode(x.ctypes.data, *x.shape)[0]
        return " ".join(words.get_entry(i) for i in best.words if i >= 0)
    bench.peer("flashlight-text, lexicon, bigram", decode, [log_softmax(x) for x in bench.outputs])


def softmax(x):
    e = numpy.exp(x - x.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)).astype("<f4")


def log_softmax(x):
    return numpy.ascontiguousarray(numpy.log(softmax(x)), dtype="<f4")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), arguments.repeats)
        lm = {"lm": bench.folder / "2gram.arpa", "lm_weight": LM_WEIGHT, "word_score": WORD_SCORE}
        lexicon, hot = {"lexicon": bench.folder / "lexicon.txt", "unknown_score": 0}, {"hot": bench.folder / "hot.txt"}
        bench.ours("rondo")
        bench.ours("rondo, lexicon, bigram", **lm, **lexicon)
        bench.ours("rondo, lexicon, bigram, 1000 hot words", **lm, **lexicon, **hot)
        bench.ours("rondo, bigram, any words", **lm)
        bench.ours("rondo, bigram, any words, 1000 hot words", **lm, **hot)
        # What pyctcdecode leaves out by default: classes below e^-5, prefixes below e^-10 of the best.
        pruned = {"floor": math.exp(-5), "range": 10}
        bench.ours("rondo, lexicon, bigram, pruned", **lm, **lexicon, **pruned)
        bench.ours("rondo, bigram, any words, pruned", **lm, **pruned)
        bench.ours("rondo, bigram, any words, pruned, 1000 hot words", **lm, **hot, **pruned)
        for add in (add_flashlight, add_fast_ctc_decode, add_pyctcdecode):
            try:
                add(bench)
            except ImportError as e:
                print(f"left out: {e}")
        bench.run()
        if arguments.write:
            common.write_json("decode-peers", bench.rows)


if __name__ == "__main__":
    main()
