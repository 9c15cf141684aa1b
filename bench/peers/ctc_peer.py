#!/usr/bin/env python3
"""CTC loss and gradient with respect to the logits beside PyTorch and warp-ctc, on the shapes of
`checkop ctc --bench` in f32 (the peers' CPU kernels take no bf16).

PyTorch: log_softmax, torch.nn.functional.ctc_loss, and the backward pass of both, on the padded
(T, N, V) tensor it wants; labels padded or concatenated, int32 or int64: the fastest counts. Ours
takes logits and returns both. warp-ctc, if $RONDO_WARPCTC names its library (libwarpctc.so; PaddlePaddle's
wheel holds one): compute_ctc_loss, which takes logits as well, on --threads threads. Rounds
alternate, and each side's best round (a median) counts, so that a busy moment of the machine harms
none.
"""

import argparse
import ctypes
import os
import re

import common

torch = common.import_or_skip("torch")


def sizes_of(case):
    """(T, N, V, L)"""
    return map(int, re.search(r"T(\d+)N(\d+)V(\d+)L(\d+)", case).groups())


def lattice_cells(case):
    """Frames times states, over all sequences: what alpha and beta visit."""
    frames, sequences, _, length = sizes_of(case)
    return frames * sequences * (2 * length + 1)


class WarpCtcOptions(ctypes.Structure):
    """ctcOptions of warp-ctc's C API: where to compute (0: CPU), threads (a union with a stream),
    the blank's index."""
    _fields_ = [("location", ctypes.c_int), ("threads", ctypes.c_void_p), ("blank", ctypes.c_int)]


def warp_ctc(library, case, threads):
    """A function of one forward and backward pass by warp-ctc."""
    frames, sequences, classes, length = sizes_of(case)
    generator = torch.Generator().manual_seed(1)
    logits = torch.empty(frames, sequences, classes).uniform_(-3, 3, generator=generator)
    grads = torch.empty_like(logits)
    labels = torch.randint(1, classes, (sequences * length,), generator=generator,
                           dtype=torch.int32)
    frame_counts = torch.full((sequences,), frames, dtype=torch.int32)
    label_counts = torch.full((sequences,), length, dtype=torch.int32)
    costs = torch.full((sequences,), float("nan"))
    options = WarpCtcOptions(0, threads, 0)
    pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
    size = ctypes.c_size_t()
    status = library.get_workspace_size(pointer(label_counts), pointer(frame_counts), classes,
                                        sequences, options, ctypes.byref(size))
    if status != 0:
        raise RuntimeError(f"warp-ctc: get_workspace_size returned {status}")
    workspace = torch.empty(size.value, dtype=torch.uint8)

    def run():
        status = library.compute_ctc_loss(
            pointer(logits), pointer(grads), pointer(labels), pointer(label_counts),
            pointer(frame_counts), classes, sequences, pointer(costs), pointer(workspace), options)
        if status != 0:
            raise RuntimeError(f"warp-ctc: compute_ctc_loss returned {status}")

    run()
    expected = torch.nn.functional.ctc_loss(logits.log_softmax(2), labels, frame_counts,
                                            label_counts, reduction="none")
    if not torch.allclose(costs, expected, rtol=1e-3):
        raise RuntimeError(f"warp-ctc and PyTorch disagree on {case}")
    return run


def settings(case):
    """{name: function} of one forward and backward pass by PyTorch."""
    frames, sequences, classes, length = sizes_of(case)
    generator = torch.Generator().manual_seed(1)
    logits = torch.empty(frames, sequences, classes).uniform_(-3, 3, generator=generator)
    logits.requires_grad_()
    labels = torch.randint(1, classes, (sequences, length), generator=generator)

    def step(targets, dtype):
        targets = targets.to(dtype)
        frame_counts = torch.full((sequences,), frames, dtype=dtype)
        label_counts = torch.full((sequences,), length, dtype=dtype)

        def run():
            logits.grad = None
            loss = torch.nn.functional.ctc_loss(logits.log_softmax(2), targets, frame_counts,
                                                label_counts, reduction="sum")
            loss.backward()
        return run

    return {f"{form} {name}": step(targets, dtype)
            for form, targets in (("padded", labels), ("concatenated", labels.reshape(-1)))
            for name, dtype in (("int32", torch.int32), ("int64", torch.int64))}


def best_of_peers(case, library, options):
    """{peer: (microseconds, its setting)}"""
    theirs = {name: common.median_seconds(f, options.seconds, least=2) * 1e6
              for name, f in settings(case).items()}
    fastest = min(theirs, key=theirs.get)
    best = {"torch": (theirs[fastest], fastest)}
    if library:
        run = warp_ctc(library, case, options.threads)
        best["warp-ctc"] = (common.median_seconds(run, options.seconds, least=2) * 1e6, "")
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=common.usable_cpus())
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    path = os.environ.get("RONDO_WARPCTC")
    library = ctypes.CDLL(path) if path else None
    versions = {"torch": torch.__version__}
    if library:
        versions["warp-ctc"] = f"{os.path.basename(path)} {library.get_warpctc_version()}"
    else:
        print("without warp-ctc: RONDO_WARPCTC does not name its library")
    peaks = common.measure_peaks(args.threads, args.seconds)
    rows = {}
    for _ in range(args.rounds):
        ours = common.group_best(
            [row for shapes in ("bench", "alone")
             for row in common.run_checkop_best(f"ctc/{shapes}/f32", args.threads, args.seconds)])
        for (op, case), best in ours.items():
            row = rows.setdefault(case, {"op": op, "case": case, "ours_us": best["median_us"],
                                         "variant": best["variant"], "flops": best["flops"],
                                         "bytes": best["bytes"],
                                         "lattice_cells": lattice_cells(case), "peers": {},
                                         "peer_settings": {}})
            if best["median_us"] < row["ours_us"]:
                row.update(ours_us=best["median_us"], variant=best["variant"])
            for peer, (took, setting) in best_of_peers(case, library, args).items():
                if took < row["peers"].get(peer, float("inf")):
                    row["peers"][peer] = took
                    row["peer_settings"][peer] = setting
    rows = [common.annotate(row, peaks, row["ours_us"]) for row in rows.values()]
    common.print_ratios("ctc", rows)
    print(common.write_json("ctc-peers", rows, threads=args.threads, rounds=args.rounds, peaks=peaks,
                            peer_versions=versions))


if __name__ == "__main__":
    main()
