"""Machines that are lost and come back: the launchers meet again, and the run ends with the bits of an
undisturbed one. RONDO_KILLS says how many times a machine is lost (3), RONDO_SEED when and which.

Needs the right to make namespaces, and `ip` (iproute2); skipped otherwise."""

from machines_support import *

KILLS, SEED = int(os.environ.get("RONDO_KILLS", "3")), int(os.environ.get("RONDO_SEED", "1"))
DOWN = 2  # seconds


class Job:
    """Two machines with a rank each, started by the same command whenever they start."""

    def __init__(self, cable, root, *words, options=("--max-restarts", 1000)):
        self.cable, self.root, self.words, self.options = cable, root, words, ["--grace", 1, *options]
        self.machines = cable.launch(root, 1, *words, options=self.options)

    def lose(self, machine, by):
        """All of its processes at once. The other machine hears of it where it is killed; where it loses its
        power, whatever was known on it is gone, and nobody says so."""
        if by == "power":
            self.cable.unplug()
        self.cable.kill_all(machine)
        self.machines[machine].communicate()
        if by == "power":
            self.cable.lay_anew(machine)

    def come_back(self, machine):
        self.machines[machine] = self.cable.launch_one(machine, self.root, 1, *self.words, options=self.options)

    def wait_for_step(self, step):
        deadline = time.monotonic() + TIMEOUT
        while last_step(self.root / "machine-0" / "run") < step:
            check(all(m.poll() is None for m in self.machines), f"ended before step {step}:",
                  [m.poll() is not None and m.communicate() for m in self.machines])
            check(time.monotonic() < deadline, f"did not come to step {step} within {TIMEOUT} s")
            time.sleep(0.02)

    def end(self):
        return [ends(process, TIMEOUT, 0)[1] for process in self.machines]

    def kill(self):
        for machine in (0, 1):
            self.cable.kill_all(machine)
            self.machines[machine].communicate()


def epochs_for(root, seconds):
    """So many that one rank needs as long, on this machine today."""
    epochs = 40
    began = time.monotonic()
    single(root, f"training.epochs={epochs}", "--resume-or-start")
    took = time.monotonic() - began
    shutil.rmtree(root / "whole")
    return max(epochs, math.ceil(epochs * seconds / took))


def test_machines_are_lost_at_random():
    rng = random.Random(SEED)
    with corpus() as root, Cable() as cable:
        # Two seconds of training for each loss and as many for the end; two ranks are slower than one.
        words = [f"training.epochs={epochs_for(root, 2 * (KILLS + 1))}", "--resume-or-start"]
        expected = single(root, *words)
        steps = last_step(root / "whole" / "run")
        check(steps > 0, "the undisturbed run has no steps")
        job, began = Job(cable, root, *words), time.monotonic()
        for i in range(KILLS):
            machine, by = i % 2 if KILLS < 4 else rng.randrange(2), rng.choice(("kill -9", "power"))
            # By progress, not by the clock: however fast the machine is just then, the run has not ended.
            job.wait_for_step(steps * (i + rng.random()) / (KILLS + 1))
            step = last_step(root / "machine-0" / "run")
            job.lose(machine, by)
            time.sleep(DOWN)
            job.come_back(machine)
            print(f"loss {i + 1}: machine {machine}, {by}, at step {step} of {steps}", flush=True)
        job.end()
        print(f"{KILLS} losses, {time.monotonic() - began:.0f} s, {last_step(root / 'machine-0' / 'run')} steps")
        check_same(expected, root / "machine-0" / "run")


main(globals())
