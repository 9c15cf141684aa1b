"""How long the sections of gpu_check would take on a GPU, as far as that can be known without one.

What the host does is measured: checkop linked with a stand-in for CUDA's runtime (tests/cuda) runs a section's cases,
references, inputs, comparisons and launches, and its processor time counts (user's alone: the stand-in guards device
memory with the system's help). What a GPU adds is assumed, and said to be.
"""

import resource
import time

import sections

RUN = 0.003        # assumed: seconds of a case's run, most of them for allocations, copies and waits
TIMED = 2 * 0.02   # of a case that is timed: runs that are waited for, and runs in a row
PROCESS = 3        # assumed: a process that opens a GPU and loads its kernels
# Assumed, for what trains or is another's program: seconds.
ASSUMED = {"vocabulary": 8, "families": 70, "digits": 75, "training_step": 120, "torch_ctc": 20, "peers": 20,
           "sanitizer": 80, "profile": 35, "nccl": 15}
PATIENCE = 900  # seconds for the measurement of a section


def host(check, *options):
    """(processor seconds, cases) of one pass of checkop over a section, without a GPU."""
    check.end = time.monotonic() + PATIENCE
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    status, out, err = check.run(check.checkop, *options, "--backend", "cuda", "--no-peers", "--json")
    if status not in (0, 1):
        raise RuntimeError(f"checkop's stand-in: exit status {status}: {err.strip()[-300:]}")
    rows = [row for row in sections.json_lines(out) if row.get("status") != "skipped"]
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, len(rows)


def section_seconds(check, name):
    """(seconds, of them measured on this host) that a section would take."""
    if name in ASSUMED:
        return ASSUMED[name], 0
    ops = ["--op", ",".join(check.ops_of(name))] if name.endswith("_twice") else []
    if name == "full_size":
        ops = [*sections.FULL_SIZE, "--op", ",".join(sections.LSTM_OPS), "--against", sections.TRUSTED]
    timed = {"steps": [["steps_h", "--op", ",".join(sections.LSTM_OPS)]],
             "bench": [sections.BESIDE_PEERS, sections.ALONE]}.get(name)
    if timed is None:
        seconds, cases = host(check, *ops)
        passes = 2 if name.endswith("_twice") else 1
        return passes * (seconds + 2 * cases * RUN + PROCESS), passes * seconds
    total = measured = 0
    for options in timed:
        seconds, cases = host(check, *options, "--bench", "--seconds", "0")
        total += seconds + cases * (TIMED + RUN) + PROCESS
        measured += seconds
    return total, measured


def lines(check, command, minutes):
    """What is printed: a line for each section of a command, and what would fall off its end."""
    budgets = sections.COMMANDS[command]
    share = minutes * 60 / sum(budgets.values())
    clock = end = 0
    late = []
    yield "section            would take   of which host   has until    ends at  (s)"
    for name, budget in budgets.items():
        seconds, measured = section_seconds(check, name)
        end += budget * share
        if clock + seconds > end:
            late.append(f"{name} by {clock + seconds - end:.0f} s")
        clock = min(clock + seconds, end)
        yield f"{name:18} {seconds:10.0f} {measured:15.1f} {end:11.0f} {clock:10.0f}"
    yield f"{command}: {clock:.0f} s; cut short: {', '.join(late) or 'nothing'}. Assumed: {RUN:g} s a run, " \
          f"{PROCESS} s a process, and what trains or is another's program; measured: the host"
