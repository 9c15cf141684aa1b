#!/usr/bin/env python3
"""Matrix products beside PyTorch (oneDNN or MKL inside) on the shapes of `checkop gemm --bench`.

PyTorch writes bf16 results for bf16 inputs where our rows write f32: it moves fewer bytes.
"""

import argparse
import re

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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=common.usable_cpus())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    ours = common.group_best(common.run_checkop("gemm", args.threads, args.seconds, backend="cpu"))
    for (op, case), best in ours.items():
        if re.match("f64", case):
            continue
        us = common.median_seconds(product(case), args.seconds) * 1e6
        rows.append({"op": op, "case": case, "variant": best["variant"],
                     "ours_us": best["median_us"], "peers": {"torch": us}})
    common.print_ratios("gemm", rows)
    print(common.write_json("gemm-peers", rows, threads=args.threads,
                            peer_versions={"torch": torch.__version__}))


if __name__ == "__main__":
    main()
