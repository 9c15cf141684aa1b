"""File systems and networks that lack what a local disk has: object stores and network shares cannot rename a
directory, or a file onto another one, or sync a directory, or lock a file; a machine may be without IPv6. A library
laid over the C library's makes them so. Needs a C compiler; skipped otherwise."""

import socket

from ranks_support import *

# LACKS: words of what there is not.
LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int lacks(const char* what) {
  const char* all = getenv("LACKS");
  return all != NULL && strstr(all, what) != NULL;
}
static int has_type(const char* path, mode_t type) {
  struct stat s;
  return stat(path, &s) == 0 && (s.st_mode & S_IFMT) == type;
}
static int refuse(int error) {
  errno = error;
  return -1;
}
int fsync(int fd) {
  struct stat s;
  if (lacks("sync") && fstat(fd, &s) == 0 && S_ISDIR(s.st_mode)) return refuse(ENOTSUP);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int rename(const char* from, const char* to) {
  if (lacks("rename")) return refuse(ENOSYS);
  if (lacks("directory") && has_type(from, S_IFDIR)) return refuse(EMFILE);
  if (lacks("onto") && has_type(to, S_IFREG)) return refuse(EACCES);
  return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}
int flock(int fd, int operation) {
  if (lacks("lock")) return refuse(ENOLCK);
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, operation);
}
static void be_slow(const char* path) {
  static int opened = 0;
  const char *rank = getenv("RANK"), *dot = strrchr(path, '.');
  if (lacks("speed") && rank && !strcmp(rank, "1") && dot && !strcmp(dot, ".npy") && ++opened <= 60) usleep(200000);
}
#define OPEN(name)                                                        \
  int name(const char* path, int flags, ...) {                            \
    va_list more;                                                         \
    va_start(more, flags);                                                \
    const unsigned mode = va_arg(more, unsigned);                         \
    va_end(more);                                                         \
    be_slow(path);                                                        \
    return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
int socket(int family, int type, int protocol) {
  if (lacks("ipv6") && family == AF_INET6) return refuse(EAFNOSUPPORT);
  return ((int (*)(int, int, int))dlsym(RTLD_NEXT, "socket"))(family, type, protocol);
}
"""
# And what the user is told, once.
KINDS = {"sync": "does not sync directories", "directory": "cannot rename directories", "onto": None,
         "rename": "cannot rename directories", "lock": "cannot be locked"}


@contextlib.contextmanager
def without():
    """A folder, and a function that makes an environment which lacks these things."""
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if not compiler:
        raise Skip("no C compiler")
    with folder() as root:
        (root / "lacking.c").write_text(LIBRARY)
        done = subprocess.run([compiler, "-shared", "-fPIC", "-o", root / "lacking.so", root / "lacking.c", "-ldl"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip("the C compiler fails: " + done.stderr)
        options = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        yield root, lambda lacks: dict(os.environ, LD_PRELOAD=str(root / "lacking.so"), LACKS=lacks, ASAN_OPTIONS=options)


def files_of(directory):
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def trained(data, where, **more):
    """Trains, goes on, and returns what was warned of each time."""
    settings = ["training.epochs=3", "training.checkpoint_every_steps=2", "training.checkpoint_dir=run",
                "training.keep_best=1", *READY, f"data={data}"]
    where.mkdir()
    said = [run("train", *settings, cwd=where, **more),
            run("train", "--resume", *settings, "training.epochs=5", cwd=where, **more)]
    # That the second run has more epochs is told as well.
    return [[line for line in (out + err).splitlines()
             if line.startswith("warning: ") and "differs from the run so far" not in line and "the learning rate goes" not in line]
            for out, err in said]


def test_training():
    with without() as (root, lacking):
        feature_corpus(root, "ctc")
        said = trained(root, root / "whole")
        check(not any(said), said)
        expected = weights_of(root / "whole" / "run")
        for kind, warning in KINDS.items():
            for lines in trained(root, root / kind, env=lacking(kind)):
                check(len(lines) == (1 if warning else 0), kind, lines)
                check(not warning or ("'run'" in lines[0] and warning in lines[0]), kind, lines)
            run_dir = root / kind / "run"
            check(weights_of(run_dir) == expected, kind, "other weights")
            names = sorted(e.name for e in run_dir.iterdir())
            check(names == sorted(e.name for e in (root / "whole" / "run").iterdir()), kind, names)
            for generation in run_dir.glob("checkpoint-*"):
                check((generation / "manifest.json").exists(), kind, list(generation.iterdir()))
                check(not list(generation.glob(".*")), kind, list(generation.iterdir()))


def test_what_is_made_of_data():
    """Corpora, models and pages, each made twice: the second ones take the place of the first."""
    with without() as (root, lacking):
        tone_corpus(root, train=6, dev=2)
        spoken = root / "spoken"
        spoken.mkdir()
        for manifest in (root / "train.jsonl", root / "dev.jsonl"):
            for entry in map(json.loads, manifest.read_text().splitlines()):
                shutil.copy(root / entry["audio_filepath"], spoken)
                (spoken / entry["audio_filepath"]).with_suffix(".txt").write_text(entry["text"] + "\n")
        train(root, root / "run", "training.max_steps=1", base=TONE)

        def made(where, **more):
            where.mkdir()
            for _ in range(2):
                run("prepare", "folder", spoken, "corpus", cwd=where, **more)
                run("lm", "train", root / "train.jsonl", "--out", "lm.arpa", "--order", 2, "--discount-fallback",
                    cwd=where, **more)
                run("eval", root / "run", root / "dev.jsonl", "--report", "report.html", "--hypotheses", "texts",
                    cwd=where, **more)
            return files_of(where)

        expected = made(root / "whole")
        for kind in KINDS:
            found = made(root / kind, env=lacking(kind))
            check(found.keys() == expected.keys(), kind, found.keys() ^ expected.keys())
            for name, content in expected.items():
                if name != "report.html":  # has the time
                    check(found[name] == content.replace(b"/whole/", b"/" + kind.encode() + b"/"), kind, name)


def test_ranks_without_ipv6():
    with without() as (root, lacking):
        name = socket.gethostname()
        try:
            socket.getaddrinfo(name, None)
        except socket.gaierror as e:
            raise Skip(f"this machine's own name leads nowhere: {e}")
        feature_corpus(root, "ctc", train=12)
        expected = single(root, "training.max_steps=4")
        # By a name, as if the other rank were on another machine.
        environment = dict(lacking("ipv6"), RONDO_TOKEN="a secret of these tests", MASTER_ADDR=name,
                           MASTER_PORT=str(free_port()), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
        both = []
        for rank in range(2):
            (root / str(rank)).mkdir()
            for file in root.glob("*.*"):
                shutil.copy(file, root / str(rank))
            both.append(start(*words("training.max_steps=4"), cwd=root / str(rank), env=dict(environment, RANK=str(rank))))
        for process in both:
            ends(process, 90, 0)
        check_same(expected, root / "0" / "run")


def test_a_rank_whose_disk_is_slow():
    """It looks at its data for twelve seconds; the others wait for ten of one that says nothing, not of one that is at work."""
    with without() as (root, lacking):
        feature_corpus(root, "ctc", train=60)
        more = "training.max_steps=4", "parallel.timeout_seconds=1"
        expected = single(root, *more)
        run(*launch(2, *more), cwd=root, env=lacking("speed"))
        check_same(expected, root / "run")


main(globals())
