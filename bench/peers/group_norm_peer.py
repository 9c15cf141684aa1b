#!/usr/bin/env python3
"""Group normalisation of images beside PyTorch on the shapes of `checkop group_norm --bench`.

Ours reads packed rows; PyTorch gets [sequences, channels, height, frames], its own layout, and its best of that
and of channels last counts. All sequences have the same length, so nothing is padded. Rounds alternate between
the two and the fastest run of each counts, because the machine may be shared.
"""

import re

import common

torch = common.import_or_skip("torch")

CASE = re.compile(r"(?P<dtype>f32|bf16)/(?P<sequences>\d+)x(?P<height>\d+)x(?P<frames>\d+)x(?P<channels>\d+)"
                  r" in (?P<groups>\d+)")


def problem(case):
    """The shapes of a case: {} where it is none of ours."""
    found = CASE.fullmatch(case)
    if not found:
        return {}
    sizes = {name: int(size) for name, size in found.groupdict().items() if name != "dtype"}
    return sizes | {"dtype": torch.float32 if found["dtype"] == "f32" else torch.bfloat16}


def calls(op, case):
    """The peer's ways to compute one case."""
    p = problem(case)
    n, c, groups = p["sequences"], p["channels"], p["groups"]
    gamma, beta = (torch.empty(c).uniform_(-1, 1).to(p["dtype"]) for _ in range(2))
    functions = []
    for layout in (torch.contiguous_format, torch.channels_last):
        x, dy = (torch.empty(n, c, p["height"], p["frames"]).uniform_(-1, 1).to(p["dtype"])
                 .contiguous(memory_format=layout) for _ in range(2))
        pixels = p["height"] * p["frames"]
        if op == "group_norm":
            functions.append(lambda x=x, pixels=pixels: torch.native_group_norm(
                x, gamma, beta, n, c, pixels, groups, 1e-5))
            continue
        _, mean, rstd = torch.native_group_norm(x, gamma, beta, n, c, pixels, groups, 1e-5)
        functions.append(lambda x=x, dy=dy, mean=mean, rstd=rstd, pixels=pixels:
                         torch.ops.aten.native_group_norm_backward(
                             dy, x, mean, rstd, gamma, n, c, pixels, groups, [True, True, True]))
    return functions


if __name__ == "__main__":
    common.compare_with_torch(torch, __doc__, "group_norm", problem, calls)
