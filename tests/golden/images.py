"""What the scripts share that write golden numbers of packed batches of images."""
import torch

torch.set_default_dtype(torch.float64)


def drawer(seed):
    """draw(*shape): values in [-1, 1] with three decimals, exact in a header and short to read."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: (torch.rand(*shape, generator=generator) * 2 - 1).mul(1000).round().div(1000)


def packed(images):
    """[channels, height, width] each, longest first -> rows as in kernels/base/packed.h, with the pixels of a
    column from top to bottom and all channels of each."""
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


def header(script, members, struct, array, cases):
    return f"""// Made by tests/golden/{script} with PyTorch; see there.
#pragma once

#include <cstdint>
#include <vector>

namespace rondo::test {{

struct {struct} {{
{members}
}};

// clang-format off
inline const std::vector<{struct}> {array} = {{
{''.join(cases)}}};
// clang-format on

}}  // namespace rondo::test"""
