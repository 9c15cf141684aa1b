#!/usr/bin/env python3
"""Matrix products beside PyTorch (oneDNN or MKL inside) on the shapes of `checkop gemm --bench`.

Rounds alternate between the two and the fastest run of each counts, because the machine may be
shared. PyTorch writes bf16 results for bf16 inputs where our rows write f32: it moves fewer bytes.
"""

import argparse
import time

import common

torch = common.import_or_skip("torch")


def product(case):
    types, trans, sizes = case.split("/")[:3]
    dtype = torch.bfloat16 if types.startswith("bf16") else torch.float32
    m, n, k = map(int, sizes.split("x"))
    shape_a, shape_b = ((k, m) if trans[0] == "t" else (m, k)), ((n, k) if trans[1] == "t" else (k, n))
    a, b = (torch.empty(s).uniform_(-1, 1).to(dtype) for s in (shape_a, shape_b))
    a, b = (a.t() if trans[0] == "t" else a), (b.t() if trans[1] == "t" else b)
    c = torch.empty(m, n, dtype=dtype)
    return lambda: torch.mm(a, b, out=c)


def fastest(function, clock, seconds):
    """The fastest run within about `seconds`, after a warm-up; at least three."""
    function()
    best, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while time.perf_counter() < end or runs < 3:
        start = clock()
        function()
        best = min(best, clock() - start)
        runs += 1
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="per measurement")
    parser.add_argument("--threads", type=int, default=common.usable_cpus())
    parser.add_argument("--clock", choices=["wall", "thread"], default="wall",
                        help="thread: processor time of one thread, for busy machines")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    if args.clock == "thread":
        args.threads = 1
    clock = time.thread_time if args.clock == "thread" else time.perf_counter
    column = "min_thread_us" if args.clock == "thread" else "min_us"
    torch.set_num_threads(args.threads)
    peaks = common.measure_peaks(args.threads, args.seconds, args.clock)
    rows = {}
    for _ in range(args.rounds):
        for row in common.run_checkop_best("gemm/", args.threads, args.seconds):
            case = row["case"]
            if case.startswith("f64"):
                continue
            best = rows.setdefault(case, {"op": "gemm", "case": case, "ours_us": float("inf"),
                                          "flops": row["flops"], "bytes": row["bytes"],
                                          "peers": {"torch": float("inf")}})
            if row[column] < best["ours_us"]:
                best["ours_us"], best["variant"] = row[column], row["variant"]
        for case, best in rows.items():
            theirs = fastest(product(case), clock, args.seconds) * 1e6
            best["peers"]["torch"] = min(best["peers"]["torch"], theirs)
    rows = [common.annotate(row, peaks, row["ours_us"]) for row in rows.values()]
    for kind in ("f32", "bf16"):
        common.print_ratios(f"gemm {kind}", [r for r in rows if r["case"].startswith(kind)])
    print(common.write_json("gemm-peers", rows, threads=args.threads, clock=args.clock, peaks=peaks,
                            peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
