#!/usr/bin/env python3
"""Writes tests/kernels/group_norm_golden.h: group normalisation of images with PyTorch's results in float64.

Usage: tests/golden/group_norm_golden.py > tests/kernels/group_norm_golden.h     (needs torch; the tests do not)

Every sequence of a batch is an image of its own width, which PyTorch normalises alone.
"""
import torch.nn.functional as F

from images import drawer, header, numbers, packed


def case(seed, widths, channels, height, groups):
    draw = drawer(seed)
    images = [(draw(channels, height, w) + 1).requires_grad_() for w in widths]
    gamma, beta = draw(channels).requires_grad_(), draw(channels).requires_grad_()
    outputs = [F.group_norm(image[None], groups, gamma, beta)[0] for image in images]
    gradients = [draw(*y.shape) for y in outputs]
    sum((y * dy).sum() for y, dy in zip(outputs, gradients)).backward()
    text = f"  {{{{{', '.join(map(str, widths))}}}, {channels}, {height}, {groups},\n"
    for name, tensor in [("x", packed(images)), ("gamma", gamma), ("beta", beta), ("dy", packed(gradients)),
                         ("y", packed(outputs)), ("dx", packed([i.grad for i in images])),
                         ("dgamma", gamma.grad), ("dbeta", beta.grad)]:
        text += numbers(name, tensor)
    return text + "  },\n"


print(header("group_norm_golden.py", """  std::vector<int32_t> widths;
  int64_t channels;
  int32_t height, groups;
  std::vector<double> x, gamma, beta, dy, y, dx, dgamma, dbeta;""", "GroupNormGolden", "group_norm_golden", [
    case(1, [3, 2], 4, 3, 2),
    case(2, [5, 3, 1], 3, 2, 1),
    case(3, [4, 4], 5, 1, 5),
]))
