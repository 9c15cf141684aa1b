#!/usr/bin/env python3
"""Times PyTorch's CTC loss and gradient on the shapes of checkop's ctc/bench; one JSON object per line.

Usage: torch_ctc.py [--device cuda|cpu] [--seconds S] SHAPE ...      SHAPE: T500N32V32L100

A run is log_softmax of f32 logits, ctc_loss and the gradient with respect to the logits: what our kernels do in one
call. "native" is PyTorch's own kernel, "cudnn" is cuDNN's where PyTorch would take it for the shape ("takes_cudnn").
Exit status 77 without PyTorch or without the device.
"""

import argparse
import json
import re
import statistics
import sys

import torch_timing


def make_run(torch, device, shape, kernel):
    """A function that does one run, and whether cuDNN does it."""
    frames, sequences, classes, labels = shape
    torch.manual_seed(1)
    logits = torch.randn(frames, sequences, classes, device=device, requires_grad=True)
    # cuDNN wants 32 bits, all targets in a row on the host; PyTorch takes its own kernel for others.
    flat = torch.randint(1, classes, (sequences * labels,), dtype=torch.int32)
    if kernel == "native":
        flat = flat.long().to(device)
    lengths = [torch.full((sequences,), n, dtype=torch.int32 if kernel == "cudnn" else torch.int64)
               for n in (frames, labels)]
    takes = False
    if device == "cuda":  # elsewhere there is nothing to ask
        with torch.no_grad():
            takes = torch._use_cudnn_ctc_loss(logits.log_softmax(-1), flat, *(n.tolist() for n in lengths), 0)

    def run():
        logits.grad = None
        loss = torch.nn.functional.ctc_loss(logits.log_softmax(-1), flat, *lengths, reduction="sum")
        loss.backward()
    return run, bool(takes)


def time_runs(torch, device, run, seconds):
    """(median seconds of a run with the host's wait, seconds of one of many in a row)."""
    median = statistics.median(torch_timing.time_each(torch, device, run, seconds / 2))
    return median, torch_timing.time_in_a_row(torch, device, run, max(3, int(seconds / 2 / median)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--seconds", type=float, default=0.3, help="per shape and kernel")
    parser.add_argument("shapes", nargs="+", metavar="SHAPE")
    args = parser.parse_args()
    shapes = {}
    for text in args.shapes:
        numbers = re.fullmatch(r"T(\d+)N(\d+)V(\d+)L(\d+)", text)
        if numbers is None:
            parser.error(f"'{text}' is no shape, expected as T500N32V32L100")
        shapes[text] = tuple(map(int, numbers.groups()))
    torch = torch_timing.find_torch(args.device)
    for text, shape in shapes.items():
        for kernel in ("native", "cudnn") if args.device == "cuda" else ("native",):
            row = {"case": text, "kernel": kernel, "torch": torch.__version__}
            try:
                run, row["takes_cudnn"] = make_run(torch, args.device, shape, kernel)
                if kernel == "cudnn" and not row["takes_cudnn"]:
                    row["error"] = "cuDNN does not take this shape"
                else:
                    median, in_a_row = time_runs(torch, args.device, run, args.seconds)
                    row |= {"median_us": round(1e6 * median, 3), "stream_us": round(1e6 * in_a_row, 3)}
            except Exception as error:  # a shape this PyTorch cannot do; the others still count
                row["error"] = f"{type(error).__name__}: {error}"[:500]
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
