#!/usr/bin/env python3
"""Times PyTorch's training step on tasks of training_task.py; one JSON object per line, task and setting.

Usage: torch_step.py [--device cuda|cpu] [--seconds S] [--task NAME] [--settings eager_bf16,...]

A step is forward, CTC loss, backward, clipping and AdamW. Eager with autocast to bf16 and to fp16, and
torch.compile over the better known of them, bf16. Exit status 77 without PyTorch or without the device.
"""

import argparse
import dataclasses
import json
import statistics
import sys

import torch_timing
import training_task

SETTINGS = ["eager_bf16", "eager_fp16", "compiled_bf16", "eager_f32"]


def make_step(torch, device, task, setting):
    """A function that does one training step."""
    mode, dtype_name = setting.split("_")
    torch.manual_seed(1)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(task.subsample * task.features, task.hidden, task.layers,
                                      bidirectional=task.bidirectional)
            self.linear = torch.nn.Linear((2 if task.bidirectional else 1) * task.hidden, task.classes)

        def forward(self, x):
            frames, sequences, features = x.shape
            stacked = x.view(frames // task.subsample, task.subsample, sequences, features).transpose(1, 2)
            stacked = stacked.reshape(-1, sequences, task.subsample * features)
            return self.linear(self.lstm(stacked)[0])

    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    forward = torch.compile(model) if mode == "compiled" else model
    x = torch.rand(task.frames, task.sequences, task.features, device=device) * 2 - 1
    targets = training_task.labels(task)
    flat = torch.tensor([v for t in targets for v in t], dtype=torch.int32).to(device)
    target_lengths = torch.tensor([len(t) for t in targets], dtype=torch.int32)
    input_lengths = torch.full((task.sequences,), task.frames // task.subsample, dtype=torch.int32)
    scaler = torch.amp.GradScaler(device, enabled=dtype_name == "fp16")
    low = {"bf16": torch.bfloat16, "fp16": torch.float16, "f32": torch.bfloat16}[dtype_name]

    def step():
        with torch.autocast(device, dtype=low, enabled=dtype_name != "f32"):
            logits = forward(x)
        log_probabilities = logits.float().log_softmax(-1)
        loss = torch.nn.functional.ctc_loss(log_probabilities, flat,
                                            input_lengths, target_lengths, reduction="sum")
        scaler.scale(loss / task.sequences).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--seconds", type=float, default=5, help="per setting, after its warm-up")
    parser.add_argument("--task", default="bilstm", choices=list(training_task.TASKS))
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--tiny", action="store_true", help="a small model, to try this script")
    args = parser.parse_args()
    torch = torch_timing.find_torch(args.device)
    task = training_task.TASKS[args.task]
    if args.tiny:
        task = dataclasses.replace(task, hidden=8, layers=1, frames=600, sequences=2, classes=20)
    for setting in args.settings.split(","):
        row = {"task": args.task, "setting": setting, "torch": torch.__version__}
        try:
            step = make_step(torch, args.device, task, setting)
            times = torch_timing.time_each(torch, args.device, step, args.seconds)
            row |= {"median_ms": 1e3 * statistics.median(times), "min_ms": 1e3 * min(times),
                    "steps": len(times)}
        except Exception as error:  # a setting this PyTorch cannot do; the others still count
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
