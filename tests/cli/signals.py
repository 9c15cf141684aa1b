"""Signals that ask to end: in every phase of every command, from outside and passed on, once and repeatedly."""

from ranks_support import *

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]
PATIENT = SIGNALS[2:]  # a second one does nothing
ENDLESS = "training.epochs=100000"

# Whoever syncs a file of a checkpoint waits there as long as the file HOLD exists.
HOLDS_SAVES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int fsync(int fd) {
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(name, path, sizeof path - 1);
  path[n > 0 ? n : 0] = 0;
  if (strstr(path, "/.writing-"))
    while (access(getenv("HOLD"), F_OK) == 0) usleep(2000);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""


# As UCX, which comes with Open MPI, when it is loaded.
TAKES_SIGHUP = """
#include <signal.h>
static void take(int number) { (void)number; }
__attribute__((constructor)) static void begin(void) { signal(SIGHUP, take); }
"""


@contextlib.contextmanager
def held_saves(root):
    """The environment of processes whose saves do not end while the file root/hold is there."""
    env = preloading(HOLDS_SAVES, root / "hold.so") | {"HOLD": str(root / "hold")}
    (root / "hold").touch()
    try:
        yield env
    finally:
        (root / "hold").unlink(missing_ok=True)


def stops(process, number, seconds=1):
    """It ends with 128 + the signal's number within so many seconds. Its output."""
    process.send_signal(number)
    return ends(process, seconds, 128 + number)


def is_saving(root):
    return list((root / "run").glob(".writing-*"))


def send(pids, number):
    for pid in pids:
        os.kill(pid, number)
        wait_until(lambda: not is_pending(pid, number))


def saved_step(root):
    return json.loads((checkpoints(root)[-1] / "state.json").read_text())["step"]


def test_repeated_signals_do_not_interrupt_a_save():
    """The kernel repeats XCPU each second; Slurm's TERM may follow its USR1."""
    with corpus() as root, held_saves(root) as env:
        settings = words(ENDLESS, "training.checkpoint_every_steps=0", "training.checkpoint_every_seconds=0",
                         "training.log_every_steps=1")
        for first in PATIENT:
            (root / "hold").touch()
            process = start(*settings, cwd=root, env=env)
            wait_until(lambda: last_step(root / "run") >= 3, process)
            process.send_signal(first)
            wait_until(lambda: is_saving(root), process)
            for number in (PATIENT * 3 + [signal.SIGTERM] + PATIENT):
                send([process.pid], number)
            check(process.poll() is None, "ended in its save:", process.returncode)
            (root / "hold").unlink()
            out, _ = ends(process, TIMEOUT, 128 + first)
            check(f"signal after step {saved_step(root)}" in out, out)
            shutil.rmtree(root / "run")


def test_a_second_signal_interrupts_a_save():
    with corpus() as root, held_saves(root) as env:
        for first in (signal.SIGTERM, signal.SIGUSR1):
            process = start(*words(ENDLESS, "training.checkpoint_every_steps=0"), cwd=root, env=env)
            wait_until(lambda: last_step(root / "run") >= 5, process)
            process.send_signal(first)
            wait_until(lambda: is_saving(root), process)
            if first == signal.SIGUSR1:
                send([process.pid], signal.SIGINT)
                check(process.poll() is None, "the first SIGINT ended it")
            stops(process, signal.SIGINT)
            check(not checkpoints(root), "saved after all")
            shutil.rmtree(root / "run")


def held_launcher(root, env, *options):
    """A launcher of two ranks in the midst of a save, after they and it had a SIGTERM each, as Slurm sends it;
    and its ranks."""
    process = start(*launch(2, ENDLESS, "training.checkpoint_every_steps=0", options=options), cwd=root, env=env)
    wait_for_step(root, 5, process)
    ranks = list(ranks_of(process).values())
    for pid in [process.pid, *ranks]:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: is_saving(root), process)
    time.sleep(0.2)  # the launcher has passed it on
    return process, ranks


def are_gone(pids):
    return all(not set(states_of(pid)) - set("ZX") for pid in pids)


def test_what_is_passed_on_does_not_interrupt_a_save():
    with corpus() as root, held_saves(root) as env:
        for options in ((), ("--elastic",)):
            (root / "hold").touch()
            process, ranks = held_launcher(root, env, *options)
            for number in PATIENT * 2:
                send([process.pid, *ranks], number)
            check(process.poll() is None and not any(map(are_gone, [[r] for r in ranks])), "ended in its save")
            (root / "hold").unlink()
            out, err = ends(process, TIMEOUT, 128 + signal.SIGTERM)
            check(f"signal after step {saved_step(root)}" in out and err == "", out, err)
            check(are_gone(ranks), "ranks are left behind")
            shutil.rmtree(root / "run")


def test_the_launcher_ends_at_once_with_its_ranks():
    with corpus() as root, held_saves(root) as env:
        process, ranks = held_launcher(root, env)
        stops(process, signal.SIGTERM)
        wait_until(lambda: are_gone(ranks))
        check(not checkpoints(root), "saved after all")


def test_the_launcher_is_killed_while_its_ranks_save():
    with corpus() as root, held_saves(root) as env:
        process, ranks = held_launcher(root, env)
        process.kill()
        process.wait()
        time.sleep(0.2)  # the kernel has told the ranks
        check(not any(map(are_gone, [[r] for r in ranks])), "ended in its save")
        (root / "hold").unlink()
        process.communicate()
        wait_until(lambda: are_gone(ranks))
        check(checkpoints(root), "not saved")


def test_the_launcher_passes_each_signal_on():
    with corpus() as root:
        for options in ((), ("--elastic",)):
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
                process = start(*launch(2, ENDLESS, options=options), cwd=root)
                wait_for_step(root, 5, process)
                out, err = stops(process, number, TIMEOUT)
                check(f"signal after step {saved_step(root)}" in out and err == "", out, err)
                shutil.rmtree(root / "run")


@contextlib.contextmanager
def reads_slowly(root, *processes):
    """While this lives, the processes wait for more of the pipe root/slow.jsonl, which they have begun to read."""
    pipe = []

    def is_read():
        with contextlib.suppress(OSError):  # nobody reads
            pipe.append(os.open(root / "slow.jsonl", os.O_WRONLY | os.O_NONBLOCK))
        return pipe

    wait_until(is_read, processes[0])
    try:
        wait_until(lambda: all(reads_pipe(root, p) for p in ranks_or_itself(processes)), processes[0])
        yield
    finally:
        os.close(pipe[0])


def ranks_or_itself(processes):
    return [pid for p in processes for pid in [*ranks_of(p).values()] or [p.pid]]


def reads_pipe(root, pid):
    with contextlib.suppress(OSError):
        return any(os.path.realpath(f) == os.path.realpath(root / "slow.jsonl")
                   for f in pathlib.Path(f"/proc/{pid}/fd").iterdir())


def test_while_data_are_opened():
    """The manifest is a pipe, and nobody writes it."""
    with corpus() as root:
        os.mkfifo(root / "slow.jsonl")
        says = "stopped by a signal before the first update; nothing to save"
        for number, *more in [[n] for n in SIGNALS] + [[signal.SIGUSR1, "--ranks", 2],
                                                       [signal.SIGUSR1, "--resume-or-start"]]:
            process = start(*words("data.dev=slow.jsonl", *more), cwd=root)
            with reads_slowly(root, process):
                out, err = stops(process, number)
            check(out.endswith(says + "\n") and err == "", out, err)
        # What is left of them is no run, and in nobody's way.
        fails(*words("--resume"), cwd=root, errs="holds no checkpoint to continue from")
        run(*words("training.max_steps=2"), cwd=root, says="trained 2 steps")
        process = start(*words("training.max_steps=2", "data.dev=slow.jsonl", "--resume"), cwd=root)
        with reads_slowly(root, process):
            out, _ = stops(process, signal.SIGTERM)
        check(says + "; go on with: rondo train --resume run\n" in out, out)


def test_while_many_data_are_examined():
    with folder() as root:
        tone_corpus(root, train=1, dev=1)
        line = (root / "train.jsonl").read_text().replace('"duration"', '"unknown"')
        (root / "train.jsonl").write_text(line * 100000)
        for number in (signal.SIGTERM, signal.SIGXCPU):
            # Of its own: it is there once the process hears signals.
            process = start("train", *TONE, "data=.", f"training.checkpoint_dir=run-{number}", cwd=root)
            wait_until(lambda: (root / f"run-{number}").exists(), process)
            time.sleep(0.3)
            stops(process, number)


def test_while_a_rank_waits_for_others():
    with corpus() as root:
        for transport in ("auto", "gloo"):
            for number in SIGNALS:
                # Two of three: they look for the third.
                ranks = {r: ([f"parallel.transport={transport}"], {"WORLD_SIZE": "3"}) for r in (0, 1)}
                processes = as_ranks(root, ranks, free_port())
                for process in processes:
                    wait_until(lambda: catches_signals(process.pid), process)
                time.sleep(0.2)
                for process in processes:
                    process.send_signal(number)
                for process in processes:
                    ends(process, 1, 128 + number)
        # One stands still: the other waits in an agreement, or a sum.
        process = start(*launch(2, ENDLESS), cwd=root)
        wait_until(lambda: len(ranks_of(process)) == 2, process)
        ranks = ranks_of(process)
        wait_until(lambda: catches_signals(ranks[0]) and catches_signals(ranks[1]), process)
        halt(ranks[1])
        time.sleep(0.3)
        process.send_signal(signal.SIGUSR2)
        if not last_step(root / "run"):
            wait_until(lambda: are_gone([ranks[0]]), process)
        go_on(ranks[1])
        ends(process, TIMEOUT, 128 + signal.SIGUSR2)
        check(are_gone(ranks.values()), "ranks are left behind")


def test_a_rank_that_hangs_in_an_update():
    """The others are not kept from ending; those that may go on without it save, too."""
    with corpus(train=4000) as root:  # hundreds of updates until something else is done
        lasting = (ENDLESS, "parallel.timeout_seconds=120", "training.checkpoint_every_steps=10000")
        alone = as_ranks(root, {r: (lasting, {}) for r in (0, 1)}, free_port())
        elastic = start(*launch(2, *lasting, "training.checkpoint_dir=elastic",
                                options=["--elastic", "--grace", 1]), cwd=root)
        hang = []
        for directory, process in (("run", alone[0]), ("elastic", elastic)):
            wait_until(lambda: last_step(root / directory) >= 5, process)
            hang.append(alone[1].pid if process == alone[0] else ranks_of(process)[1])
            halt(hang[-1])
        time.sleep(0.2)
        for process in (alone[0], elastic):
            process.send_signal(signal.SIGUSR1)
        _, err = ends(alone[0], TIMEOUT, 128 + signal.SIGUSR1)
        alone[1].kill()
        one_line(err, "rank 0 aborted: was told to stop, and the others have not come for 1", "; nothing is saved")
        out, err = ends(elastic, TIMEOUT, 128 + signal.SIGUSR1)
        check("stopped by a signal after step " in out and list((root / "elastic").glob("checkpoint-*")), out)
        one_line(err, "rank 1 is stopped (SIGSTOP); 1 rank goes on")
        check(are_gone(hang[1:]), "a rank is left behind")


def test_while_ranks_open_data():
    with corpus() as root:
        os.mkfifo(root / "slow.jsonl")
        for options in ((), ("--elastic",)):
            process = start(*launch(2, "data.dev=slow.jsonl", options=options), cwd=root)
            wait_until(lambda: len(ranks_of(process)) == 2, process)
            ranks = ranks_of(process).values()
            with reads_slowly(root, process):
                out, _ = stops(process, signal.SIGUSR1)
            check("nothing to save" in out, out)
            check(are_gone(ranks), "ranks are left behind")


def test_one_of_two_launchers_while_ranks_open_data():
    """The other machine's ranks hear of it, though none of them has got a signal."""
    with corpus() as root:
        os.mkfifo(root / "slow.jsonl")
        env, master = dict(os.environ, RONDO_TOKEN="a secret of these tests"), f"127.0.0.1:{free_port()}"
        for told in (0, 1):
            both = [start(*launch(1, "data.dev=slow.jsonl", options=["--nodes", 2, "--node-rank", i,
                                                                     "--master", master]),
                          cwd=root, env=env) for i in (0, 1)]
            for process in both:
                wait_until(lambda: ranks_of(process), process)
            with reads_slowly(root, *both):
                both[told].send_signal(signal.SIGTERM)
                for process in both:
                    ends(process, 4, 128 + signal.SIGTERM)


def test_prepare():
    with folder() as root:
        write_wav(root / "a.wav", tone_samples("a b c", random.Random(1)))
        (root / "in").mkdir()
        for i in range(1000):
            os.link(root / "a.wav", root / f"in/{i}.wav")
            (root / f"in/{i}.txt").write_text("a b c")
        (root / "table.csv").write_text("file,text\n" + "a.wav,a b c\n" * 50000)
        commands = [["speech-demo", "out", "--train", 100000], ["folder", "in", "out"],
                    ["csv", "table.csv", "out", "--audio-column", "file", "--text-column", "text"]]
        if not shutil.which("espeak-ng"):
            commands.pop(0)
        before = sorted(root.glob("*"))
        for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGXCPU):
            for command in commands:
                process = start("prepare", *command, cwd=root)
                wait_until(lambda: catches_signals(process.pid), process)
                time.sleep(random.uniform(0.05, 0.3))
                process.send_signal(number)
                _, err = output_of(process, 1)
                # It was too late: the corpus is there, and the handlers may be gone.
                if process.returncode == 0 or process.returncode == -number and (root / "out" / "train.jsonl").exists():
                    shutil.rmtree(root / "out")
                    continue
                check(process.returncode == 128 + number and err == "rondo: stopped by a signal; no corpus was made\n", process.returncode, err)
                check(sorted(root.glob("*")) == before, "left behind:", sorted(root.glob("*")))


def children_of(pid):
    with contextlib.suppress(OSError):
        return [int(c) for t in os.listdir(f"/proc/{pid}/task")
                for c in pathlib.Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    return []


def test_children_of_prepare():
    """A program that speaks, and does not end."""
    with folder() as root:
        (root / "espeak-ng").write_text("#!/bin/sh\n[ $# -eq 1 ] && exec espeak-ng \"$@\"\nexec sleep 1000\n")
        (root / "espeak-ng").chmod(0o755)
        env = dict(os.environ, PATH=f"{root}:{os.environ['PATH']}")
        process = start("prepare", "speech-demo", root / "out", env=env)
        wait_until(lambda: children_of(process.pid), process)
        children = children_of(process.pid)
        stops(process, signal.SIGUSR1)
        wait_until(lambda: are_gone(children))


def test_other_commands():
    """They wait for their input, or compute."""
    with folder() as root:
        feature_corpus(root, "ctc")
        train(root, root / "run", "training.max_steps=2")
        (root / "tokens").write_text("a\nb\n")
        os.mkfifo(root / "slow")
        commands = [["eval", "run", "slow"], ["transcribe", "run", "-"],
                    ["align", "run", "-", "tokens"], ["decode", "tokens", "-", "--blank", 0],
                    ["lm", "train", "slow", "--out", "made"], ["bench", "lstm", "--seconds", 100],
                    ["plan", "--measure", "made", "--ranks", 2]]
        before = sorted(root.glob("*"))
        nothing, writer = os.pipe()
        for command in commands:
            for number in (signal.SIGINT, signal.SIGXCPU):
                process = start(*command, cwd=root, stdin=nothing)
                wait_until(lambda: catches_signals(process.pid), process)
                time.sleep(0.1)
                _, err = stops(process, number)
                check(err == f"rondo: stopped by {signal.Signals(number).name}\n", command, err)
        os.close(nothing)
        os.close(writer)
        check(sorted(root.glob("*")) == before, "left behind:", sorted(root.glob("*")))


def test_nohup():
    """What was ignored before stays so."""
    ignore = lambda: [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGHUP, signal.SIGUSR1)]
    with corpus() as root:
        taken = preloading(TAKES_SIGHUP, root / "takes.so")
        for command, env in ((words(ENDLESS), None), (launch(2, ENDLESS), None), (words(ENDLESS), taken), (launch(2, ENDLESS), taken)):
            process = start(*command, cwd=root, preexec_fn=ignore, env=env)
            wait_until(lambda: last_step(root / "run") >= 5, process)
            for number in (signal.SIGHUP, signal.SIGUSR1):
                process.send_signal(number)
            before = last_step(root / "run")
            wait_until(lambda: last_step(root / "run") > before + 10, process)
            stops(process, signal.SIGTERM, TIMEOUT)
            shutil.rmtree(root / "run")


main(globals())
