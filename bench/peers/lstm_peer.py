#!/usr/bin/env python3
"""One LSTM layer's training step (forward, backward, weight gradients) beside torch.nn.LSTM.

Usage: bench/peers/lstm_peer.py [--threads N] [--clock wall|thread] [--match TEXT] [--rounds N]

Ours is bench/lstm_bench: one layer, one direction, as wide as its input, H 128 to 1024, B 1 to 64.
PyTorch gives the gradients of the input and of all weights too. It gets padded input (even batches:
the same work; ragged ones, T down to T / 2 frames: the padding is computed as well) and, for ragged
batches, packed input. Its fastest setting counts: threads 1 and N, oneDNN on and off; settings are
compared on a few frames first, and the best of them, and all within a third of it, on the whole shape.
Ours and PyTorch alternate, --rounds times; of each the fastest run counts, because the machine may be
shared. --clock thread compares processor time on one thread instead of wall time, which disturbs less.

Geometric means are printed per class and written with the rows: f32 and bf16; even batches; ragged
ones against packed and against padded input; bf16 also against PyTorch's f32. share_of_gemm_peak is
our rate over that of a large square product in the same run. The whole takes about four minutes on two
quiet cores; --quick leaves out the largest shapes.
"""

import argparse
import re
import sys
import time

from common import (annotate, geometric_mean, import_or_skip, measure_peaks, run_bench_program,
                    usable_cpus, write_json)

CASE = re.compile(r"h(\d+)_b(\d+)_t(\d+)_d1_(f32|bf16)_(even|ragged)$")
FRAMES = {128: 200, 256: 200, 512: 100, 1024: 50}
BATCHES = (1, 4, 16, 64)


def cases(quick):
    for dtype in ("f32", "bf16"):
        for kind in ("even", "ragged"):
            for hidden, frames in FRAMES.items():
                for batch in BATCHES:
                    if kind == "ragged" and batch == 1 or quick and hidden * batch > 16384:
                        continue
                    yield f"h{hidden}_b{batch}_t{frames}_d1_{dtype}_{kind}"


class Peer:
    """torch.nn.LSTM on the first `frames` frames of a shape; run() is one training step."""

    def __init__(self, torch, case, packed, frames=None):
        hidden, batch, whole = (int(v) for v in CASE.match(case).groups()[:3])
        frames = frames or whole
        dtype = torch.float32 if "_f32_" in case else torch.bfloat16
        ragged = frames // 2 if case.endswith("ragged") else 0
        lengths = torch.tensor([frames - n * ragged // max(batch - 1, 1) for n in range(batch)])
        self.torch = torch
        self.model = torch.nn.LSTM(hidden, hidden).to(dtype)
        self.x = torch.randn(frames, batch, hidden).to(dtype)
        self.sizes = None
        if packed:
            packed = torch.nn.utils.rnn.pack_padded_sequence(self.x, lengths)
            self.x, self.sizes = packed.data, packed.batch_sizes
        self.x.requires_grad_()
        self.dy = torch.randn(*self.x.shape[:-1], hidden).to(dtype)

    def run(self):
        if self.sizes is None:
            y = self.model(self.x)[0]
        else:
            y = self.model(self.torch.nn.utils.rnn.PackedSequence(self.x, self.sizes))[0].data
        y.backward(self.dy)
        self.model.zero_grad(set_to_none=True)
        self.x.grad = None


def fastest(function, clock, seconds):
    """The fastest run within about `seconds`, after a warm-up; at least two. When one run takes
    longer than that, the warm-up counts as a run."""
    start, begin = clock(), time.perf_counter()
    function()
    best = clock() - start
    if time.perf_counter() - begin < seconds:
        best = float("inf")
    end, runs = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or runs < (2 if best == float("inf") else 1):
        start = clock()
        function()
        best = min(best, clock() - start)
        runs += 1
    return best


class Contest:
    """PyTorch on one shape: the settings worth trying, the fastest time so far."""

    def __init__(self, torch, case, packed, options, clock):
        self.torch, self.options, self.clock = torch, options, clock
        self.peer = Peer(torch, case, packed)
        probe = Peer(torch, case, packed, frames=8)
        settings = [(n, onednn) for n in sorted({1, options.threads}) for onednn in (True, False)]
        times = {s: self.time(probe, s, options.seconds / 4) for s in settings}
        self.settings = [s for s in settings if times[s] <= 4 / 3 * min(times.values())]
        self.best, self.setting = float("inf"), None

    def time(self, peer, setting, seconds):
        self.torch.set_num_threads(setting[0])
        with self.torch.backends.mkldnn.flags(enabled=setting[1]):
            return fastest(peer.run, self.clock, seconds)

    def round(self):
        if 1 < self.best < float("inf"):  # a second or more: steady enough after one round
            return
        for setting in self.settings:
            took = self.time(self.peer, setting, self.options.seconds)
            if took < self.best:
                self.best, self.setting = took, setting


def ours(case, options):
    return run_bench_program("lstm_bench", "--threads", options.threads, "--seconds",
                             options.seconds, case)[0]


def time_case(torch, case, options):
    clock = time.thread_time if options.clock == "thread" else time.perf_counter
    column = "min_thread_us" if options.clock == "thread" else "min_us"
    kinds = {"torch padded": False, "torch packed": True} if case.endswith("ragged") else {
        "torch padded": False}
    contests = {name: Contest(torch, case, packed, options, clock)
                for name, packed in kinds.items()}
    best, median = float("inf"), float("inf")
    for _ in range(options.rounds):
        row = ours(case, options)
        best, median = min(best, row[column]), min(median, row["median_us"])
        for contest in contests.values():
            contest.round()
    return {"op": row["op"], "case": case, "dtype": row["dtype"], "shape": row["shape"],
            "ours_us": best, "ours_median_us": median, "flops": row["flops"],
            "bytes": row["bytes"],
            "peers": {name: c.best * 1e6 for name, c in contests.items()},
            "peer_settings": {name: {"threads": c.setting[0], "onednn": c.setting[1]}
                              for name, c in contests.items()}}


def means(rows):
    """Geometric means of PyTorch's time over ours, by class."""
    f32 = {r["case"]: r["peers"] for r in rows if "_f32_" in r["case"]}
    out = {}
    for dtype in ("f32", "bf16"):
        for kind in ("even", "ragged"):
            chosen = [r for r in rows if r["case"].endswith(f"_{dtype}_{kind}")]
            for peer in ("torch padded", "torch packed"):
                of = [r for r in chosen if peer in r["peers"]]
                if not of:
                    continue
                out[f"{dtype} {kind}, {peer} {dtype}"] = [r["peers"][peer] / r["ours_us"]
                                                          for r in of]
                same = [(f32[c][peer], r["ours_us"]) for r in of
                        if (c := r["case"].replace("_bf16_", "_f32_")) in f32]
                if dtype == "bf16" and same:
                    out[f"bf16 {kind}, {peer} f32"] = [theirs / us for theirs, us in same]
    return {name: {"mean": round(geometric_mean(v), 3), "shapes": len(v)}
            for name, v in out.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=min(2, usable_cpus()))
    parser.add_argument("--clock", choices=["wall", "thread"], default="wall")
    parser.add_argument("--match", default="", help="only cases that contain this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.15, help="per measurement")
    parser.add_argument("--quick", action="store_true", help="leave out the largest shapes")
    options = parser.parse_args()
    if options.clock == "thread":
        options.threads = 1
    torch = import_or_skip("torch")
    peaks = measure_peaks(options.threads, 0.5, options.clock)
    rows, begin = [], time.perf_counter()
    for case in cases(options.quick):
        if options.match not in case:
            continue
        row = time_case(torch, case, options)
        rows.append(annotate(row, peaks, row["ours_us"]))
        print(f"{case:<28} {row['ours_us']:>10.0f} us {row['gflops']:>6.0f} GFLOP/s "
              f"{row['share_of_gemm_peak']:>5.0%} of gemm  " + "  ".join(
                  f"{name} {us:.0f} us ratio {us / row['ours_us']:.2f} "
                  f"(threads {row['peer_settings'][name]['threads']}, "
                  f"oneDNN {'on' if row['peer_settings'][name]['onednn'] else 'off'})"
                  for name, us in row["peers"].items()), flush=True)
    if not rows:
        sys.exit(f"no case contains '{options.match}'")
    summary = means(rows)
    for name, value in summary.items():
        print(f"geometric mean, {name:<34} {value['mean']:>6.2f}  ({value['shapes']} shapes)")
    shares = [r["share_of_gemm_peak"] for r in rows if int(CASE.match(r["case"])[2]) >= 16]
    if shares:
        print(f"B >= 16: {min(shares):.0%} to {max(shares):.0%} of the gemm peak "
              f"({', '.join(f'{t} {v:.0f}' for t, v in peaks['gemm_gflops'].items())} GFLOP/s)")
    print(write_json("lstm-peers" + ("-thread" if options.clock == "thread" else ""), rows,
                     threads=options.threads, clock=options.clock, geometric_means=summary,
                     peaks=peaks, seconds=round(time.perf_counter() - begin, 1),
                     peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
