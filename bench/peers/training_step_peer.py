#!/usr/bin/env python3
"""A whole training step beside PyTorch: the model and batch of bench/training_step_bench.

80 features, two bidirectional LSTM layers, a linear layer to 32 classes, CTC, clipping of the
gradient's norm, Adam; 32 utterances of 400 down to 160 frames. PyTorch gets the batch packed and
padded, f32 and (beside our bf16) under autocast to bf16, on 1 and N threads, with oneDNN on and off;
settings are compared on an eighth of the frames first, and the best of them, and all within a third
of it, on the whole batch. Ours and PyTorch alternate, --rounds times; the fastest step of each counts.
--clock thread compares processor time on one thread instead of wall time, which disturbs less.
"""

import argparse
import itertools
import sys
import time

from common import (annotate, geometric_mean, import_or_skip, measure_peaks, run_bench_program,
                    usable_cpus, write_json)

FEATURES, CLASSES, UTTERANCES, LONGEST, SHORTEST = 80, 32, 32, 400, 160


class Peer:
    """run() is one training step on lengths divided by `shorter`."""

    def __init__(self, torch, hidden, packed, autocast, shorter=1):
        torch.manual_seed(1)
        self.torch, self.packed, self.autocast = torch, packed, autocast
        span = LONGEST - SHORTEST
        self.lengths = torch.tensor([(LONGEST - n * span // (UTTERANCES - 1)) // shorter
                                     for n in range(UTTERANCES)])
        self.label_lengths = self.lengths // 8
        self.labels = torch.randint(1, CLASSES, (int(self.label_lengths.sum()),))
        x = torch.rand(int(self.lengths[0]), UTTERANCES, FEATURES) * 2 - 1
        self.x = torch.nn.utils.rnn.pack_padded_sequence(x, self.lengths) if packed else x
        self.lstm = torch.nn.LSTM(FEATURES, hidden, 2, bidirectional=True)
        self.linear = torch.nn.Linear(2 * hidden, CLASSES)
        self.ctc = torch.nn.CTCLoss(reduction="sum")
        self.parameters = [*self.lstm.parameters(), *self.linear.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-4)

    def run(self):
        torch = self.torch
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            y = self.lstm(self.x)[0]
            if self.packed:
                logits = torch.nn.utils.rnn.pad_packed_sequence(
                    y._replace(data=self.linear(y.data)))[0]
            else:
                logits = self.linear(y)
        log_p = logits.float().log_softmax(-1)
        loss = self.ctc(log_p, self.labels, self.lengths, self.label_lengths) / UTTERANCES
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 5.0)
        self.optimizer.step()
        if not torch.isfinite(loss):
            sys.exit("PyTorch's loss is not finite")


def fastest(function, clock, runs):
    best = float("inf")
    for _ in range(runs):
        start = clock()
        function()
        best = min(best, clock() - start)
    return best


class Contest:
    """PyTorch with one way of computing: the settings worth trying, the fastest step so far."""

    def __init__(self, torch, options, autocast, clock):
        self.torch, self.clock = torch, clock
        self.peers = {p: Peer(torch, options.hidden, p, autocast) for p in (True, False)}
        probes = {p: Peer(torch, options.hidden, p, autocast, shorter=8) for p in (True, False)}
        settings = list(itertools.product(sorted({1, options.threads}), (True, False),
                                          (True, False)))
        times = {s: self.time(probes, s, 2) for s in settings}
        self.settings = [s for s in settings if times[s] <= 4 / 3 * min(times.values())]
        self.best, self.setting = float("inf"), None

    def time(self, peers, setting, runs):
        threads, onednn, packed = setting
        self.torch.set_num_threads(threads)
        with self.torch.backends.mkldnn.flags(enabled=onednn):
            return fastest(peers[packed].run, self.clock, runs)

    def round(self):
        for setting in self.settings:
            took = self.time(self.peers, setting, 2)
            if took < self.best:
                self.best, self.setting = took, setting


def ours(dtype, options):
    return run_bench_program("training_step_bench", "--threads", options.threads, "--seconds",
                             options.seconds, "--hidden", options.hidden, dtype)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=min(2, usable_cpus()))
    parser.add_argument("--clock", choices=["wall", "thread"], default="wall")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="of ours per round and type")
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    if options.clock == "thread":
        options.threads = 1
    clock = time.thread_time if options.clock == "thread" else time.perf_counter
    column = "min_thread_ms" if options.clock == "thread" else "min_ms"
    torch = import_or_skip("torch")
    contests = {"torch f32": Contest(torch, options, False, clock),
                "torch autocast bf16": Contest(torch, options, True, clock)}
    peaks = measure_peaks(options.threads, 0.5, options.clock)
    best = {}
    for _ in range(1 if options.quick else options.rounds):
        for dtype in ("f32", "bf16"):
            row = ours(dtype, options)
            if dtype not in best or row[column] < best[dtype][column]:
                best[dtype] = row
        for contest in contests.values():
            contest.round()
    rows = []
    for dtype, row in best.items():
        ms = row[column]
        peers = {name: c.best * 1e3 for name, c in contests.items()
                 if dtype == "bf16" or name == "torch f32"}
        settings = {name: {"threads": c.setting[0], "onednn": c.setting[1], "packed": c.setting[2]}
                    for name, c in contests.items() if name in peers}
        rows.append(annotate(
            {"op": row["op"], "case": row["case"], "dtype": row["dtype"], "shape": row["shape"],
             "ours_us": ms * 1e3, "flops": row["flops"], "bytes": row["bytes"],
             "frames_per_s": row["frames"] / ms * 1e3,
             "peers": {name: v * 1e3 for name, v in peers.items()}, "peer_settings": settings},
            peaks, ms * 1e3))
        print(f"{row['case']:<22} {ms:>8.1f} ms/step {rows[-1]['gflops']:>6.0f} GFLOP/s "
              f"{rows[-1]['share_of_gemm_peak']:.0%} of gemm  " +
              "  ".join(f"{name} {v:.1f} ms ratio {v / ms:.2f} {settings[name]}"
                        for name, v in peers.items()), flush=True)
    for name in contests:
        ratios = [r["peers"][name] / r["ours_us"] for r in rows if name in r["peers"]]
        print(f"geometric mean over types, {name}: {geometric_mean(ratios):.2f}")
    print(write_json("training-step-peers", rows, threads=options.threads, clock=options.clock, peaks=peaks,
                     peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
