"""Figures from what programs said: rows of checkop's, ncu's table, training logs."""

import csv
import io
import re
import statistics

from watch import json_lines

METRICS = ["gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
           "dram__throughput.avg.pct_of_peak_sustained_elapsed", "launch__registers_per_thread",
           "sm__warps_active.avg.pct_of_peak_sustained_active"]


def is_peer(variant):
    return re.match(r"cudnn|cublas", variant)


def peer_ratios(rows):
    """[{op, case, ours, ours_us, peer, peer_us, ratio}]: ours, the fastest, beside each peer's fastest.

    A peer's variants are named after its library: cudnn_..., cublaslt_... Times are those of runs in a
    row where there are such: of the device, not of the host that waits for it.
    """
    def time_of(row):
        return row.get("stream_us", row["median_us"])
    best = {}
    for row in rows:
        if "median_us" not in row:
            continue
        library = is_peer(row["variant"])
        key = (row["op"], row["case"], library.group() if library else "")
        if key not in best or time_of(row) < time_of(best[key]):
            best[key] = row
    return [{"op": op, "case": case, "ours": ours["variant"], "ours_us": time_of(ours),
             "peer": row["variant"], "peer_us": time_of(row),
             "ratio": round(time_of(row) / time_of(ours), 3)}
            for (op, case, library), row in best.items()
            if library and (ours := best.get((op, case, "")))]


def per_step_times(rows):
    """{case: {op: {variant: microseconds}}}: the time of a run over its steps, launches and all."""
    found = {}
    for row in rows:
        if (steps := re.search(r"_t(\d+)_", row["case"])) and "median_us" in row:
            time_of = row.get("stream_us", row["median_us"]) / int(steps.group(1))
            found.setdefault(row["case"], {}).setdefault(row["op"], {})[row["variant"]] = round(time_of, 4)
    return found


def profile_rows(text):
    """[{kernel, launches, metric: mean}] from ncu's --csv --page raw."""
    start = text.find('"ID"')
    if start < 0:
        return []
    rows = list(csv.DictReader(io.StringIO(text[start:])))[1:]  # the first holds units
    kernels = {}
    for row in rows:
        kernels.setdefault(row["Kernel Name"], []).append(row)
    def mean(group, metric):
        values = [float(r[metric].replace(",", "")) for r in group if r.get(metric)]
        return round(statistics.fmean(values), 3) if values else None
    return [{"kernel": name, "launches": len(group)} | {m: mean(group, m) for m in METRICS}
            for name, group in kernels.items()]


def step_times(log, task):
    """(milliseconds per step, without the first steps, the last loss) from a training log."""
    steps = [e for e in json_lines(log) if e.get("event") == "step"]
    frames = task.sequences * task.frames
    times = [1e3 * frames / e["frames_per_second"] for e in steps[5:] if e.get("frames_per_second")]
    return times, steps[-1].get("loss") if steps else None
