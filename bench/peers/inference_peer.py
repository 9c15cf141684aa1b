#!/usr/bin/env python3
"""Recognition at the shapes that people use beside PyTorch and ONNX Runtime: features to logits.

The model and the batches are bench/inference_bench's: 80 features, layers of LSTM cells, a linear
layer to 32 classes; all utterances of a batch of one length. A shape is h<cells>_l<layers>_d<directions>
_b<utterances>_t<frames>; those of one direction and 20 frames are a stream's chunks of 0.2 s. PyTorch runs in
inference mode, f32 or all of it in bf16, with its best of 1 and N threads, oneDNN on and off. ONNX Runtime
(f32 and int8, where it can be imported) runs the same network as PyTorch exports it; of int8 both run their
dynamic quantisation of it. Ours and the peers take turns,
--rounds times; of each the fastest run counts. --clock thread compares processor time on one thread.
"""

import argparse
import contextlib
import io
import itertools
import pathlib
import re
import sys
import tempfile
import time
import warnings

from common import (annotate, fastest, geometric_mean, import_or_skip, measure_peaks, run_bench_program,
                    usable_cpus, write_json)

FEATURES, CLASSES = 80, 32
CASE = re.compile(r"h(\d+)_l(\d+)_d(\d)_b(\d+)_t(\d+)_(f32|bf16|int8)$")
SHAPES = [f"h{h}_l{l}_d2_b{b}_t100" for h, l in ((256, 2), (512, 3), (1024, 2)) for b in (1, 8, 32)]
SHAPES += [f"h{h}_l3_d1_b1_t20" for h in (256, 512, 1024)]


def network(torch, case):
    hidden, layers, directions = (int(v) for v in CASE.match(case).groups()[:3])

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(FEATURES, hidden, layers, bidirectional=directions == 2)
            self.linear = torch.nn.Linear(directions * hidden, CLASSES)

        def forward(self, x):
            return self.linear(self.lstm(x)[0])

    return Network().eval()


def batch_of(torch, case):
    batch, frames = (int(v) for v in CASE.match(case).groups()[3:5])
    return torch.rand(frames, batch, FEATURES) * 2 - 1


class Torch:
    """PyTorch on one shape; run() is one call, the best of the settings that were tried."""

    def __init__(self, torch, case, options):
        dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
        self.torch, self.options = torch, options
        self.model, self.x = network(torch, case).to(dtype), batch_of(torch, case).to(dtype)
        if case.endswith("int8"):
            self.model = torch.ao.quantization.quantize_dynamic(self.model, {torch.nn.LSTM, torch.nn.Linear})
        settings = list(itertools.product(sorted({1, options.threads}), (True, False)))
        times = {s: self.time(s, options.seconds / 4) for s in settings}
        self.settings = [s for s in settings if times[s] <= 4 / 3 * min(times.values())]

    def time(self, setting, seconds):
        self.torch.set_num_threads(setting[0])
        with self.torch.inference_mode(), self.torch.backends.mkldnn.flags(enabled=setting[1]):
            return fastest(lambda: self.model(self.x).float(), self.options.now, seconds)

    def run(self):
        return min(self.time(s, self.options.seconds / len(self.settings)) for s in self.settings)


def quantized(model):
    """The bytes of an ONNX model with dynamic quantisation of its LSTMs and products."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "f32.onnx").write_bytes(model)
        quantize_dynamic(f"{folder}/f32.onnx", f"{folder}/int8.onnx", weight_type=QuantType.QInt8,
                         extra_options={"MatMulConstBOnly": True})
        return (pathlib.Path(folder) / "int8.onnx").read_bytes()


class OnnxRuntime:
    def __init__(self, torch, onnxruntime, case, options):
        self.options = options
        x, file = batch_of(torch, case), io.BytesIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")  # of the exporter, about batches of other sizes
            torch.onnx.export(network(torch, case), (x,), file, input_names=["x"], dynamo=False)
        self.x, self.sessions, model = {"x": x.numpy()}, [], file.getvalue()
        if case.endswith("int8"):
            model = quantized(model)
        for threads in sorted({1, options.threads}):
            settings = onnxruntime.SessionOptions()
            settings.intra_op_num_threads = threads
            self.sessions.append(onnxruntime.InferenceSession(model, settings,
                                                              providers=["CPUExecutionProvider"]))

    def run(self):
        return min(fastest(lambda: s.run(None, self.x), self.options.now,
                           self.options.seconds / len(self.sessions)) for s in self.sessions)


def time_case(torch, onnxruntime, case, options):
    column = "min_thread_us" if options.clock == "thread" else "min_us"
    peers = {"torch": Torch(torch, case, options)}
    if onnxruntime and not case.endswith("bf16"):
        peers["onnxruntime"] = OnnxRuntime(torch, onnxruntime, case, options)
    best, ours = {name: float("inf") for name in peers}, None
    for _ in range(options.rounds):
        row = run_bench_program("inference_bench", "--threads", options.threads, "--seconds",
                                options.seconds, case)[0]
        if ours is None or row[column] < ours[column]:
            ours = row
        for name, peer in peers.items():
            best[name] = min(best[name], peer.run() * 1e6)
    return {"op": "inference", "case": case, "dtype": ours["dtype"], "shape": ours["shape"],
            "ours_us": ours[column], "flops": ours["flops"], "bytes": ours["bytes"], "peers": best}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=min(2, usable_cpus()))
    parser.add_argument("--clock", choices=["wall", "thread"], default="wall")
    parser.add_argument("--match", default="", help="only cases that contain this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.4, help="per measurement")
    options = parser.parse_args()
    if options.clock == "thread":
        options.threads = 1
    options.now = time.thread_time if options.clock == "thread" else time.perf_counter
    torch = import_or_skip("torch")
    try:
        import onnxruntime
    except ImportError:
        onnxruntime = None
    cases = [f"{s}_{t}" for t in ("f32", "bf16", "int8") for s in SHAPES if options.match in f"{s}_{t}"]
    if not cases:
        sys.exit(f"no case contains '{options.match}'")
    peaks = measure_peaks(options.threads, 0.5, options.clock)
    rows = []
    for case in cases:
        row = time_case(torch, onnxruntime, case, options)
        rows.append(annotate(row, peaks, row["ours_us"]))
        share = row["share_of_gemm_peak"]  # of 8 bits no peak is measured
        print(f"{case:<26} {row['ours_us']:>9.0f} us {row['gflops']:>6.0f} GFLOP/s " +
              (f"{share:>5.0%} of gemm  " if share else "  ") +
              "  ".join(f"{name} {us:.0f} us ratio {us / row['ours_us']:.2f}"
                        for name, us in row["peers"].items()), flush=True)
    for dtype, name in itertools.product(("f32", "bf16", "int8"), ("torch", "onnxruntime")):
        ratios = [r["peers"][name] / r["ours_us"] for r in rows
                  if r["dtype"] == dtype and name in r["peers"]]
        if ratios:
            print(f"geometric mean, {name} {dtype}: {geometric_mean(ratios):.2f}  ({len(ratios)} shapes)")
    versions = {"torch": torch.__version__}
    if onnxruntime:
        versions["onnxruntime"] = onnxruntime.__version__
    print(write_json("inference-peers" + ("-thread" if options.clock == "thread" else ""), rows,
                     threads=options.threads, clock=options.clock, peaks=peaks, peer_versions=versions))


if __name__ == "__main__":
    main()
