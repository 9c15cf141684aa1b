#!/usr/bin/env python3
"""Writes tests/lstm/lstm_golden.h: seeded LSTM layers with PyTorch's results in float64.

Usage: tests/golden/lstm_golden.py > tests/lstm/lstm_golden.h     (needs torch; the tests do not)

Packed data of torch.nn.utils.rnn.pack_padded_sequence has the row order of kernels/base/packed.h.
"""
import torch

torch.set_default_dtype(torch.float64)


def flat(t):
    return t.detach().reshape(-1).tolist()


def numbers(name, values, digits):
    body = ", ".join(f"{v:.{digits}g}" for v in values)
    lines, line = [], "       "
    for item in body.split(" "):
        if len(line) + len(item) + 1 > 99:
            lines.append(line)
            line = "       "
        line += " " + item
    lines.append(line)
    return f"    {{\"{name}\", {{\n" + "\n".join(lines) + "}},\n"


def case(name, seed, lengths, inputs, hidden, projection, directions):
    gen = torch.Generator().manual_seed(seed)

    def draw(*shape):  # three decimals: exact in the header, short to read
        return (torch.rand(*shape, generator=gen) * 2 - 1).mul(1000).round().div(1000)

    n, p = len(lengths), projection or hidden
    lstm = torch.nn.LSTM(inputs, hidden, bidirectional=directions == 2, proj_size=projection)
    out = f"  {{\"{name}\", {inputs}, {hidden}, {projection}, {directions},\n"
    out += "   {" + ", ".join(map(str, lengths)) + "},\n   {\n"
    for d in range(directions):
        suffix = "_l0" + ("_reverse" if d else "")
        for kind, key in [("weight_ih", "w"), ("weight_hh", "r"), ("weight_hr", "p")]:
            if not hasattr(lstm, kind + suffix):
                continue
            parameter = getattr(lstm, kind + suffix)
            parameter.data = draw(*parameter.shape)
            out += numbers(f"{key}{d}", flat(parameter), 6)
        parameter = getattr(lstm, "bias_ih" + suffix)
        parameter.data = draw(*parameter.shape)
        getattr(lstm, "bias_hh" + suffix).data.zero_()
        out += numbers(f"b{d}", flat(parameter), 6)
    rows = sum(lengths)
    x = draw(rows, inputs).requires_grad_()
    h0 = draw(directions, n, p).requires_grad_()
    c0 = draw(directions, n, hidden).requires_grad_()
    batch_sizes = torch.tensor([sum(l > t for l in lengths) for t in range(max(lengths))])
    packed = torch.nn.utils.rnn.PackedSequence(x, batch_sizes)
    y, (hn, cn) = lstm(packed, (h0, c0))
    dy, dhn, dcn = draw(*y.data.shape), draw(*hn.shape), draw(*cn.shape)
    ((y.data * dy).sum() + (hn * dhn).sum() + (cn * dcn).sum()).backward()
    for key, t in [("x", x), ("h0", h0), ("c0", c0), ("dy", dy), ("dhn", dhn), ("dcn", dcn)]:
        out += numbers(key, flat(t), 6)
    results = [("y", y.data), ("hn", hn), ("cn", cn), ("dx", x.grad), ("dh0", h0.grad),
               ("dc0", c0.grad)]
    for d in range(directions):
        suffix = "_l0" + ("_reverse" if d else "")
        results += [(f"dw{d}", getattr(lstm, "weight_ih" + suffix).grad),
                    (f"dr{d}", getattr(lstm, "weight_hh" + suffix).grad),
                    (f"db{d}", getattr(lstm, "bias_ih" + suffix).grad)]
        if projection:
            results.append((f"dp{d}", getattr(lstm, "weight_hr" + suffix).grad))
    for key, t in results:
        out += numbers(key, flat(t), 16)
    return out + "   }},\n"


print(f"// Written by tests/golden/lstm_golden.py with PyTorch {torch.__version__.split('+')[0]}; "
      "do not edit.")
print("""#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

struct LstmGolden {
  const char* name;
  int64_t input, hidden, projection;
  int directions;
  std::vector<int32_t> lengths;
  std::map<std::string, std::vector<double>> values;
};

// clang-format off
inline const std::vector<LstmGolden> lstm_golden = {""")
print(case("one direction", 1, [4, 2, 1], 3, 4, 0, 1), end="")
print(case("two directions", 2, [5, 3, 3], 2, 3, 0, 2), end="")
print(case("projection, two directions", 3, [3, 2], 2, 4, 2, 2), end="")
print("};\n// clang-format on")
