"""Ranks that are killed, stopped, slowed down, misled or out of disk, really: each run ends within its
deadline, with one line that names rank, operation and cause."""

import resource

from ranks_support import *

ENDLESS = "training.epochs=100000"  # no run is over before the fault has come


def test_a_rank_is_killed():
    with corpus() as root:
        process = start(*launch(3, ENDLESS, options=["--grace", 5]), cwd=root)
        wait_for_step(root, 10, process)
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        _, err = ends(process, 10, 128 + signal.SIGKILL)
        lost_rank(err, 1)


def test_killed_ranks_start_again():
    with corpus() as root:
        expected = single(root)
        for victim in (0, 1):
            process = signalled_midway(launch(2, options=["--max-restarts", 2]), root, 60,
                                       last_step(root / "whole" / "run"), victim, signal.SIGKILL)
            out, err = ends(process, 60, 0)
            one_line(err, f"rank {victim} was killed by SIGKILL",
                     "starting again from the last checkpoint (restart 1 of 2)")
            check("continuing after step" in out, out)
            check_same(expected, root / "run")
            shutil.rmtree(root / "run")


def test_a_rank_is_stopped():
    with corpus() as root:
        for victim in (1, 0):
            process = start(*launch(2, ENDLESS, "parallel.timeout_seconds=4", options=["--grace", 1]), cwd=root)
            wait_for_step(root, 10, process)
            os.kill(ranks_of(process)[victim], signal.SIGSTOP)
            _, err = ends(process, 12, 75)
            check(f"rank {victim} is stopped (SIGSTOP); " in err, err)
            late_rank(err, 1 - victim, victim)
            shutil.rmtree(root / "run")


def test_a_rank_cannot_go_on():
    with corpus() as root:
        add_bad_utterance(root)
        process = start(*launch(3), cwd=root)
        _, err = ends(process, 20, 1)
        one_line(err, "rank ", BAD_UTTERANCE)
        state = sorted((root / "run").glob("checkpoint-*"))[-1] / "state.json"
        check(json.loads(state.read_text())["step"] >= 5, "the updates before are lost")


def test_disk_full():
    with corpus() as root:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        process = start(*launch(2), cwd=root, preexec_fn=limit)
        _, err = ends(process, 20, 1)
        one_line(err, "rank 0: ", "File too large")


def test_ranks_with_other_settings():
    with corpus() as root:
        a, b = as_ranks(root, {0: ([], {}), 1: (["optimizer.lr=0.5"], {})}, free_port())
        for process in (a, b):  # each may be on a machine of its own
            one_line(ends(process, 20, 1)[1], "rank 1: its settings are not those of rank 0: optimizer.lr: 0.02 -> 0.5")
        check(not (root / "run").exists(), "a run that did not start left something")


def test_ranks_that_were_started_differently():
    """Named at once, by the rank that differs, rather than after the time-out of those who wait for it."""
    cases = (([], {"WORLD_SIZE": "3"}, "rank 1: was started as one of 3 ranks, rank 0 as one of 2: "),
             (["parallel.transport=gloo"], {}, "rank 1: parallel.transport is \"gloo\", that of rank 0 \"auto\": "))
    for more, variables, says in cases:
        with corpus() as root:
            patient = ["parallel.timeout_seconds=300"]
            a, b = as_ranks(root, {0: (patient, {}), 1: ([*patient, *more], variables)}, free_port())
            for process in (a, b):
                one_line(ends(process, 20, 1)[1], says)
    # Those that agree with rank 0 say it too, and one that comes a little later.
    for late in 0, 1.5:
        with corpus() as root:
            three = {"WORLD_SIZE": "3"}
            port = free_port()
            first = as_ranks(root, {0: (["parallel.timeout_seconds=300"], three)}, port)
            other = as_ranks(root, {2: (["parallel.timeout_seconds=300", "parallel.transport=tcp"], three)}, port)
            time.sleep(late)
            agrees = as_ranks(root, {1: (["parallel.timeout_seconds=300"], three)}, port)
            for process in (*first, *other, *agrees):
                one_line(ends(process, 20, 1)[1], 'rank 2: parallel.transport is "tcp", that of rank 0 "auto": ')
    with corpus() as root:
        few = ["parallel.timeout_seconds=2"]
        a, b = as_ranks(root, {0: (few, {}), 1: (few, {"RONDO_ATTEMPT": "2"})}, free_port())
        _, err = output_of(b, TIMEOUT)
        ends(a, 20, 75)
        check(b.returncode == 75, b.returncode, err)
        # Or rank 0 has given up before.
        check("this is attempt 2, rank 0 is at attempt 1" in err or "its server has ended" in err, err)


def test_the_disk_is_full_for_one_rank():
    """Rank 1 alone: it writes nothing but its log."""
    with corpus() as root:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        a, b = as_ranks(root, {0: ([], {}), 1: ([], {})}, free_port(), preexec={1: limit})
        one_line(ends(b, 20, 1)[1], "rank 1: ", "log.rank-1.jsonl", "File too large")
        one_line(ends(a, 20, 75)[1], "rank 0: ", "rank 1 aborted: ", "log.rank-1.jsonl", "File too large")


@contextlib.contextmanager
def small_disk(path, size):
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path],
                      capture_output=True).returncode != 0:
        raise Skip("no right to mount a small file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_a_disk_runs_full():
    with corpus() as root, small_disk(root / "small", "64k"):
        process = start(*launch(2, "training.checkpoint_dir=small/run",
                                 # not when rank 0 saves: the other's log is on this disk too
                                 "training.log_every_steps=7"), cwd=root)
        _, err = ends(process, 30, 1)
        one_line(err, "rank 0: ", "small/run/", "No space left on device")


LOGS = ("log.jsonl", "log.rank-1.jsonl")


def slow_ranks(root, log="log.jsonl"):
    """{rank: the step in which it was first named}"""
    named = {}
    for entry in log_so_far(root / "run", "slow_rank", log):
        named.setdefault(int(entry["text"].split()[1]), entry["step"])
    return named


def seconds_of_steps(root):
    """[(step, seconds of rank 0, seconds of rank 1)]: what each says in its log that it computed."""
    logs = [{e["step"]: e["compute_seconds"] for e in log_so_far(root / "run", "step", log)
             if "compute_seconds" in e} for log in LOGS]
    return [(step, logs[0][step], logs[1][step]) for step in logs[0] if step in logs[1]]


def slow_by_their_seconds(root):
    """What slow_ranks() has to be: of each rank, the first step at which over eight steps it took twice as
    long as the other and 20 ms more of each, without each rank's longest. The first eight steps do not count."""
    due, steps = {}, seconds_of_steps(root)
    for i in range(15, len(steps)):
        each = [[s[1 + rank] for s in steps[i - 7:i + 1]] for rank in (0, 1)]
        means = [(sum(seconds) - max(seconds)) / 7 for seconds in each]
        slower = 0 if means[0] >= means[1] else 1
        if means[slower] >= max(2 * means[1 - slower], means[1 - slower] + 0.02):
            due.setdefault(slower, steps[i][0])
    return due


def test_a_rank_is_slow():
    """Rank 1 stands still most of the time. Nothing fails, and terminal and logs name it as soon as its
    steps take so long. On a busy machine so do the other's: therefore it is stopped for some of those."""
    with corpus() as root:
        process = start(*launch(2, ENDLESS, "model.hidden=192", "model.layers=2",
                                "training.log_every_steps=1"), cwd=root)
        wait_for_step(root, 5, process)
        victim, patience = ranks_of(process)[1], Patience(TIMEOUT)
        try:
            while 1 not in slow_ranks(root):
                check(process.poll() is None, "ended early:", process.poll())
                check(not patience.is_over(), "nobody is named")
                others = [seconds for _, seconds, _ in seconds_of_steps(root)[-8:]]
                step = sum(others) / len(others)
                for _ in range(10):  # logs are long, and reading them takes the time of many steps
                    os.kill(victim, signal.SIGSTOP)
                    time.sleep(max(0.09, 4 * step))
                    os.kill(victim, signal.SIGCONT)
                    time.sleep(max(0.01, step))
        finally:
            go_on(victim)
            process.send_signal(signal.SIGTERM)
        out, err = ends(process, TIMEOUT, 128 + signal.SIGTERM)
        check("rank 1 is slow" in out + err, "the terminal names nobody:", out, err)
        for log in LOGS:
            check(slow_ranks(root, log) == slow_by_their_seconds(root), "named", slow_ranks(root, log),
                  "due", slow_by_their_seconds(root), seconds_of_steps(root))


def of_other_sources(root):
    """The program as if it were built from other sources: its bytes but for what says so."""
    said = run("info")[0].split("(sources ")[1].split(")")[0]
    other = root / "other-rondo"
    other.write_bytes(pathlib.Path(RONDO).read_bytes().replace(said.encode(), said[::-1].encode()))
    other.chmod(0o755)
    return other, said


def test_ranks_of_other_sources():
    with corpus() as root:
        other, said = of_other_sources(root)
        a, b = as_ranks(root, {0: ([], {}), 1: ([], {})}, free_port(), programs={1: other})
        for process in (a, b):
            one_line(ends(process, 20, 1)[1], "rank 1: is version ", f"(sources {said[::-1]}) of the program, rank 0 version ",
                     f"(sources {said})")
        check(not (root / "run").exists(), "a run that did not start left something")


def test_other_data_on_one_rank():
    with corpus() as root:
        lines = [json.loads(line) for line in (root / "train.jsonl").open()]
        for what, change, says in (
                ("text", lambda: lines[7].update(text=lines[7]["text"] + "a"), "another text, target, length or name in "),
                ("more", lambda: lines.append(lines[0]), f"holds {len(lines) + 1} utterances that can be used, that of rank 0 {len(lines)}")):
            change()
            manifest = root / f"other-{what}.jsonl"
            write_manifest(manifest, lines)
            a, b = as_ranks(root, {0: ([], {}), 1: ([f"data.train={manifest}"], {})}, free_port())
            for process in (a, b):
                one_line(ends(process, 20, 1)[1], "rank 1: ", f"other-{what}.jsonl", says)
            left = sorted(p.name for p in (root / "run").rglob("*"))
            check(not any("checkpoint" in name or "model" in name for name in left), left)


def change_in_memory(pid, old, new):
    """Wherever a process, which stands still, has this text in memory that it may write."""
    changed = 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if "rw" not in line.split()[1] or "/" in line or "[v" in line:
                continue
            memory.seek(first)
            content, at = memory.read(last - first), -1
            while (at := content.find(old, at + 1)) >= 0:
                memory.seek(first + at)
                memory.write(new)
                changed += 1
    return changed


def test_the_data_of_one_rank_change():
    """A text in the memory of rank 1, after the ranks have agreed on their data."""
    rng = random.Random(5)
    text = "".join(rng.choice("abc") for _ in range(40))
    with corpus() as root:
        (root / "long.npy").write_bytes(npy([[rng.random() for _ in range(6)] for _ in range(95)]))
        with open(root / "train.jsonl", "a") as manifest:
            manifest.write(json.dumps({"features_filepath": "long.npy", "text": text}) + "\n")
        process = start(*launch(3, ENDLESS), cwd=root)
        wait_for_step(root, 10, process)
        rank = ranks_of(process)[1]
        check(halt(rank), "rank 1 has ended")
        try:
            changed = change_in_memory(rank, text.encode(), text[::-1].encode())
        except PermissionError as e:
            process.kill()
            raise Skip(f"no right to write into another process's memory: {e}")
        finally:
            go_on(rank)
        check(changed > 0, "the text is nowhere")
        _, err = ends(process, 20, 1)
        one_line(err, "rank 1: at step ", "its batch is not that of rank 0")


main(globals())
