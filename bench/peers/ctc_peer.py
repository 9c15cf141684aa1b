#!/usr/bin/env python3
"""CTC loss and gradient with respect to the logits beside PyTorch, on the shapes of
`checkop ctc --bench` in f32 (PyTorch's CPU kernel takes no bf16).

PyTorch: log_softmax, torch.nn.functional.ctc_loss, and the backward pass of both, on the padded
(T, N, V) tensor it wants; labels padded or concatenated, int32 or int64: the fastest counts. Ours
takes logits and returns both. Rounds alternate between the two, and each side's best round (a
median) counts, so that a busy moment of the machine harms neither.
"""

import argparse
import re

import common

torch = common.import_or_skip("torch")


def settings(case):
    """{name: function} of one forward and backward pass by PyTorch."""
    frames, sequences, classes, length = map(
        int, re.search(r"T(\d+)N(\d+)V(\d+)L(\d+)", case).groups())
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


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=common.usable_cpus())
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = {}
    for _ in range(args.rounds):
        ours = common.group_best(
            common.run_checkop("ctc/bench/f32", args.threads, args.seconds, backend="cpu"))
        for (op, case), best in ours.items():
            theirs = {name: common.median_seconds(f, args.seconds, least=2) * 1e6
                      for name, f in settings(case).items()}
            name = min(theirs, key=theirs.get)
            row = rows.setdefault(case, {"op": op, "case": case, "ours_us": best["median_us"],
                                         "variant": best["variant"], "peers": {"torch": theirs[name]},
                                         "peer_setting": name})
            if best["median_us"] < row["ours_us"]:
                row.update(ours_us=best["median_us"], variant=best["variant"])
            if theirs[name] < row["peers"]["torch"]:
                row.update(peers={"torch": theirs[name]}, peer_setting=name)
    rows = list(rows.values())
    common.print_ratios("ctc", rows)
    print(common.write_json("ctc-peers", rows, threads=args.threads, rounds=args.rounds,
                            peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
