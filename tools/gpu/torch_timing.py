"""What torch_ctc.py and torch_step.py share: they need PyTorch and the device, and time on the host's clock."""

import sys
import time

SKIPPED = 77  # exit status without PyTorch or without the device
WARM_UP = 3   # runs that are not timed; and the fewest that are


def find_torch(device):
    """PyTorch's module; ends the program, saying why, where that or the device is missing."""
    try:
        import torch
    except ImportError as error:
        why = error
    else:
        if device != "cuda" or torch.cuda.is_available():
            return torch
        why = "PyTorch sees no GPU"
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


def time_each(torch, device, run, seconds):
    """Seconds of each run with the host's wait for the device, after a warm-up."""
    wait = waiter(torch, device)
    for _ in range(WARM_UP):
        run()
    wait()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < WARM_UP:
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return times


def time_in_a_row(torch, device, run, count):
    """Seconds of one of so many runs that the host waits for once."""
    wait = waiter(torch, device)
    start = time.perf_counter()
    for _ in range(count):
        run()
    wait()
    return (time.perf_counter() - start) / count


def waiter(torch, device):
    return torch.cuda.synchronize if device == "cuda" else lambda: None
