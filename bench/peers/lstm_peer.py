#!/usr/bin/env python3
"""One LSTM layer's training step (forward, backward, weight gradients) beside torch.nn.LSTM.

Usage: bench/peers/lstm_peer.py [--threads N] [--clock wall|thread] [--match TEXT] [--rounds N]

The shapes are those of `checkop lstm --bench` with one direction. PyTorch is timed on padded input
(even batches: the same work; ragged ones: the padding is computed too) and on packed input, forward
plus backward with gradients of the input and of all weights. Its faster number of threads up to N
and the faster of oneDNN on and off count. Ours and PyTorch's alternate, --rounds times, and the
fastest run of each counts, because the machine may be shared. --clock thread compares processor
time on one thread instead of wall time, which disturbs less.
"""

import argparse
import re
import time

from common import import_or_skip, print_ratios, run_checkop, usable_cpus, write_json

CASE = re.compile(r"bench_h(\d+)_b(\d+)_t(\d+)_d1_(f32|bf16)_(even|ragged)$")


def lengths_of(batch, frames, ragged):
    """As in kernels/lstm/lstm_check.cc."""
    return [frames - n * (frames // 2) // max(batch - 1, 1) if ragged else frames
            for n in range(batch)]


class Peer:
    """torch.nn.LSTM on one shape; run() is one training step."""

    def __init__(self, torch, case, packed):
        hidden, batch, frames = (int(v) for v in CASE.match(case).groups()[:3])
        dtype = torch.float32 if "_f32_" in case else torch.bfloat16
        self.torch = torch
        self.model = torch.nn.LSTM(hidden, hidden).to(dtype)
        self.x = torch.randn(frames, batch, hidden).to(dtype)
        self.lengths = torch.tensor(lengths_of(batch, frames, case.endswith("ragged")))
        self.packed = packed
        if packed:
            self.x = torch.nn.utils.rnn.pack_padded_sequence(self.x, self.lengths).data
            self.sizes = torch.tensor([int((self.lengths > t).sum()) for t in range(frames)])
        self.x.requires_grad_()
        self.dy = torch.randn(*self.x.shape[:-1], hidden).to(dtype)

    def run(self):
        x = self.x
        if self.packed:
            x = self.torch.nn.utils.rnn.PackedSequence(x, self.sizes)
        y = self.model(x)[0]
        (y.data if self.packed else y).backward(self.dy)
        self.model.zero_grad(set_to_none=True)
        self.x.grad = None


def fastest(function, clock, seconds):
    """The fastest run within about `seconds`, after a warm-up; at least two."""
    function()
    best, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while time.perf_counter() < end or runs < 2:
        start = clock()
        function()
        best = min(best, clock() - start)
        runs += 1
    return best


def torch_step(torch, peers, threads, clock, seconds):
    """Seconds of PyTorch's best setting; a setting that is far behind is not tried again."""
    best = float("inf")
    for setting in sorted(peers.settings, key=peers.settings.get):
        count, onednn = setting
        if peers.settings[setting] > 3 * min(peers.settings.values()):
            continue
        torch.set_num_threads(count)
        with torch.backends.mkldnn.flags(enabled=onednn):
            took = fastest(peers.run, clock, seconds)
        peers.settings[setting] = min(took, peers.settings[setting] or took)
        best = min(best, took)
    return best


def ours_best(case, options):
    """Rows of the first variant, in the table's order of preference, that this machine runs."""
    for variant in ("avx512bf16", "avx512", "avx2", "generic"):
        rows = run_checkop(case, threads=options.threads, seconds=options.seconds, variant=variant)
        if rows:
            return rows
    return []


def time_case(torch, case, options):
    clock = time.thread_time if options.clock == "thread" else time.perf_counter
    column = "min_thread_us" if options.clock == "thread" else "min_us"
    counts = sorted({1, options.threads})
    peers = {"torch padded": Peer(torch, case, False), "torch packed": Peer(torch, case, True)}
    for peer in peers.values():
        peer.settings = {(n, onednn): 0.0 for n in counts for onednn in (True, False)}
    ours, theirs = {}, {name: float("inf") for name in peers}
    for _ in range(options.rounds):
        for row in ours_best(case, options):
            op = row["op"]
            ours[op] = min(ours.get(op, float("inf")), row[column])
        for name, peer in peers.items():
            theirs[name] = min(theirs[name],
                               torch_step(torch, peer, options.threads, clock, options.seconds))
    hidden, rows = int(CASE.match(case)[1]), sum(peers["torch packed"].lengths.tolist())
    flops = 3 * 2 * rows * 4 * hidden * 2 * hidden
    total = sum(ours.values())
    return {"case": case, "ours_us": total, "parts_us": ours, "flops": flops,
            "gflops": flops / total * 1e-3,
            "peers": {name: seconds * 1e6 for name, seconds in theirs.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=min(2, usable_cpus()))
    parser.add_argument("--clock", choices=["wall", "thread"], default="wall")
    parser.add_argument("--match", default="", help="only cases that contain this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2, help="per measurement")
    options = parser.parse_args()
    if options.clock == "thread":
        options.threads = 1
    torch = import_or_skip("torch")
    cases = [f"bench_h{h}_b{b}_t{100 if h >= 1024 else 200}_d1_{dtype}_{kind}"
             for dtype in ("f32", "bf16") for h in (128, 256, 512, 1024) for b in (1, 16, 64)
             for kind in ("even", "ragged") if not (b == 1 and kind == "ragged")]
    rows = []
    for case in cases:
        if options.match in case:
            rows.append(time_case(torch, case, options))
            r = rows[-1]
            print(f"{case}: {r['gflops']:.0f} GFLOP/s", flush=True)
    for dtype in ("f32", "bf16"):
        for kind in ("even", "ragged"):
            chosen = [r for r in rows if f"_{dtype}_{kind}" in r["case"]]
            if chosen:
                print_ratios(f"lstm {dtype} {kind}", chosen)
    write_json("lstm_" + options.clock, rows, threads=options.threads, clock=options.clock,
               torch=torch.__version__)


if __name__ == "__main__":
    main()
