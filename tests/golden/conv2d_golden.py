#!/usr/bin/env python3
"""Writes tests/kernels/conv2d_golden.h: convolutions over images with PyTorch's results in float64.

Usage: tests/golden/conv2d_golden.py > tests/kernels/conv2d_golden.h     (needs torch; the tests do not)

Every sequence of a batch is an image of its own width, which PyTorch convolves alone.
"""
import torch.nn.functional as F

from images import drawer, header, numbers, packed


def case(seed, widths, channels, height, out, rows, columns, groups=1):
    """rows, columns: (kernel, stride, dilation) along height and time."""
    draw = drawer(seed)
    images = [draw(channels, height, w).requires_grad_() for w in widths]
    w = draw(out, channels // groups, rows[0], columns[0]).requires_grad_()
    bias = draw(out).requires_grad_()
    outputs, gradients = [], []
    for image in images:
        padding = []
        for kernel, stride, dilation in (columns, rows):  # F.pad begins with the last dimension
            span = dilation * (kernel - 1) + 1
            padding += [span // 2, span - 1 - span // 2]
        y = F.conv2d(F.pad(image[None], padding), w, bias, (rows[1], columns[1]), 0,
                     (rows[2], columns[2]), groups)[0]
        outputs.append(y)
        gradients.append(draw(*y.shape))
    sum((y * dy).sum() for y, dy in zip(outputs, gradients)).backward()
    text = f"  {{{{{', '.join(map(str, widths))}}}, {channels}, {height}, {out}, "
    text += f"{{{', '.join(map(str, rows))}}}, {{{', '.join(map(str, columns))}}}, {groups},\n"
    for name, tensor in [("x", packed(images)), ("w", w), ("bias", bias), ("dy", packed(gradients)),
                         ("y", packed(outputs)), ("dx", packed([i.grad for i in images])),
                         ("dw", w.grad), ("dbias", bias.grad)]:
        text += numbers(name, tensor)
    return text + "  },\n"


print(header("conv2d_golden.py", """  std::vector<int32_t> widths;
  int64_t channels;
  int32_t height;
  int64_t out;
  std::vector<int32_t> rows, columns;  // kernel, stride, dilation
  int64_t groups;
  std::vector<double> x, w, bias, dy, y, dx, dw, dbias;""", "Conv2dGolden", "conv2d_golden", [
    case(1, [4, 2], 1, 5, 2, (3, 1, 1), (5, 1, 1)),
    case(2, [5, 3, 1], 2, 5, 3, (3, 2, 1), (3, 2, 1)),
    case(3, [4, 4], 3, 4, 2, (2, 1, 2), (2, 1, 1)),
    case(4, [4, 3, 1], 3, 3, 3, (3, 1, 1), (2, 1, 1), 3),
    case(5, [5, 2], 4, 3, 6, (2, 1, 1), (3, 2, 1), 2),
]))
