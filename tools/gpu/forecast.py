"""How long the sections of gpu_check would take on a GPU, as far as that can be known without one.

What the host does is measured: checkop linked with a stand-in for CUDA's runtime (tests/cuda) runs cases of a section,
references, inputs, comparisons and launches, and its processor time counts (user's alone: the stand-in guards device
memory with the system's help). Not all cases: some of the small ones stand for all of these by their number, some of
the large ones by the bytes that the host fills and compares, which checkop tells of every case without running it. So
a forecast takes seconds of a core, however long a section is. What a GPU adds is assumed, and said to be.
"""

import resource
import time

import sections

RUN = 0.003        # assumed: seconds of a case's run, most of them for allocations, copies and waits
TIMED = 2 * 0.02   # of a case that is timed: runs that are waited for, and runs in a row
PROCESS = 3        # assumed: a process that opens a GPU and loads its kernels
# Assumed, for what trains or is another's program: seconds.
ASSUMED = {"vocabulary": 8, "trial": 30, "families": 7 * len(sections.family_steps()), "digits": 75, "training_step": 120,
           "torch_ctc": 20, "peers": 20, "sanitizer": 110, "profile": 35, "nccl": 15}
PATIENCE = 900  # seconds for the measurement of a section
SMALL = 1 << 20  # bytes of a case whose time is not that of its bytes
FEW = 150        # about so many of these are run
MOST_BYTES = 1 << 30  # of the large cases that are run, all variants together


def checkop(check, *options):
    """(processor seconds, standard output) of a run of checkop."""
    check.end = time.monotonic() + PATIENCE
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    status, out, err = check.run(check.checkop, *options, "--backend", "cuda", "--no-peers")
    if status not in (0, 1):
        raise RuntimeError(f"checkop's stand-in: exit status {status}: {err.strip()[-300:]}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, out


def listed(check, *options):
    """{case: (variants, bytes of all these)} of what would run."""
    cases = {}
    for row in sections.json_lines(checkop(check, *options, "--list", "--json")[1]):
        if "--bench" in options and not row["timed"]:
            continue
        name = f"{row['op']}/{row['case']}"
        variants, weight = cases.get(name, (0, 0))
        cases[name] = (variants + 1, weight + row["host_bytes"])
    return cases


def sums(cases):
    """Variants and bytes of all."""
    return sum(v for v, _ in cases.values()), sum(b for _, b in cases.values())


def sample(cases, small):
    """Names of those that stand for all."""
    names = list(cases)
    every = max(1, len(names) // FEW)
    if not small:
        names.sort(key=lambda name: cases[name][1])
        every = max(1, round(sums(cases)[1] / MOST_BYTES))
    return names[min(every // 2, len(names) - 1)::every]


def host(check, patterns, more=()):
    """(processor seconds, variants that would run) of one pass of checkop over a section, without a GPU."""
    cases = listed(check, *patterns, *more)
    seconds = count = 0
    for small in (True, False):
        group = {name: c for name, c in cases.items() if (c[1] < SMALL * c[0]) == small}
        if not group:
            continue
        chosen = sample(group, small)
        used, out = checkop(check, *chosen, *more, "--json")
        idle = checkop(check, *chosen, *more, "--list")[0]
        # A name may be the beginning of others', which have run as well.
        variants, weight = sums(group)
        variants_run, weight_run = sums(listed(check, *chosen, *more))
        share = variants / variants_run if small else weight / weight_run
        seconds += max(0.0, used - idle) * share
        count += sum(row.get("status") != "skipped" for row in sections.json_lines(out)) * variants / variants_run
    return seconds, count


def section_seconds(check, name):
    """(seconds, of them measured on this host) that a section would take."""
    if name in ASSUMED:
        return ASSUMED[name], 0
    if name.endswith("_twice"):
        seconds, cases = host(check, [], ["--op", ",".join(check.ops_of(name))])
        return 2 * (seconds + 2 * cases * RUN + PROCESS), 2 * seconds
    lstm = ["--op", ",".join(sections.LSTM_OPS)]
    if name == "full_size":
        ops = ",".join(sections.LSTM_OPS + sections.STACK_OPS)
        seconds, cases = host(check, sections.FULL_SIZE, ["--op", ops, "--against", sections.TRUSTED])
        return seconds + 2 * cases * RUN + PROCESS, seconds
    timed = ["--bench", "--seconds", "0"]
    passes = {"steps": [(["steps_h"], [*lstm, *timed])],
              "bench": [(sections.BESIDE_PEERS, timed), (check.alone(), timed)]}[name]
    total = measured = 0
    for patterns, more in passes:
        seconds, cases = host(check, patterns, more)
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
          f"{PROCESS} s a process, and what trains or is another's program; measured: the host, by samples of cases"
