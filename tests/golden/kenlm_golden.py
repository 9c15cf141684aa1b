#!/usr/bin/env python3
"""kenlm_golden.py BUILD_BINARY > tests/lm/kenlm_golden.h: binaries of KenLM and its scores, for tests/lm/kenlm_test.cc.

BUILD_BINARY is KenLM's program, made from the source package of `kenlm` on PyPI. The models are lm_golden.py's, and
one that is large enough for arrays of pointers (-a) to save anything.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
import zlib

import kenlm

import lm_golden

MODELS = {
    (2, 5, False): ["", "-q 5 -b 3 -a 64 trie"],
    (3, 12, True): ["-a 64 trie", "-q 4 -b 5 -a 64 trie"],
    (4, 4, False): ["-p 1.7 probing", "trie", "-a 2 trie"],
    (5, 4, True): ["", "-p 2.0 probing", "trie", "-q 8 trie", "-q 7 -b 2 trie"],
}

HEAD = """// Made by tests/golden/kenlm_golden.py with KenLM's build_binary and kenlm; log10.
#pragma once

#include <zlib.h>

#include <string>

#include "tests/lm/lm_golden.h"

struct KenlmBinary {
  const char* options;  // of build_binary
  size_t bytes;
  const char* packed;  // by zlib, in hexadecimal digits
};

// Binaries that score equally, and which of golden_models they were made from; -1: another one.
struct KenlmGolden {
  int model;
  std::vector<KenlmBinary> binaries;
  std::vector<GoldenSentence> sentences;
};

inline std::string unpacked(const KenlmBinary& b) {
  std::string packed;
  for (const char* at = b.packed; at[0] != 0; at += 2)
    packed += static_cast<char>(std::stoi(std::string(at, 2), nullptr, 16));
  std::string out(b.bytes, 0);
  uLongf size = b.bytes;
  if (uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                 reinterpret_cast<const Bytef*>(packed.data()), packed.size()) != Z_OK ||
      size != b.bytes)
    return {};
  return out;
}

// clang-format off
inline const std::vector<KenlmGolden> kenlm_goldens = {"""


def build(program, arpa, options, folder):
    source, out = os.path.join(folder, "m.arpa"), os.path.join(folder, "m.binary")
    with open(source, "w") as file:
        file.write(arpa)
    subprocess.run([program, *options.split(), source, out], check=True, capture_output=True)
    with open(out, "rb") as file:
        return file.read(), kenlm.Model(out)


def sentences(model, words, order):
    lines = []
    for sentence in lm_golden.draw_sentences(words, order)[:20]:
        found = list(model.full_scores(sentence))
        scores = ", ".join(f"{score:.9g}" for score, _, _ in found)
        lengths = ", ".join(str(length) for _, length, _ in found)
        lines.append(f'{{"{sentence}", {{{scores}}}, {{{lengths}}}}},')
    return "\n".join(lines)


def main():
    print(HEAD)
    for (order, words, unknown), all_options in MODELS.items():
        arpa, _ = lm_golden.read_model(order, words, unknown)
        key = (order, words, unknown)
        number = lm_golden.MODELS.index(key) if key in lm_golden.MODELS else -1
        by_scores = {}
        for options in all_options:
            with tempfile.TemporaryDirectory() as folder:
                content, model = build(sys.argv[1], arpa, options, folder)
            packed = textwrap.wrap(zlib.compress(content, 9).hex(), 120)
            literal = "\n".join(f'  "{line}"' for line in packed)
            by_scores.setdefault(sentences(model, words, order), []).append(
                f'{{"{options}", {len(content)},\n{literal}}},')
        for scores, binaries in by_scores.items():
            print(f"{{{number}, {{\n" + "\n".join(binaries) + "\n}, {\n" + scores + "\n}},")
    print("};\n// clang-format on")


if __name__ == "__main__":
    main()
