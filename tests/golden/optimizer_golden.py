#!/usr/bin/env python3
"""Writes tests/kernels/optimizer_golden.h: a few optimiser steps by PyTorch in float64.

Usage: tests/golden/optimizer_golden.py > tests/kernels/optimizer_golden.h
(needs torch; the tests do not)

Each step's gradient is a sum over `count` terms; PyTorch sees it divided by count and clipped by
torch.nn.utils.clip_grad_norm_, as kernels/optimizer/optimizer.h promises to do by itself.
"""
import torch

torch.set_default_dtype(torch.float64)
STEPS, SIZE, COUNT = 4, 6, 8


def draw(generator, *shape):  # three decimals: exact in the header, short to read
    return (torch.rand(*shape, generator=generator) * 2 - 1).mul(1000).round().div(1000)


def numbers(tensor):
    items = [f"{v:.17g}" for v in tensor.detach().reshape(-1).tolist()]
    lines = [", ".join(items[i:i + 3]) for i in range(0, len(items), 3)]
    return "{" + ",\n     ".join(lines) + "}"


def case(name, make, max_norm, settings):
    generator = torch.Generator().manual_seed(len(name))
    start = draw(generator, SIZE)
    gradients = draw(generator, STEPS, SIZE) * COUNT
    weights = start.clone().requires_grad_()
    optimizer = make([weights])
    after, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (step + 1)
        weights.grad = gradients[step] / COUNT
        limit = max_norm if max_norm else float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_([weights], limit))
        optimizer.step()
        after.append(weights.detach().clone())
    fields = ", ".join(f"{s}" for s in settings)
    return (f"    {{\"{name}\", {fields}, {max_norm},\n     {numbers(start)},\n"
            f"     {numbers(gradients)},\n     {numbers(torch.stack(after))},\n"
            f"     {numbers(torch.stack(norms))}}},\n")


optim = torch.optim
print(f"// Written by tests/golden/optimizer_golden.py with PyTorch {torch.__version__.split('+')[0]}; "
      "do not edit.")
print(f"""#pragma once

#include <vector>

struct OptimizerGolden {{
  const char* name;
  bool adam, decoupled, nesterov;
  double momentum, weight_decay, max_norm;
  std::vector<double> start;      // [{SIZE}]
  std::vector<double> gradients;  // [{STEPS}, {SIZE}], sums over {COUNT} terms
  std::vector<double> after;      // [{STEPS}, {SIZE}], the weights after each step
  std::vector<double> norms;      // [{STEPS}], before clipping
}};

inline constexpr int optimizer_golden_steps = {STEPS}, optimizer_golden_count = {COUNT};
// Step k (from 0) has the learning rate 0.1 / (k + 1); adam's betas are 0.9 and 0.98.

// clang-format off
inline const std::vector<OptimizerGolden> optimizer_golden = {{""")
betas = (0.9, 0.98)
print(case("sgd", lambda p: optim.SGD(p, 0.1), 0.0,
           ["false, false, false", 0.0, 0.0]), end="")
print(case("sgd momentum, decay", lambda p: optim.SGD(p, 0.1, 0.9, weight_decay=0.05), 0.0,
           ["false, false, false", 0.9, 0.05]), end="")
print(case("sgd nesterov, decay, clipped",
           lambda p: optim.SGD(p, 0.1, 0.8, nesterov=True, weight_decay=0.05), 1.2,
           ["false, false, true", 0.8, 0.05]), end="")
print(case("adam", lambda p: optim.Adam(p, 0.1, betas), 0.0,
           ["true, false, false", 0.0, 0.0]), end="")
print(case("adam decay, clipped", lambda p: optim.Adam(p, 0.1, betas, weight_decay=0.05), 0.7,
           ["true, false, false", 0.0, 0.05]), end="")
print(case("adamw", lambda p: optim.AdamW(p, 0.1, betas, weight_decay=0.3), 0.0,
           ["true, true, false", 0.0, 0.3]), end="")
print("};\n// clang-format on")
