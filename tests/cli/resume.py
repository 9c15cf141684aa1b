"""Killed, stopped, out of disk space: what a resumed run ends with."""

import resource
import signal

from cli_support import *

# About three seconds of training on two idle cores, with a checkpoint every few steps.
SETTINGS = ["training.epochs=30", "training.checkpoint_every_steps=4", "training.log_every_steps=5",
            "training.ema=0.9", "training.accumulation=2", "model.dropout=0.2",
            "training.checkpoint_dir=run"]


def words(*more):
    return ["train", *READY, *SETTINGS, "data=.", *more]


def uninterrupted(root):
    """A finished run of the same settings (they are part of the model file) in root/whole."""
    whole, parts = root / "whole", root / "parts"
    whole.mkdir()
    parts.mkdir()
    feature_corpus(whole, "ctc")
    for file in whole.iterdir():
        shutil.copy(file, parts)
    run(*words(), cwd=whole)
    return whole / "run", parts


def check_same(whole, part):
    expected, found = weights_of(whole), weights_of(part)
    for name in expected:
        check(expected[name] == found[name], f"{name}: other bytes than of an uninterrupted run")


def ended(directory):
    return bool(log_so_far(directory / "run", "end"))


def ends(process):
    """Its output, decoded."""
    return output_of(process, TIMEOUT)


def signal_in_time(process, number, in_time):
    """Sends a signal in a moment of which in_time() is true, the process standing still. False: it was too
    late, and nothing was sent."""
    sent = halt(process.pid) and in_time()
    if sent:
        process.send_signal(number)
    go_on(process.pid)
    return sent


def ended_by(number, command, directory, ready, in_time):
    """What a run writes that is sent a signal when it is ready() (it has logged a step) and still in_time(),
    which has to be so at its end as well. If not, it is followed by another from the beginning."""
    outputs = []

    def attempt():
        steps = lambda: len(log_so_far(directory / "run", "step"))
        before = steps()
        process = start(*command, cwd=directory)
        wait_until(ready or (lambda: steps() > before), process, pause=0.005)
        sent = signal_in_time(process, number, in_time)
        out, err = ends(process)
        expected = 0 if not sent else -number if number == signal.SIGKILL else 128 + number
        check(process.returncode == expected, process.returncode, "expected", expected, out, err)
        outputs[:] = [out]
        if sent and in_time():
            return True
        shutil.rmtree(directory / "run")

    until_in_time(attempt)
    return outputs[0]


def test_kill_at_random_moments():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    with folder() as root:
        whole, parts = uninterrupted(root)
        last = last_step(whole)
        for number in range(6):
            # Before the log says anything; then anywhere in the next sixth, within a step.
            wanted = (number + rng.random()) * (last - 10) / 6 if number else 0

            def moment():
                if last_step(parts / "run") >= wanted:
                    time.sleep(rng.uniform(0, 0.02))
                    return True

            ended_by(signal.SIGKILL, words("--resume-or-start"), parts, moment,
                     lambda: last_step(parts / "run") < last)
        run(*words("--resume-or-start"), cwd=parts)
        check_same(whole, parts / "run")
        # A finished run has nothing left to do, and says so.
        run(*words("--resume"), cwd=parts, says="nothing is left to do: the run has come to the end that training.epochs sets")
        check_same(whole, parts / "run")


def events_of(path):
    """(step, tags, whether a session starts) of each event of a TensorBoard file."""
    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte, at = data[at], at + 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(data):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
                continue
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at:at + size]
            at += size

    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        size = struct.unpack("<Q", data[at:at + 8])[0]
        step, tags, starts = 0, [], False
        for number, value in fields(data[at + 12:at + 12 + size]):
            step = value if number == 2 else step
            starts = starts or (number == 7 and (1, 1) in fields(value))
            if number == 5:
                tags += [dict(fields(v))[1].decode() for _, v in fields(value)]
        events.append((step, tags, starts))
        at += 16 + size
    return events


def shown_by_tensorboard(directory):
    """{tag: steps} after all files, by name: with a START, events of its step and of later ones are gone."""
    shown = {}
    for path in sorted(directory.iterdir()):
        for step, tags, starts in events_of(path):
            if starts:
                shown = {tag: [s for s in steps if s < step] for tag, steps in shown.items()}
            for tag in tags:
                shown.setdefault(tag, []).append(step)
    return shown


def test_kill_shows_no_step_twice():
    more = ["training.tensorboard=board", "training.log_every_steps=1", "training.checkpoint_every_steps=7"]
    with folder() as root:
        whole, parts = root / "whole", root / "parts"
        for place in (whole, parts):
            place.mkdir()
            feature_corpus(place, "ctc")
        run(*words(*more), cwd=whole)
        of = lambda d: [(e["event"], e["step"]) for e in map(json.loads, (d / "run/log.jsonl").read_text().splitlines())
                        if e["event"] in ("step", "validation", "start", "end", "memory")]
        last = last_step(whole / "run")
        for kill in range(2):
            wanted = (kill + 0.5) * last / 3
            ended_by(signal.SIGKILL, words(*more, "--resume-or-start"), parts,
                     lambda: last_step(parts / "run") >= wanted and checkpoints(parts),
                     lambda: last_step(parts / "run") < last)
        run(*words(*more, "--resume"), cwd=parts, says="continuing after step")
        log = of(parts)
        check(len(set(log)) == len(log), "twice:", [e for e in log if log.count(e) > 1])
        only = lambda lines: [e for e in lines if e[0] != "memory"]
        check(only(log) == only(of(whole)), only(log), only(of(whole)))
        expected, found = shown_by_tensorboard(whole / "board"), shown_by_tensorboard(parts / "board")
        check(expected["loss/train"] == list(range(1, last + 1)), expected)
        check(found == expected, found, expected)


def test_kill_with_all_that_is_drawn_by_chance():
    # Recordings with every kind of augmentation, averages, and bf16 where the CPU has it.
    with folder() as root:
        whole, parts = root / "whole", root / "parts"
        for place in (whole, parts):
            place.mkdir()
            tone_corpus(place, train=24, dev=6)
        bf16 = "AVX-512 with bf16" in run("info")[0]
        settings = ["train", *TONE, "data=.", "training.checkpoint_dir=run", "training.epochs=4",
                    "model.dropout=0.2", "augment.speed=[0.9, 1.0, 1.1]", "augment.noise=0.5",
                    "augment.spec_augment=true", "features.dither=1", "training.ema=0.9",
                    "training.average_best=2", "training.checkpoint_every_steps=3",
                    f"training.dtype={'bf16' if bf16 else 'f32'}"]
        run(*settings, cwd=whole)
        ended_by(signal.SIGKILL, settings, parts, lambda: checkpoints(parts), lambda: not ended(parts))
        run(*settings, "--resume", cwd=parts, says="continuing after step")
        check_same(whole / "run", parts / "run")


def test_interrupted_and_terminated():
    with folder() as root:
        whole, parts = uninterrupted(root)
        last = last_step(whole)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            out = ended_by(number, words("--resume-or-start"), parts, None, lambda: last_step(parts / "run") < last - 5)
            check("stopped by a signal after step" in out and "--resume" in out, out)
            # Saved at that very step, not at the last one that was due.
            step = int(out.split("signal after step ")[1].split(";")[0])
            newest = sorted((parts / "run").glob("checkpoint-*"))[-1]
            check(json.loads((newest / "state.json").read_text())["step"] == step, newest, out)
        run(*words("--resume"), cwd=parts, says="continuing after step")
        check_same(whole, parts / "run")


def test_a_signal_during_validation():
    with folder() as root:
        feature_corpus(root, "ctc")
        few = (root / "dev.jsonl").read_text()
        (root / "dev.jsonl").write_text(few * 400)
        settings = words("training.validate_every_steps=2", "training.max_steps=4",
                         "training.log_every_steps=1")
        run(*settings, cwd=root)
        (root / "run").rename(root / "whole")
        out = ended_by(signal.SIGTERM, settings, root, lambda: last_step(root / "run") >= 2,
                       lambda: not log_so_far(root / "run", "validation"))
        check("stopped by a signal after step 2" in out, out)
        newest = sorted((root / "run").glob("checkpoint-*"))[-1]
        check(json.loads((newest / "state.json").read_text())["validation_pending"], newest)
        run(*settings, "--resume", cwd=root, says="continuing after step 2")
        check_same(root / "whole", root / "run")
        of = lambda d: [(e["step"], e["loss"], e["wer"], e["best"]) for e in log_of(d, "validation")]
        check(of(root / "whole") == of(root / "run"), of(root / "whole"), of(root / "run"))


def test_a_signal_during_the_test():
    with folder() as root:
        feature_corpus(root, "ctc")
        (root / "test.jsonl").write_text((root / "dev.jsonl").read_text() * 400)
        settings = words("training.max_steps=4", "training.average_best=2",
                         "training.validate_every_steps=2", "data.test=test.jsonl")
        run(*settings, cwd=root, says="best model on the test data")
        (root / "run").rename(root / "whole")

        out = ended_by(signal.SIGTERM, settings, root,
                       lambda: len(log_so_far(root / "run", "validation")) == 2,
                       lambda: not log_so_far(root / "run", "test"))
        check("stopped by a signal after step 4" in out, out)
        run(*settings, "--resume", cwd=root, says="best model on the test data")
        check_same(root / "whole", root / "run")
        of = lambda d: [(e["step"], e["loss"], e["wer"]) for e in log_of(d, "test")]
        check(of(root / "whole") == of(root / "run"), of(root / "whole"), of(root / "run"))


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_second_signal_exits_at_once():
    with folder() as root:
        # A step of several seconds, so that the first signal has to wait.
        rng = random.Random(1)
        rows = [[rng.gauss(0, 1) for _ in range(6)] for _ in range(20000)]
        (root / "long.npy").write_bytes(npy(rows))
        write_manifest(root / "train.jsonl", [{"features_filepath": "long.npy", "text": "abc"}])
        for number in (signal.SIGTERM, signal.SIGINT):
            until_in_time(lambda: exits_at_once(root, number))


def exits_at_once(root, number):
    """False where the step was over before the second signal, and the run therefore saved."""
    process = start("train", *READY, "data.train=train.jsonl", "model.hidden=256",
                    "training.checkpoint_dir=run", "data.batch_frames=1000000", cwd=root,
                    stdout=subprocess.DEVNULL)

    wait_until(lambda: log_so_far(root / "run", "start"), process)
    # Before the first update there would be nothing to wait for.
    before = processor_seconds(process)
    wait_until(lambda: processor_seconds(process) - before > 0.2, process)
    process.send_signal(number)
    wait_until(lambda: not is_pending(process.pid, number), process)  # or they would be one
    saved = lambda: checkpoints(root) or list(root.glob("run/.writing-*"))
    sent = signal_in_time(process, number, lambda: not saved())
    output_of(process, 2 if sent else TIMEOUT)
    check(process.returncode == 128 + number, process.returncode)
    check(not sent or not checkpoints(root), "the first signal was enough")
    shutil.rmtree(root / "run")
    return sent


def test_nobody_reads_the_output():
    with folder() as root:
        feature_corpus(root, "ctc")
        unread, out = os.pipe()
        os.close(unread)
        process = start(*words("training.epochs=3", "training.samples=3"), cwd=root, stdout=out)
        os.close(out)
        _, err = ends(process)
        check(process.returncode == 1, process.returncode, err)
        check("standard output cannot be written" in err, err)
        check(json.loads((sorted((root / "run").glob("checkpoint-*"))[-1] / "state.json").read_text())
              ["epoch"] == 3, "not trained to the end")


def test_an_interrupted_corpus():
    with folder() as root:
        process = start("prepare", "speech-demo", root / "corpus", "--train", "100000",
                        "--threads", "2")
        wait_until(lambda: list(root.glob("corpus.partial-*/wav/*")), process)
        process.send_signal(signal.SIGINT)
        out, err = ends(process)
        check(process.returncode == 128 + signal.SIGINT, process.returncode, out, err)
        check("stopped by a signal; no corpus was made" in err, err)
        check(not list(root.iterdir()), "left behind:", list(root.iterdir()))


def test_full_disk():
    with folder() as root:
        whole, parts = uninterrupted(root)
        last = last_step(whole)
        ended_by(signal.SIGKILL, words(), parts, lambda: len(checkpoints(parts)) >= 2,
                 lambda: last_step(parts / "run") < last - 5)
        # No file may grow beyond 20 kB: the log still can, a checkpoint cannot.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        fails(*words("--resume-or-start"), cwd=parts, preexec_fn=limit, errs=["cannot be written: File too large"])
        run("info", "--model", parts / "run", says="alphabet")
        run(*words("--resume"), cwd=parts, says="continuing after step")
        check_same(whole, parts / "run")


def test_full_disk_tmpfs():
    with folder() as root:
        disk = root / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", disk],
                          stderr=subprocess.DEVNULL).returncode:
            raise Skip("no right to mount a small file system")
        try:
            feature_corpus(root, "ctc")
            train(root, disk / "run", "training.max_steps=8", "training.keep_last=1")
            filler = disk / "filler"
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            fails("train", *READY, f"data={root}", f"training.checkpoint_dir={disk}/run",
                  "training.max_steps=20", "training.keep_last=1", "--resume",
                  errs="No space left on device")
            run("info", "--model", sorted((disk / "run").glob("checkpoint-*"))[-1], says="alphabet")
            filler.unlink()
            train(root, disk / "run", "training.max_steps=20", "training.keep_last=1", "--resume",
                  says=["continuing after step", "trained 20 steps"])
        finally:
            subprocess.run(["umount", disk], check=True)


def test_two_at_once():
    with folder() as root:
        feature_corpus(root, "ctc")
        process = start("train", *READY, "data=.", "training.checkpoint_dir=run",
                        "training.epochs=100000", cwd=root, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: (root / "run/log.jsonl").exists(), process)
            fails("train", *READY, "data=.", "training.checkpoint_dir=run", "--resume-or-start", cwd=root,
                  errs="run")
        finally:
            process.kill()
            process.communicate()


main(globals())
