#!/usr/bin/env python3
"""Writes tests/data/kaldi_golden.h: matrices as kaldiio writes them, and what it reads of them.

Needs numpy and kaldiio; run by hand:
    python3 tests/golden/kaldi_golden.py > tests/data/kaldi_golden.h
"""
import importlib.metadata
import os
import tempfile

import kaldiio
import numpy as np

# Each column has values in all three pieces of its percentiles.
MATRIX = np.array([[row * row * 0.5 - 3 + column * 10, (row * 7 % 9) * (-0.25) ** column] for row in range(9)
                   for column in (0, 1)], dtype=np.float64).reshape(9, 4)
KINDS = [("FM", np.float32, None), ("DM", np.float64, None), ("CM", np.float32, 2), ("CM2", np.float32, 3),
         ("CM3", np.float32, 5)]


def written(values, method):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.ark")
        kaldiio.save_ark(path, {"u": values}, compression_method=method)
        with open(path, "rb") as file:
            data = file.read()
        return data[len("u "):], kaldiio.load_mat(f"{path}:{len('u ')}")


def main():
    print(f"// Made by tests/golden/kaldi_golden.py (kaldiio {importlib.metadata.version('kaldiio')}); not to be edited.")
    print("#pragma once\n\n#include <vector>\n")
    print("struct GoldenMatrix {\n  const char* token;\n  std::vector<int> bytes;  // from the \"\\0B\"")
    print("  int rows, columns;\n  std::vector<float> values;  // by rows\n};\n")
    print("inline const std::vector<GoldenMatrix> golden_matrices = {")
    for token, dtype, method in KINDS:
        data, values = written(MATRIX.astype(dtype), method)
        assert data.startswith(b"\0B" + token.encode() + b" ")
        numbers = ", ".join(f"{np.float32(v):.9g}f" if "." in f"{np.float32(v):.9g}" else f"{np.float32(v):.9g}.0f"
                            for v in values.ravel())
        print(f'    {{"{token}", {{{", ".join(map(str, data))}}}, {values.shape[0]}, {values.shape[1]}, {{{numbers}}}}},')
    print("};")


main()
