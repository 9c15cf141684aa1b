#!/usr/bin/env python3
"""Convolutions over time and over images beside PyTorch (oneDNN inside) on the shapes of `checkop
conv --bench`.

Ours read packed rows [frames x sequences, channels]; PyTorch gets [sequences, channels, (height,)
frames], its own layout, and its best of that and of a convolution of two dimensions with channels
last counts. All sequences have the same length, so nothing is padded. Gradients are those of one
operand at a time. Rounds alternate between the two and the fastest run of each counts, because the
machine may be shared. `--pattern images` times the images alone.
"""

import re

import common

torch = common.import_or_skip("torch")

# What a case convolves: kernel, stride, sequences, frames, channels in and out; and of images the
# heights of kernel and image.
LINES = re.compile(r"kernel (?P<kernel>\d+) stride (?P<stride>\d+)/(?P<dtype>f32|bf16)/(?P<sequences>\d+)"
                   r"x(?P<frames>\d+)x(?P<cols>\d+)->(?P<out>\d+)")
IMAGES = re.compile(r"images (?P<rows>\d+)x(?P<kernel>\d+)/(?P<dtype>f32|bf16)/(?P<sequences>\d+)"
                    r"x(?P<height>\d+)x(?P<frames>\d+)/(?P<cols>\d+)->(?P<out>\d+)")
DEPTHWISE = re.compile(r"depthwise (?P<rows>\d+)x(?P<kernel>\d+)/(?P<dtype>f32|bf16)/(?P<sequences>\d+)"
                       r"x(?P<height>\d+)x(?P<frames>\d+)/(?P<out>\d+)")


def problem(case):
    """The shapes of a case: {} where it is none of ours."""
    found = LINES.fullmatch(case) or IMAGES.fullmatch(case) or DEPTHWISE.fullmatch(case)
    if not found:
        return {}
    sizes = {"rows": 1, "height": 1, "stride": 1, "groups": 1}
    sizes.update((name, int(size)) for name, size in found.groupdict().items() if name != "dtype")
    if found.re is DEPTHWISE:
        sizes.update(cols=sizes["out"], groups=sizes["out"])
    return sizes | {"dtype": torch.float32 if found["dtype"] == "f32" else torch.bfloat16}


def layouts(p):
    """(x, w, strides, paddings) in each layout that the peer knows."""
    x = torch.empty(p["sequences"], p["cols"], p["height"], p["frames"]).uniform_(-1, 1).to(p["dtype"])
    w = torch.empty(p["out"], p["cols"] // p["groups"], p["rows"], p["kernel"]).uniform_(-1, 1).to(p["dtype"])
    last = (v.contiguous(memory_format=torch.channels_last) for v in (x, w))
    strides, paddings = [1, p["stride"]], [p["rows"] // 2, p["kernel"] // 2]
    if p["height"] == 1:
        yield x.squeeze(2), w.squeeze(2), strides[1:], paddings[1:]
    else:
        yield x, w, strides, paddings
    yield *last, strides, paddings


def calls(op, case):
    """The peer's ways to compute one case."""
    p = problem(case)
    forward_op = not op.endswith(("_grad_input", "_grad_weight"))
    groups = p["groups"]
    bias = torch.empty(p["out"]).uniform_(-1, 1).to(p["dtype"]) if forward_op else None
    functions = []
    for x, w, strides, padding in layouts(p):
        ones, zeros = [1] * len(strides), [0] * len(strides)
        def forward(a=x, b=w, s=strides, p=padding, ones=ones, zeros=zeros):
            return torch.convolution(a, b, bias, s, p, ones, False, zeros, groups)
        if forward_op:
            functions.append(forward)
            continue
        dy = torch.empty_like(forward()).uniform_(-1, 1)
        mask = [op.endswith("_grad_input"), op.endswith("_grad_weight"), False]
        functions.append(lambda a=x, b=w, s=strides, p=padding, dy=dy, ones=ones, zeros=zeros, mask=mask:
                         torch.ops.aten.convolution_backward(dy, a, b, None, s, p, ones, False, zeros,
                                                             groups, mask))
    return functions


def print_table(rows):
    for what, words in (("over time", ("kernel",)), ("over images", ("images", "depthwise"))):
        for kind in ("f32", "bf16"):
            of_kind = [r for r in rows if f"/{kind}/" in r["case"] and r["case"].startswith(words)]
            if of_kind:
                common.print_ratios(f"{what} {kind}", of_kind)


if __name__ == "__main__":
    common.compare_with_torch(torch, __doc__, "conv", problem, calls, print_table)
