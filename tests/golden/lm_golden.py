#!/usr/bin/env python3
"""lm_golden.py > tests/lm/lm_golden.h: scores by KenLM (pip install kenlm), for tests/lm/language_model_test.cc.

The models are drawn at random: n-grams without some of their suffixes, contexts with a back-off weight that nothing
continues and others with continuations and a weight of 0, n-grams that end in </s>, models with <unk> and without.
"""

import itertools
import os
import random
import tempfile

import kenlm

MODELS = [(1, 4, True), (2, 5, False), (3, 5, True), (4, 4, False), (5, 4, True)]  # order, words, with <unk>


def draw_model(order, words, with_unknown, seed):
    """The text of an ARPA file."""
    draw = random.Random(seed)
    vocabulary = [f"w{i}" for i in range(words)]
    grams = [{(w,) for w in vocabulary + ["<s>", "</s>"] + (["<unk>"] if with_unknown else [])}]
    for n in range(2, order + 1):
        longer = set()
        for context in sorted(grams[-1]):
            if context[-1] == "</s>" or draw.random() < 0.25:
                continue
            for w in vocabulary + ["</s>"]:
                # KenLM has little room for n-grams without their suffixes.
                if draw.random() < (0.5 if context[1:] + (w,) in grams[-1] else 0.04):
                    longer.add(context + (w,))
        grams.append(longer)
    lines = ["\\data\\"] + [f"ngram {n}={len(g)}" for n, g in enumerate(grams, 1)] + [""]
    for n, all_of_order in enumerate(grams, 1):
        lines.append(f"\\{n}-grams:")
        shuffled = sorted(all_of_order)
        draw.shuffle(shuffled)
        for gram in shuffled:
            p = -99 if gram == ("<s>",) else -round(draw.uniform(0.05, 6), 6)
            line = f"{p}\t{' '.join(gram)}"
            kind = draw.random()
            if n < order and gram[-1] != "</s>" and kind < 0.85:
                line += "\t0" if kind < 0.15 else f"\t{round(draw.uniform(-2, 0.3), 6)}"
            lines.append(line)
        lines.append("")
    return "\n".join(lines + ["\\end\\", ""])


def read_model(order, words, unknown):
    """The first that KenLM has room for; of order 1 it reads none, and None stands for p(w)."""
    for seed in itertools.count(order):
        arpa = draw_model(order, words, unknown, seed)
        if order == 1:
            return arpa, None
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.arpa")
            with open(path, "w") as file:
                file.write(arpa)
            try:
                return arpa, kenlm.Model(path)
            except OSError:
                pass


def draw_sentences(words, seed):
    draw = random.Random(seed)
    choices = [f"w{i}" for i in range(words)] + ["elsewhere"]
    return [" ".join(draw.choice(choices) for _ in range(draw.randrange(0, 12))) for _ in range(40)]


def main():
    print("// Made by tests/golden/lm_golden.py with kenlm; log10.\n#pragma once\n\n#include <vector>\n")
    print("struct GoldenSentence {\n  const char* words;\n  std::vector<double> scores;  // of each, then of </s>\n"
          "  std::vector<int> lengths;    // of the n-grams that were found\n};\n")
    print("struct GoldenModel {\n  const char* arpa;\n  std::vector<GoldenSentence> sentences;\n};\n")
    print("// clang-format off\ninline const std::vector<GoldenModel> golden_models = {")
    for order, words, unknown in MODELS:
        arpa, model = read_model(order, words, unknown)
        if not model:
            p = {line.split("\t")[1]: float(line.split("\t")[0]) for line in arpa.split("\n") if "\t" in line}
        print('{R"(' + arpa + ')", {')
        for sentence in draw_sentences(words, order):
            if model:
                found = [(score, length) for score, length, _ in model.full_scores(sentence)]
            else:
                found = [(p.get(w, p["<unk>"]), 1) for w in sentence.split() + ["</s>"]]
            scores = ", ".join(f"{score:.9g}" for score, _ in found)
            lengths = ", ".join(str(length) for _, length in found)
            print(f'{{"{sentence}", {{{scores}}}, {{{lengths}}}}},')
        print("}},")
    print("};\n// clang-format on")


if __name__ == "__main__":
    main()
