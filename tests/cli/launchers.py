"""Launchers of several machines, all of them on this one: what they hear of each other, and what a user reads."""

from ranks_support import *

TOKEN = dict(os.environ, RONDO_TOKEN="a secret of these tests")
ENDLESS = "training.epochs=100000"


class Machines:
    """`rondo launch` on machines of one rank each, in folders of their own."""

    def __init__(self, root, n, *more, options=(), start=None):
        self.root, self.n, self.more, self.options = root, n, more, options
        self.master = f"127.0.0.1:{free_port()}"
        self.running = {}
        for i in range(n) if start is None else start:
            self.start(i)

    def start(self, i, *options, ranks=1, nodes=None):
        folder = self.root / f"machine-{i}"
        if not folder.exists():
            folder.mkdir()
            for file in self.root.glob("*.*"):
                shutil.copy(file, folder)
        command = launch(ranks, *self.more, options=["--nodes", nodes or self.n, "--node-rank", i, "--master", self.master,
                                                     "--grace", 2, *self.options, *options])
        self.running[i] = start(*command, cwd=folder, env=TOKEN)
        return self.running[i]

    def wait_for_step(self, step):
        wait_for_step(self.root / "machine-0", step, self.running[0])


def test_other_options_on_one_machine():
    for wrong in ({"ranks": 2}, {"nodes": 3}):
        with corpus() as root:
            machines = Machines(root, 2, start=[])
            first, second = machines.start(0), machines.start(1, **wrong)
            texts = "node 1 was started with --nodes ", ", node 0 with --nodes 2 -n 1: expected the same on all machines"
            for process in (first, second):
                one_line(ends(process, 20, 1)[1], *texts)


def test_a_machine_that_does_not_come():
    with corpus() as root:
        for missing, says in ((1, "the launcher of node 1 did not come within 1 s"),
                              (0, "the launcher of node 0 at 127.0.0.1:")):
            machines = Machines(root, 2, start=[])
            one_line(ends(machines.start(1 - missing, "--join-timeout", 1), 20, 1)[1], says, "(--join-timeout)")


def test_a_launcher_is_killed():
    """Its ranks hear of it and stop, and with them all others: their launchers say whose it was."""
    for victim in (0, 1):
        with corpus() as root:
            machines = Machines(root, 2, ENDLESS)
            machines.wait_for_step(10)
            machines.running[victim].kill()
            _, err = ends(machines.running[1 - victim], 30, 75)
            one_line(err, f"the launcher of node {victim} is gone")


def test_a_launcher_is_told_to_stop():
    for told in (0, 1):
        with corpus() as root:
            machines = Machines(root, 2, ENDLESS)
            machines.wait_for_step(10)
            machines.running[told].send_signal(signal.SIGTERM)
            _, err = ends(machines.running[told], 30, 128 + signal.SIGTERM)
            check(err == "", err)
            _, err = ends(machines.running[1 - told], 30, 128 + signal.SIGTERM)
            one_line(err, f"node {told} was told to stop (SIGTERM)")


def test_a_launcher_is_told_to_stop_while_it_waits():
    with corpus() as root:
        for alone in (0, 1):
            process = Machines(root, 2, start=[alone]).running[alone]
            wait_until(lambda: catches_signals(process.pid), process)
            process.send_signal(signal.SIGINT)
            ends(process, 10, 128 + signal.SIGINT)


def test_the_cause_is_told_everywhere():
    """A rank of machine 1 is killed, or has bad data: both terminals say so, and the exit codes are the same."""
    with corpus() as root:
        machines = Machines(root, 2, ENDLESS)
        machines.wait_for_step(10)
        os.kill(ranks_of(machines.running[1])[1], signal.SIGKILL)
        for process in machines.running.values():
            one_line(ends(process, 20, 128 + signal.SIGKILL)[1], "rank 1 was killed by SIGKILL")
    with corpus() as root:
        (root / "late.npy").write_bytes(npy([[1.0] * 5 + [float("nan")]] * 60))
        with open(root / "train.jsonl", "a") as manifest:
            manifest.write(json.dumps({"features_filepath": "late.npy", "text": "abcabc"}) + "\n")
        machines = Machines(root, 2, options=["--max-restarts", 3])
        for process in machines.running.values():
            one_line(ends(process, 30, 1)[1], "rank ", "late.npy: frame 0 column 5 is not a finite number")


def test_restarts_are_counted_by_node_0():
    """Those of one attempt of its own; the others go along without a limit of their own."""
    with corpus() as root:
        machines = Machines(root, 2, ENDLESS, start=[])
        machines.start(0, "--max-restarts", 1), machines.start(1)
        for attempt, says in ((1, "(restart 1 of 1)"), (2, "")):
            machines.wait_for_step(10 + last_step(root / "machine-0" / "run"))
            os.kill(ranks_of(machines.running[1])[1], signal.SIGKILL)
            if attempt == 1:
                before = ranks_of(machines.running[0])
                wait_until(lambda: ranks_of(machines.running[0]) not in ({}, before), machines.running[0])
        for process in machines.running.values():
            _, err = ends(process, 20, 128 + signal.SIGKILL)
            lines = err.splitlines()
            check(len(lines) == 2 and lines[0].endswith("(restart 1 of 1)") and "restart" not in lines[1], err)


def test_each_of_three_machines_is_lost():
    """One after the other, and started anew at once: the run ends with the bits of an undisturbed one."""
    with corpus() as root:
        longer = "training.epochs=60", "--resume-or-start"
        expected = single(root, *longer)
        machines = Machines(root, 3, *longer, options=["--max-restarts", 20])
        for lost in (2, 0, 1):
            machines.wait_for_step(10 + last_step(root / "machine-0" / "run"))
            launcher = machines.running[lost]
            ranks = ranks_of(launcher).values()
            for pid in (launcher.pid, *ranks):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            launcher.communicate()
            machines.start(lost)
        errors = [ends(process, TIMEOUT, 0)[1] for process in machines.running.values()]
        # The last one started anew has seen none of it; node 0 that of node 1 alone.
        check(errors[1] == "", errors)
        check(errors[0].count("node 1") == 1 and errors[0].count("starting again") == 1, errors)
        check(errors[2].count("starting again") == 2, errors)
        check_same(expected, root / "machine-0" / "run")


def test_a_launcher_alone_is_started_anew():
    """The ranks of the launcher that was killed are still there, and rank 0 has the directory of the run."""
    with corpus() as root:
        expected = single(root)
        last = last_step(root / "whole" / "run")

        def in_time():
            machines = Machines(root, 2, options=["--max-restarts", 3])
            machines.wait_for_step(60)
            rank = ranks_of(machines.running[0]).get(0)
            if rank and halt(rank) and last_step(root / "machine-0" / "run") < last - 5:
                machines.running[0].kill()
                machines.running[0].communicate()
                machines.start(0)
                time.sleep(4)  # until machine 1 has given up the ranks of the attempt before, and waits
                go_on(rank)
                (out, err), (_, other) = [ends(process, 60, 0) for process in machines.running.values()]
                check("the launcher of node 0 is gone" in other and "(restart 1 of 3)" in other, other)
                # It has not been told that there was a run before, but by the other launcher.
                check(err == "" and "continuing after step" in out, out, err)
                return True
            if rank:
                go_on(rank)
            for i, process in machines.running.items():
                ends(process, TIMEOUT, 0)
                shutil.rmtree(root / f"machine-{i}" / "run")

        until_in_time(in_time)
        check_same(expected, root / "machine-0" / "run")


main(globals())
