#!/usr/bin/env python3
"""An output layer with its CTC loss, forward and backward, beside PyTorch: linear, log_softmax, CTCLoss.

The sizes and the labels' number are those of bench/fused_output_bench. Ours and PyTorch take turns; the
medians of --rounds count, with one thread of processor time.
"""

import argparse
import statistics
import time

from common import import_or_skip, run_bench_program, usable_cpus, write_json

HIDDEN, CLASSES, FRAMES = 512, 18548, 80


class Peer:
    def __init__(self, torch, sequences, dtype):
        torch.manual_seed(1)
        rows = FRAMES * sequences
        labels = FRAMES * 3 // 10
        self.torch = torch
        self.x = (torch.rand(rows, HIDDEN) * 2 - 1).to(dtype).requires_grad_()
        self.w = ((torch.rand(CLASSES, HIDDEN) * 2 - 1) * 0.1).to(dtype).requires_grad_()
        self.bias = torch.zeros(CLASSES, dtype=dtype, requires_grad=True)
        self.labels = torch.randint(1, CLASSES, (sequences, labels))
        self.lengths = torch.full((sequences,), FRAMES)
        self.label_lengths = torch.full((sequences,), labels)

    def run(self):
        torch = self.torch
        for v in (self.x, self.w, self.bias):
            v.grad = None
        logits = torch.nn.functional.linear(self.x, self.w, self.bias)
        log_p = logits.view(FRAMES, -1, CLASSES).float().log_softmax(-1)
        loss = torch.nn.functional.ctc_loss(log_p, self.labels, self.lengths, self.label_lengths,
                                            reduction="sum")
        loss.backward()
        assert torch.isfinite(loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=min(2, usable_cpus()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=128)
    options = parser.parse_args()
    torch = import_or_skip("torch")
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    rows = []
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        peer = Peer(torch, options.sequences, dtype)
        peer.run()
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours += run_bench_program("fused_output_bench", "--threads", options.threads, "--rounds", 1,
                                      "--sequences", options.sequences, name)
            begin = clock()
            peer.run()
            theirs.append(1e3 * (clock() - begin))
        row = dict(ours[0])
        for column in ("products_ms", "plain_ms", "fused_ms"):
            row[column] = statistics.median(r[column] for r in ours)
        row["torch_ms"] = statistics.median(theirs)
        rows.append(row)
        print(f"{row['case']}: fused {row['fused_ms']:.0f} ms, {row['fused_ms'] / row['products_ms']:.2f} of the "
              f"three products, {row['fused_ms'] / row['plain_ms']:.2f} of the plain way; PyTorch "
              f"{row['torch_ms']:.0f} ms, {row['torch_ms'] / row['fused_ms']:.2f} times ours; beside "
              f"{row['common_mb']:.0f} MB, {row['fused_mb']:.1f} MB, in the plain way {row['plain_mb']:.0f} MB")
    print(write_json("fused-output-peers", rows, threads=options.threads,
                     peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
