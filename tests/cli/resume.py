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
    began = time.monotonic()
    run(*words(), cwd=whole)
    return whole / "run", parts, time.monotonic() - began


def check_same(whole, part):
    expected, found = weights_of(whole), weights_of(part)
    for name in expected:
        check(expected[name] == found[name], f"{name}: other bytes than of an uninterrupted run")


def steps_so_far(directory):
    try:
        return max(entry["step"] for entry in log_of(directory, "step"))
    except (FileNotFoundError, ValueError):
        return 0


def wait_for(condition, process):
    end = time.monotonic() + TIMEOUT
    while not condition():
        check(process.poll() is None, "ended early:", process.poll())
        check(time.monotonic() < end, "nothing happens")
        time.sleep(0.005)


def test_kill_at_random_moments():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    with folder() as root:
        whole, parts, seconds = uninterrupted(root)
        kills = 0
        for _ in range(6):
            process = start(*words("--resume"), cwd=parts, stdout=subprocess.DEVNULL)
            try:
                process.wait(rng.uniform(0, 0.6 * seconds))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
            err = process.communicate()[1].decode()
            check(process.returncode in (0, -signal.SIGKILL), process.returncode, err)
        check(kills > 0, "never killed")
        run(*words("--resume"), cwd=parts)
        check_same(whole, parts / "run")
        # A finished run has nothing left to do, and says so.
        run(*words("--resume"), cwd=parts)
        check_same(whole, parts / "run")


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
        for _ in range(10):  # on a busy machine it may end first
            shutil.rmtree(parts / "run", ignore_errors=True)
            process = start(*settings, cwd=parts, stdout=subprocess.DEVNULL)
            wait_for(lambda: list((parts / "run").glob("checkpoint-*")), process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == -signal.SIGKILL:
                break
        check(process.returncode == -signal.SIGKILL, "never killed")
        run(*settings, "--resume", cwd=parts, says="continuing after step")
        check_same(whole / "run", parts / "run")


def test_interrupted_and_terminated():
    with folder() as root:
        whole, parts, _ = uninterrupted(root)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            before = steps_so_far(parts / "run")
            process = start(*words("--resume"), cwd=parts)
            wait_for(lambda: steps_so_far(parts / "run") > before, process)
            process.send_signal(number)
            out, err = (b.decode() for b in process.communicate(timeout=TIMEOUT))
            check(process.returncode == 128 + number, process.returncode, out, err)
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
        process = start(*settings, cwd=root)
        wait_for(lambda: steps_so_far(root / "run") >= 2, process)
        process.send_signal(signal.SIGTERM)
        out, err = (b.decode() for b in process.communicate(timeout=TIMEOUT))
        check(process.returncode == 128 + signal.SIGTERM, process.returncode, out, err)
        check("stopped by a signal after step 2" in out, out)
        check(not log_of(root / "run", "validation"), "waited for the end of the validation")
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
        process = start(*settings, cwd=root)

        def validated():
            with contextlib.suppress(FileNotFoundError, ValueError):
                return len(log_of(root / "run", "validation")) == 2

        wait_for(validated, process)
        process.send_signal(signal.SIGTERM)
        out, err = (b.decode() for b in process.communicate(timeout=TIMEOUT))
        check(process.returncode == 128 + signal.SIGTERM, process.returncode, out, err)
        check("stopped by a signal after step 4" in out and "test data" not in out, out)
        run(*settings, "--resume", cwd=root, says="best model on the test data")
        check_same(root / "whole", root / "run")
        of = lambda d: [(e["step"], e["loss"], e["wer"]) for e in log_of(d, "test")]
        check(of(root / "whole") == of(root / "run"), of(root / "whole"), of(root / "run"))


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_second_signal_exits_at_once():
    for number in (signal.SIGTERM, signal.SIGINT):
        with folder() as root:
            exits_at_once(root, number)


def exits_at_once(root, number):
    # A step of several seconds, so that the first signal has to wait.
    rng = random.Random(1)
    rows = [[rng.gauss(0, 1) for _ in range(6)] for _ in range(20000)]
    (root / "long.npy").write_bytes(npy(rows))
    write_manifest(root / "train.jsonl", [{"features_filepath": "long.npy", "text": "abc"}])
    process = start("train", *READY, "data.train=train.jsonl", "model.hidden=256",
                    "training.checkpoint_dir=run", "data.batch_frames=1000000", cwd=root,
                    stdout=subprocess.DEVNULL)

    def started():
        with contextlib.suppress(FileNotFoundError, ValueError):
            return log_of(root / "run", "start")

    wait_for(started, process)
    # Before the first update there would be nothing to wait for.
    before = processor_seconds(process)
    wait_for(lambda: processor_seconds(process) - before > 0.2, process)
    process.send_signal(number)
    time.sleep(0.05)
    process.send_signal(number)
    began = time.monotonic()
    process.communicate(timeout=TIMEOUT)
    check(process.returncode == 128 + number, process.returncode)
    check(time.monotonic() - began < 2, "took", time.monotonic() - began, "s")
    check(not list((root / "run").glob("checkpoint-*")), "the first signal was enough")


def test_a_signal_before_the_first_update():
    with folder() as root:
        feature_corpus(root, "ctc")
        # While the data are opened: the manifest is a pipe, and nobody has written it yet.
        os.mkfifo(root / "slow.jsonl")
        process = start(*words("data.dev=slow.jsonl"), cwd=root)
        with open(root / "slow.jsonl", "w") as pipe:
            process.send_signal(signal.SIGTERM)
            pipe.write((root / "dev.jsonl").read_text())
        out, err = (b.decode() for b in process.communicate(timeout=TIMEOUT))
        check(process.returncode == 128 + signal.SIGTERM, process.returncode, out, err)
        check("before the first update; nothing to save" in out, out)


def test_nobody_reads_the_output():
    with folder() as root:
        feature_corpus(root, "ctc")
        process = start(*words("training.epochs=3", "training.samples=3"), cwd=root)
        process.stdout.close()
        err = process.stderr.read().decode()
        process.wait(TIMEOUT)
        check(process.returncode == 1, process.returncode, err)
        check("standard output cannot be written" in err, err)
        check(json.loads((sorted((root / "run").glob("checkpoint-*"))[-1] / "state.json").read_text())
              ["epoch"] == 3, "not trained to the end")


def test_an_interrupted_corpus():
    with folder() as root:
        process = start("prepare", "speech-demo", root / "corpus", "--train", "100000",
                        "--threads", "2")
        wait_for(lambda: list(root.glob("corpus.partial-*/wav/*")), process)
        process.send_signal(signal.SIGINT)
        out, err = (b.decode() for b in process.communicate(timeout=TIMEOUT))
        check(process.returncode == 128 + signal.SIGINT, process.returncode, out, err)
        check("stopped by a signal; no corpus was made" in err, err)
        check(not list(root.iterdir()), "left behind:", list(root.iterdir()))


def test_full_disk():
    with folder() as root:
        whole, parts, _ = uninterrupted(root)
        process = start(*words(), cwd=parts, stdout=subprocess.DEVNULL)
        wait_for(lambda: len(list((parts / "run").glob("checkpoint-*"))) >= 2, process)
        process.kill()
        process.communicate()
        # No file may grow beyond 20 kB: the log still can, a checkpoint cannot.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        fails(*words("--resume"), cwd=parts, preexec_fn=limit, errs=["cannot be written: File too large"])
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
            wait_for(lambda: (root / "run/log.jsonl").exists(), process)
            fails("train", *READY, "data=.", "training.checkpoint_dir=run", "--resume", cwd=root,
                  errs="run")
        finally:
            process.kill()
            process.communicate()


main(globals())
