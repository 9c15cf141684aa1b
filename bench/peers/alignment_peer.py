#!/usr/bin/env python3
"""Forced alignment beside torchaudio's forced_align (PyTorch and torchaudio), on one thread.

`alignment_bench` makes the outputs of a CTC model, aligns them and hands them over; the two must find the same class in
every frame, else this fails. The fastest of --rounds runs counts (thread: processor time, wall: wall time). peak_bytes is
what the process had at most, peer_bytes what it grew by during the peer's call. torchaudio keeps a byte per frame and state,
66 GB for four hours of speech, so those are aligned by ours alone.
"""

import pathlib
import resource
import tempfile
import time

import common

np = common.import_or_skip("numpy")
torch = common.import_or_skip("torch")
if torch is not None:
    torch.version.cuda = None  # torchaudio refuses to be loaded beside a PyTorch for another CUDA than its own
torchaudio = common.import_or_skip("torchaudio")

SHAPES = [(3000, 300, 32), (20000, 2000, 32), (60000, 5000, 32), (20000, 2000, 200)]
HOURS = (825011, 40000, 32)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    timing = common.Timing(__doc__)
    clock, column = (time.process_time, "thread_s") if timing.clock == "thread" else (time.perf_counter, "wall_s")
    torch.set_num_threads(1)
    rows = []
    for frames, labels, classes in [*SHAPES, HOURS]:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            words = ("--frames", frames, "--labels", labels, "--classes", classes)
            words += ("--save", folder) if frames != HOURS[0] else ()
            runs = [common.run_bench_program("alignment_bench", *words)[0] for _ in range(timing.rounds)]
            best = min(runs, key=lambda row: row[column])
            row = {"op": "align", "case": f"T{frames} L{labels} V{classes}", "ours_us": best[column] * 1e6,
                   "states": best["states"], "dense_states": best["dense_states"],
                   "scores_bytes": best["scores_bytes"], "peak_bytes": best["peak_bytes"], "peers": {}}
            rows.append(row)
            if frames == HOURS[0]:
                continue
            scores = torch.from_numpy(np.load(folder / "scores.npy")).log_softmax(-1)[None]
            wanted = torch.from_numpy(np.load(folder / "labels.npy").astype(np.int32))[None]
            path = np.load(folder / "path.npy").astype(np.int32)
            seconds, before = [], peak()
            for _ in range(timing.rounds):
                start = clock()
                found, _ = torchaudio.functional.forced_align(scores, wanted, blank=0)
                seconds.append(clock() - start)
            different = int((found[0].numpy() != path).sum())
            if different:
                raise SystemExit(f"{row['case']}: {different} frames differ from torchaudio's")
            row["peers"]["torchaudio"] = min(seconds) * 1e6
            row["peer_bytes"] = peak() - before
    common.print_ratios(f"alignment, {timing.clock} time", rows)
    for row in rows:
        print(f"{row['case']}: ours {row['peak_bytes'] / 1e6:.0f} MB in all, scores are "
              f"{row['scores_bytes'] / 1e6:.0f} of them; the peer grew by {row.get('peer_bytes', 0) / 1e6:.0f} MB")
    print(common.write_json("alignment-peers", rows, clock=timing.clock,
                            peer_versions={"torch": torch.__version__, "torchaudio": torchaudio.__version__}))


if __name__ == "__main__":
    main()
