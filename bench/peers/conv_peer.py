#!/usr/bin/env python3
"""Convolutions beside PyTorch (oneDNN inside) on the shapes of `checkop conv --bench`.

Ours read packed rows [frames x sequences, channels]; PyTorch's conv1d gets [sequences, channels,
frames], its own layout, and its best of that and of a convolution of two dimensions with channels
last counts. All sequences have the same length, so nothing is padded. Gradients are those of one
operand at a time. Rounds alternate between the two and the fastest run of each counts, because the
machine may be shared.
"""

import re

import common

torch = common.import_or_skip("torch")

CASE = re.compile(r"kernel (\d+) stride (\d+)/(f32|bf16)/(\d+)x(\d+)x(\d+)->(\d+)")


def calls(op, case):
    """The peer's ways to compute one case."""
    found = CASE.match(case)
    kernel, stride, sequences, frames, cols, out = (int(found[i]) for i in (1, 2, 4, 5, 6, 7))
    dtype = torch.float32 if found[3] == "f32" else torch.bfloat16
    x = torch.empty(sequences, cols, frames).uniform_(-1, 1).to(dtype)
    w = torch.empty(out, cols, kernel).uniform_(-1, 1).to(dtype)
    bias = torch.empty(out).uniform_(-1, 1).to(dtype) if op == "conv" else None
    last = torch.channels_last
    x2, w2 = (v.unsqueeze(2).contiguous(memory_format=last) for v in (x, w))
    plain = (x, w, [stride], [kernel // 2], [1])
    planes = (x2, w2, [1, stride], [0, kernel // 2], [1, 1])
    functions = []
    for a, b, strides, padding, dilation in (plain, planes):
        def forward(a=a, b=b, strides=strides, padding=padding, dilation=dilation):
            return torch.convolution(a, b, bias, strides, padding, dilation, False,
                                     [0] * len(strides), 1)
        if op == "conv":
            functions.append(forward)
            continue
        dy = torch.empty_like(forward()).uniform_(-1, 1)
        mask = [op == "conv_grad_input", op == "conv_grad_weight", False]
        functions.append(lambda a=a, b=b, s=strides, p=padding, d=dilation, dy=dy, mask=mask:
                         torch.ops.aten.convolution_backward(dy, a, b, None, s, p, d, False,
                                                             [0] * len(s), 1, mask))
    return functions


def main():
    timing = common.Timing(__doc__)
    torch.set_num_threads(timing.threads)
    torch.set_grad_enabled(False)
    peaks = common.measure_peaks(timing.threads, timing.seconds, timing.clock)

    def ours():
        rows = common.run_checkop("conv", timing.threads, timing.seconds, backend="cpu")
        return [row for row in rows if CASE.match(row["case"])]

    rows = timing.in_turns("torch", ours, calls)
    rows = [common.annotate(row, peaks, row["ours_us"]) for row in rows]
    for kind in ("f32", "bf16"):
        common.print_ratios(f"conv {kind}", [r for r in rows if f"/{kind}/" in r["case"]])
    print(common.write_json("conv-peers", rows, threads=timing.threads, clock=timing.clock,
                            peaks=peaks, peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
