"""A copy of the source tree with builds of its own, in which scripts of tests plant errors.

Nothing of the tree itself is touched. The copy and its builds are kept from one run to the next, so that only what
differs is built again.
"""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

MEMORY = 8 << 30  # bytes of address space that a program with an error in it may take
FILE = 1 << 30    # and of a file that it may write


def git(*arguments, cwd):
    if not shutil.which("git"):  # sources may have come without it
        return subprocess.CompletedProcess(arguments, 127, "", "there is no git")
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def first_complaint(text):
    """One line of a program's output that shows what it did not like."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.startswith("FAILED") or "FAILED:" in line or "race in" in line:
            return line
    return lines[-1] if lines else ""


class TreeCopy:
    """builds: for each folder of a build what `meson setup` is told beyond the two folders."""

    def __init__(self, root, directory, builds, jobs):
        self.root, self.source, self.jobs = root, directory, jobs  # builds lie inside, where a compiler's cache knows them
        self.builds = {directory / name: options for name, options in builds.items()}
        self._targets = {}

    def update(self):
        """Copies what differs, so that what does not is not built again. Ends the program outside a Git checkout."""
        listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=self.root)
        if listed.returncode != 0:
            sys.exit(f"{self.root}: needs a Git checkout")
        wanted = {n for n in listed.stdout.split("\0") if n and (self.root / n).is_file()}
        for name in wanted:
            old, new = self.source / name, self.root / name
            if not old.exists() or old.read_bytes() != new.read_bytes():
                old.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(new, old)
        for path in [p for p in self.source.rglob("*") if p.is_file()]:
            of_build = any(path.is_relative_to(build) for build in self.builds)
            if not of_build and str(path.relative_to(self.source)) not in wanted:
                path.unlink()

    def configure(self, build):
        if (build / "build.ninja").exists():
            return
        p = subprocess.run(["meson", "setup", str(build), str(self.source), *self.builds[build]],
                           capture_output=True, text=True, check=False)
        if p.returncode != 0:
            sys.exit(f"meson setup {build} fails:\n{p.stdout[-2000:]}{p.stderr}")

    def target(self, program):
        """(build directory, ninja target) of the first build that has a program of this name, or None."""
        if program not in self._targets:
            self._targets[program] = self._find(program)
        return self._targets[program]

    def _find(self, program):
        for build in self.builds:
            self.configure(build)
            p = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"],
                               capture_output=True, text=True, check=False)
            for line in p.stdout.splitlines():
                name, _, rule = line.rpartition(": ")
                if pathlib.PurePath(name).name == program and "LINKER" in rule:
                    return build, name
        return None

    def compile(self, program, environment=None):
        """What the compiler said if it failed, else None."""
        found = self.target(program)
        if found is None:
            return f"no program '{program}' in the build"
        p = subprocess.run(["ninja", "-C", str(found[0]), "-j", str(self.jobs), found[1]], capture_output=True,
                           text=True, errors="replace", check=False, env=os.environ | (environment or {}))
        return None if p.returncode == 0 else p.stdout[-3000:]

    def run(self, command, seconds, environment=None, limited=False):
        """(exit status or None when out of time, what it said). What the program started ends with it.

        limited: without room for what an error may ask for (MEMORY, FILE). Not for sanitizers' programs."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        program = str(pathlib.Path(*self.target(command[0])))
        with subprocess.Popen([program, *command[1:]], cwd=self.source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", start_new_session=True, stdin=subprocess.DEVNULL,
                              env=os.environ | (environment or {}), preexec_fn=limit if limited else None) as p:
            try:
                said, _ = p.communicate(timeout=seconds)
                status = p.returncode
            except subprocess.TimeoutExpired:
                said, status = "out of time", None
            finally:
                end_session(p.pid)
            return status, said


def end_session(leader):
    """Ends all of a session that start_new_session began."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass
