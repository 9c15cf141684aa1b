#!/usr/bin/env python3
"""Matrix products beside PyTorch (oneDNN or MKL inside) on the shapes of `checkop gemm --bench`.

Rounds alternate between the two and the fastest run of each counts, because the machine may be
shared. PyTorch writes bf16 results for bf16 inputs where our rows write f32: it moves fewer bytes.
"""

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


def main():
    timing = common.Timing(__doc__)
    torch.set_num_threads(timing.threads)
    peaks = common.measure_peaks(timing.threads, timing.seconds, timing.clock)

    def ours():
        rows = common.run_checkop_best("gemm/", timing.threads, timing.seconds)
        return [row for row in rows if not row["case"].startswith("f64")]

    rows = timing.in_turns("torch", ours, lambda _, case: [product(case)])
    rows = [common.annotate(row, peaks, row["ours_us"]) for row in rows]
    for kind in ("f32", "bf16"):
        common.print_ratios(f"gemm {kind}", [r for r in rows if r["case"].startswith(kind)])
    print(common.write_json("gemm-peers", rows, threads=timing.threads, clock=timing.clock,
                            peaks=peaks, peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
