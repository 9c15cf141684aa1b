"""Ranks that are killed at random while the others go on: every run ends with the bits of an undisturbed one.
RONDO_KILLS says how many processes are killed (20), RONDO_SEED when and which, RONDO_RANKS of how many (3)."""

import collections

from ranks_support import *

KILLS, SEED, RANKS = (int(os.environ.get(name, otherwise)) for name, otherwise in
                      (("RONDO_KILLS", "20"), ("RONDO_SEED", "1"), ("RONDO_RANKS", "3")))
# Validations, checkpoints by step, a moving average, an average of the best and a test at the end.
RUN = ["training.epochs=60", "training.ema=0.99", "optimizer.type=adamw", "training.average_best=3",
       "training.log_every_steps=1"]
OPTIONS = ["--elastic", "--max-restarts", 100000, "--grace", 5]
STALLED = 60  # seconds without a step, a validation or an end


def elastic(*more, ranks=RANKS, options=OPTIONS):
    return launch(ranks, *RUN, *more, options=options)


class Killer:
    """Kills ranks of one launcher after another, in ways that it draws."""

    def __init__(self, root, rng):
        self.root, self.rng, self.kills = root, rng, collections.Counter()
        self.total = 0

    def ways(self):
        return (("any", 8, self.kill_any), ("rank 0", 4, self.kill_first), ("two at once", 3, self.kill_two),
                ("one that joins", 4, self.kill_newcomer), ("while a checkpoint is written", 4, self.kill_in_checkpoint),
                ("in a validation", 4, self.kill_after_validation), ("all", 1, self.kill_all))

    def wait_until_all_are_there(self, process):
        """Until the newest world that rank 0 logged is of all ranks."""
        log, patience = self.root / "run" / "log.jsonl", Patience(2)
        while not patience.is_over() and process.poll() is None:
            worlds = re.findall(r'"ranks":(\d+)', log.read_text(errors="replace")) if log.exists() else []
            if worlds and int(worlds[-1]) == RANKS:
                return
            time.sleep(0.005)

    def kill_one(self, process):
        if self.rng.random() < 0.75:  # else they may be about to come together
            self.wait_until_all_are_there(process)
        ways = self.ways()
        name, _, way = self.rng.choices(ways, [weight for _, weight, _ in ways])[0]
        killed = way(process)
        self.kills[name] += killed
        self.total += killed

    def kill(self, pids):
        killed = 0
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    def some(self, process, count):
        pids = list(ranks_of(process).values())
        return self.rng.sample(pids, min(count, len(pids)))

    def kill_any(self, process):
        time.sleep(self.rng.uniform(0, 0.3))
        return self.kill(self.some(process, 1))

    def writer(self, process):
        """The process that is rank 0 now: it has the lock of the checkpoint directory."""
        lock = str(self.root / "run" / ".lock")
        for pid in ranks_of(process).values():
            with contextlib.suppress(OSError):
                if any(os.readlink(file) == lock for file in pathlib.Path(f"/proc/{pid}/fd").iterdir()):
                    return [pid]
        return []

    def kill_first(self, process):
        time.sleep(self.rng.uniform(0, 0.2))
        return self.kill(self.writer(process))

    def kill_two(self, process):
        time.sleep(self.rng.uniform(0, 0.2))
        return self.kill(self.some(process, 2))

    def kill_all(self, process):
        time.sleep(self.rng.uniform(0, 0.2))
        return self.kill(self.some(process, RANKS))

    def kill_newcomer(self, process):
        """The process started in place of another, some milliseconds after its start."""
        before = set(ranks_of(process).values())
        killed = self.kill(self.some(process, 1))
        patience = Patience(2)
        while not patience.is_over() and process.poll() is None:
            fresh = set(ranks_of(process).values()) - before
            if fresh:
                time.sleep(self.rng.uniform(0, 0.08))
                return killed + self.kill(fresh)
        return killed

    def when(self, process, happens):
        patience = Patience(1)
        while not patience.is_over() and process.poll() is None and not happens():
            time.sleep(0.0005)

    def kill_in_checkpoint(self, process):
        time.sleep(self.rng.uniform(0, 0.1))
        victims = self.rng.choice((self.writer, lambda p: self.some(p, 1)))(process)
        self.when(process, lambda: any((self.root / "run").glob(".writing-*")))
        return self.kill(victims)

    def kill_after_validation(self, process):
        """As the best model is written, or a moment before or after."""
        model = self.root / "run" / "model.safetensors"
        stamp = lambda: model.stat().st_mtime_ns if model.exists() else 0
        victims = self.rng.choice((self.writer, lambda p: self.some(p, 1)))(process)
        before = stamp()
        self.when(process, lambda: stamp() != before)
        time.sleep(self.rng.uniform(0, 0.004))
        return self.kill(victims)


class Watch:
    """Whether a run makes steps."""

    def __init__(self, root):
        self.log, self.size, self.patience = root / "run" / "log.jsonl", -1, Patience(STALLED)

    def look(self, process):
        size = self.log.stat().st_size if self.log.exists() else 0
        if size != self.size:
            self.size, self.patience = size, Patience(STALLED)
        if self.patience.is_over():
            process.send_signal(signal.SIGQUIT)
            raise AssertionError(f"hangs: nothing was logged for {STALLED} s")


def events(root):
    """All that any rank logged, without lines that a kill cut short."""
    found = []
    for log in (root / "run").glob("log*.jsonl"):
        for line in log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def check_log(root, from_disk):
    """Nothing but what the launcher said began from a checkpoint, and each step was made."""
    all_events = events(root)
    of = lambda event: [e for e in all_events if e["event"] == event]
    begun = len({(e["step"], e["event"]) for e in of("start") + of("resume")})
    check(begun <= 1 + from_disk, begun, "beginnings from disk, but the launcher tells of", from_disk)
    steps = {e["step"] for e in of("step")}
    missing = set(range(1, max(steps) + 1)) - steps
    check(len(missing) <= KILLS, "steps that nobody logged:", sorted(missing))


def test_ranks_are_killed_at_random():
    rng = random.Random(SEED)
    with corpus() as root:
        expected = single(root, *RUN)
        killer, runs, survived_in_all, from_disk_in_all, began = Killer(root, rng), 0, 0, 0, time.monotonic()
        while killer.total < KILLS:
            shutil.rmtree(root / "run", ignore_errors=True)
            log = open(root / "errors", "w+")
            process = start(*elastic(), cwd=root, stdout=subprocess.DEVNULL, stderr=log)
            watch = Watch(root)
            try:
                while process.poll() is None:
                    watch.look(process)
                    if killer.total < KILLS:
                        killer.kill_one(process)
                    else:
                        time.sleep(0.05)
            finally:
                if process.poll() is None:
                    process.kill()
            log.seek(0)
            said = log.read()
            check(process.returncode == 0, "exit", process.returncode, said[-3000:])
            from_disk = said.count("starting again from the last checkpoint, with")
            survived = len(re.findall(r"; \d+ ranks? goe?s? on", said))
            check_log(root, from_disk)
            check_same(expected, root / "run")
            runs, survived_in_all, from_disk_in_all = runs + 1, survived_in_all + survived, from_disk_in_all + from_disk
            print(f"run {runs}: {killer.total} kills so far; after {survived} losses the others went on, {from_disk} times "
                  f"nobody was left; the bits of an undisturbed run, {time.monotonic() - began:.0f} s", flush=True)
        print(f"{killer.total} kills in {runs} runs, all with the bits of an undisturbed run, none of them hung; after "
              f"{survived_in_all} losses the others went on, {from_disk_in_all} times nobody was left and all began from "
              f"a checkpoint; {dict(killer.kills)}")


main(globals())
