#!/usr/bin/env python3
"""Writes tests/kernels/conv2d_golden.h: convolutions over images with PyTorch's results in float64.

Usage: tests/golden/conv2d_golden.py > tests/kernels/conv2d_golden.h     (needs torch; the tests do not)

Every sequence of a batch is an image of its own width, which PyTorch convolves alone; rows are then
packed as in kernels/base/packed.h, with the pixels of a column from top to bottom and all channels of
each.
"""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def packed(images):
    """[channels, height, width] each, longest first -> rows."""
    rows = []
    for t in range(max(i.shape[2] for i in images)):
        rows += [i[:, :, t].T.reshape(-1) for i in images if i.shape[2] > t]
    return torch.stack(rows)


def numbers(name, tensor):
    lines, line = [], "    "
    for value in tensor.detach().reshape(-1).tolist():
        item = f"{value:.13g},"
        if len(line) + len(item) + 1 > 98:
            lines.append(line)
            line = "    "
        line += " " + item
    lines.append(line)
    return f"    /*{name}*/ {{\n" + "\n".join(lines) + "},\n"


def case(seed, widths, channels, height, out, rows, columns):
    """rows, columns: (kernel, stride, dilation) along height and time."""
    gen = torch.Generator().manual_seed(seed)

    def draw(*shape):  # three decimals: exact in the header, short to read
        return (torch.rand(*shape, generator=gen) * 2 - 1).mul(1000).round().div(1000)

    images = [draw(channels, height, w).requires_grad_() for w in widths]
    w = draw(out, channels, rows[0], columns[0]).requires_grad_()
    bias = draw(out).requires_grad_()
    outputs, gradients = [], []
    for image in images:
        padding = []
        for kernel, stride, dilation in (columns, rows):  # F.pad begins with the last dimension
            span = dilation * (kernel - 1) + 1
            padding += [span // 2, span - 1 - span // 2]
        y = F.conv2d(F.pad(image[None], padding), w, bias, (rows[1], columns[1]), 0,
                     (rows[2], columns[2]))[0]
        outputs.append(y)
        gradients.append(draw(*y.shape))
    sum((y * dy).sum() for y, dy in zip(outputs, gradients)).backward()
    text = f"  {{{{{', '.join(map(str, widths))}}}, {channels}, {height}, {out}, "
    text += f"{{{', '.join(map(str, rows))}}}, {{{', '.join(map(str, columns))}}},\n"
    for name, tensor in [("x", packed(images)), ("w", w), ("bias", bias), ("dy", packed(gradients)),
                         ("y", packed(outputs)), ("dx", packed([i.grad for i in images])),
                         ("dw", w.grad), ("dbias", bias.grad)]:
        text += numbers(name, tensor)
    return text + "  },\n"


print("""// Made by tests/golden/conv2d_golden.py with PyTorch; see there.
#pragma once

#include <cstdint>
#include <vector>

namespace rondo::test {

struct Conv2dGolden {
  std::vector<int32_t> widths;
  int64_t channels;
  int32_t height;
  int64_t out;
  std::vector<int32_t> rows, columns;  // kernel, stride, dilation
  std::vector<double> x, w, bias, dy, y, dx, dw, dbias;
};

// clang-format off
inline const std::vector<Conv2dGolden> conv2d_golden = {""")
print(case(1, [4, 2], 1, 5, 2, (3, 1, 1), (5, 1, 1)), end="")
print(case(2, [5, 3, 1], 2, 5, 3, (3, 2, 1), (3, 2, 1)), end="")
print(case(3, [4, 4], 3, 4, 2, (2, 1, 2), (2, 1, 1)), end="")
print("""};
// clang-format on

}  // namespace rondo::test""")
