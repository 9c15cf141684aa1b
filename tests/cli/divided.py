"""A corpus that ranks divide: what eval, transcribe and predict say and write is as of one rank."""

from line_images import LINES, line_image, png
from ranks_support import *


def divided(ranks, *command, options=(), code=0, **more):
    """(stdout, stderr) of so many ranks; 0: of the command by itself."""
    words = command if ranks == 0 else ("launch", "-n", ranks, *options, "--", *command)
    return run(*words, code=code, **more)


def without_times(out):
    """Results, without how long they took."""
    out = re.sub(r'"seconds":[0-9.e+-]+', '"seconds":0', out)
    return re.sub(r"in [0-9.]+ s: [0-9]+ times real time", "in no time", out)


def check_equal(one, other, *what):
    check(one == other, *what, "\n--- one rank\n", str(one)[:2000], "\n--- several\n", str(other)[:2000])


def evaluated(root, ranks, *words):
    """All that eval says and writes."""
    written = [root / "hypotheses.jsonl", root / "report.html"]
    text, _ = divided(ranks, "eval", "model", "test.jsonl", "--hypotheses", written[0], "--report", written[1],
                      *words, cwd=root, errs=[])
    out, err = divided(ranks, "eval", "model", "test.jsonl", "--json", *words, cwd=root)
    return [without_times(text), without_times(out), err, *(without_times(file.read_text()) for file in written)]


def files_of(directory):
    """Without the time at which pages were made."""
    return {str(f.relative_to(directory)): re.sub(rb"<(Created|LastChange)>[^<]*<", b"", f.read_bytes())
            for f in sorted(directory.rglob("*")) if f.is_file()}


def test_eval():
    for kind, settings in [("ctc", []), ("classify", ["task=classify"]), ("regress", ["task=regress"])]:
        with folder() as root:
            feature_corpus(root, kind, dev=30)
            train(root, root / "model", "training.max_steps=3", *settings)
            for words in [[]] + ([["--beam", 4], ["--group-by", "features_filepath"]] if kind == "ctc" else []):
                if words[:1] == ["--group-by"]:
                    lines = [json.loads(line) for line in (root / "test.jsonl").read_text().splitlines()]
                    write_manifest(root / "test.jsonl", [{**line, "half": i % 2} for i, line in enumerate(lines)])
                    words = ["--group-by", "half"]
                expected = evaluated(root, 0, *words)
                for ranks in (1, 2, 3):
                    check_equal(expected, evaluated(root, ranks, *words), kind, words, ranks)


def test_more_ranks_than_recordings():
    with folder() as root:
        tone_corpus(root, train=12, dev=2)
        train(root, root / "model", "training.max_steps=2", base=TONE)
        check_equal(evaluated(root, 0), evaluated(root, 4), "eval")
        command = ["transcribe", "model", "test.jsonl", "--format", "jsonl"]
        check_equal(divided(0, *command, cwd=root), divided(4, *command, cwd=root), "transcribe")


def test_transcribe():
    with folder() as root:
        tone_corpus(root, train=24, dev=23)
        train(root, root / "model", "training.max_steps=20", base=TONE)
        for words in [["--format", "text"], ["--format", "jsonl"], ["--format", "ctm"], ["--beam", 8, "--nbest", 3],
                      ["--format", "npy", "--out", "made"], ["--format", "srt", "--out", "made"]]:
            results = []
            for ranks in (0, 1, 2, 3):
                said = divided(ranks, "transcribe", "model", "test.jsonl", *words, cwd=root)
                check(said[0].count("\n") >= (1 if "ctm" in words else 23), said)
                results.append((said, files_of(root / "made") if "made" in words else {}))
                shutil.rmtree(root / "made", ignore_errors=True)
                check_equal(results[0], results[-1], words, ranks)
        # What cannot be read is told where it stands, and the others go on.
        (root / "dev004.wav").write_bytes(b"no recording")
        (root / "dev005.wav").unlink()
        (root / "dev017.wav").write_bytes(b"")
        command = ["transcribe", "model", *(f"dev{i:03}.wav" for i in range(23))]
        one = divided(0, *command, cwd=root, code=1, errs=[])
        check(len(one[1].splitlines()) == 3 and len(one[0].splitlines()) == 20, one)
        for ranks in (1, 2, 3):
            check_equal(one, divided(ranks, *command, cwd=root, code=1, errs=[]), ranks)


def test_predict():
    with folder() as root:
        feature_corpus(root, "classify", dev=7)
        train(root, root / "model", "task=classify", "training.max_steps=3")
        command = ["predict", "model", "test.jsonl", "--format", "jsonl"]
        check_equal(divided(0, *command, cwd=root), divided(2, *command, cwd=root))


def test_lines_of_a_page_stay_together():
    """Regions of images; of two images in turn, each of whose stretches is a page."""
    with folder() as root:
        rng = random.Random(4)
        names = []
        for i, count in enumerate([1, 4, 2, 1, 3]):
            lines = [line_image("abc"[:rng.randrange(1, 4)] * 2, rng) for _ in range(count)]
            width = max(len(line[0]) for line in lines)
            (root / f"{i}.png").write_bytes(png([row + [240] * (width - len(row)) for line in lines for row in line]))
            names.append([{"image_filepath": f"{i}.png", "region": [0, 20 * n, len(line[0]), 20], "text": "ab"}
                          for n, line in enumerate(lines)])
        write_manifest(root / "train.jsonl", sum(names, []))
        shutil.copy(root / "train.jsonl", root / "dev.jsonl")
        train(root, root / "model", "training.max_steps=2", base=LINES)
        a, b, *others = names
        write_manifest(root / "list.jsonl", sum(others, a + b[:1]))
        write_manifest(root / "in_turn.jsonl", names[4][:1] + b[:2] + names[4][1:] + b[2:])
        for format, source in [("page", "list"), ("alto", "list"), ("hocr", "list"), ("text", "list"), ("text", "in_turn")]:
            results = []
            for ranks in (0, 2, 4):
                out = ["--out", "made"] if format != "text" else []
                said = divided(ranks, "transcribe", "model", f"{source}.jsonl", "--format", format, *out, cwd=root)
                results.append((said, files_of(root / "made") if out else {}))
                shutil.rmtree(root / "made", ignore_errors=True)
                check_equal(results[0], results[-1], format, ranks)


def test_what_cannot_be_divided():
    with folder() as root:
        tone_corpus(root, train=12, dev=3)
        train(root, root / "model", "training.max_steps=2", base=TONE)
        for words, what in [(["dev000.wav", "--stream"], "--stream"), (["-"], "standard input"),
                            (["dev000.wav", "--picture", "p.svg"], "--picture")]:
            _, err = divided(2, "transcribe", "model", *words, cwd=root, code=1)
            one_line(err, what + (", '-'," if words == ["-"] else ""), "cannot be divided among several ranks")
            check("rank " not in err.replace("ranks", ""), err)
        run("launch", "-n", 2, "--elastic", "--", "eval", "model", "test.jsonl", cwd=root, code=2, errs="--elastic goes with -- train")
        run("launch", "-n", 2, "--max-restarts", 1, "--", "eval", "model", "test.jsonl", cwd=root, code=2, errs="--max-restarts")
        # What all ranks find is said once, of none of them.
        for words, what in [(["eval", "model", "none.jsonl"], "none.jsonl"), (["transcribe", "model", "none.wav"], "none.wav"),
                            (["eval", "none", "test.jsonl"], "none"), (["eval", "model", "test.jsonl", "--lm", "none.lm"], "none.lm"),
                            (["transcribe", "model", "dev.jsonl", "--hot-words", "none.txt"], "none.txt")]:
            expected = run(*words, cwd=root, code=1)
            check_equal(expected, divided(3, *words, cwd=root, code=1), words)
            check(what in expected[1], expected)


NOTES_OPENS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int (*find(const char* name))(const char*, int, ...) { return (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, name); }
static void note(const char* path) {
  const char *notes = getenv("OPENED"), *rank = getenv("RANK"), *name = strrchr(path, '/');
  const size_t n = strlen(path);
  name = name ? name + 1 : path;
  if (!notes || n < 4 || strcmp(path + n - 4, ".wav") != 0) return;
  char line[256] = "";
  strcat(strcat(strcat(strcat(line, rank ? rank : "-"), " "), name), "\n");
  const int file = find("open")(notes, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (write(file, line, strlen(line)) < 0) abort();
  close(file);
}
#define OPEN(name)                                  \
  int name(const char* path, int flags, ...) {      \
    va_list more;                                   \
    va_start(more, flags);                          \
    const mode_t mode = va_arg(more, int);          \
    va_end(more);                                   \
    note(path);                                     \
    return find(#name)(path, flags, mode);          \
  }
OPEN(open)
OPEN(open64)
"""


def test_each_rank_opens_its_part_of_the_headers():
    """Of a run that ends when all have been looked at, since one is missing; its sentence is that of one rank."""
    with folder() as root:
        tone_corpus(root, train=21, dev=9)
        for part in ("train", "dev"):  # several utterances of a recording are one header
            lines = [json.loads(line) for line in (root / f"{part}.jsonl").read_text().splitlines()]
            write_manifest(root / f"{part}.jsonl", lines + [{**lines[0], "offset": 0.1, "duration": 0.3, "text": ""}])
        (root / "train013.wav").unlink()
        env = dict(preloading(NOTES_OPENS, root / "notes.so"), OPENED=str(root / "opened"))

        def opened():
            lines = [line.split() for line in (root / "opened").read_text().splitlines()]
            (root / "opened").unlink()
            return {rank: sorted(name for r, name in lines if r == rank) for rank in {r for r, _ in lines}}

        words = ["train", *TONE, "data=.", "training.checkpoint_dir=run", "data.test="]
        expected = run(*words, cwd=root, env=env, code=1, errs=["train013.wav"])
        alone = opened()
        check(list(alone) == ["-"] and "train013.wav" in alone["-"], alone)
        both = [f"train{i:03}.wav" for i in range(21)] + [f"dev{i:03}.wav" for i in range(9)]
        for ranks in (2, 3):
            check_equal(expected[1], divided(ranks, *words, cwd=root, env=env, code=1, errs=[])[1], ranks)
            parts = opened()
            check(sorted(sum(parts.values(), [])) == sorted(both), "not each once:", parts)
            check(all(abs(len(part) - 30 / ranks) <= 1 for part in parts.values()), parts)
        # Of an evaluation, which reads its own part of the recordings after that.
        run(*words, "data.unreadable=skip", "data.unreadable_limit=0.5", "training.max_steps=2", cwd=root)
        command = ["eval", "run", "dev.jsonl", "--json"]
        alone = without_times(run(*command, cwd=root)[0])
        check_equal(alone, without_times(divided(3, *command, cwd=root, env=env)[0]))
        # Each header is opened by one rank. A recording is read once, or a second time by the thread that waits
        # for a batch, when another thread has begun it and not finished; all headers by each rank were 27.
        parts = opened()
        check(9 + 10 <= len(sum(parts.values(), [])) <= 9 + 2 * 10, parts)


def test_other_launchers_and_other_inputs():
    """The variables are those of training's ranks; ranks that were given other things say so."""
    with folder() as root:
        tone_corpus(root, train=12, dev=6)
        train(root, root / "model", "training.max_steps=2", base=TONE)
        command = ["transcribe", "model", "test.jsonl"]
        expected = run(*command, cwd=root)

        def both(*commands):
            port = free_port()
            processes = []
            for rank, words in enumerate(commands):
                env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                           RONDO_TOKEN="a secret of these tests")
                processes.append(start(*words, cwd=root, env=env, stdin=subprocess.DEVNULL))
            return [(*output_of(p, TIMEOUT), p.returncode) for p in processes]

        first, second = both(command, command)
        check_equal((*expected, 0), first)
        check_equal(("", "", 0), second)
        first, second = both(command, ["transcribe", "model", "dev000.wav", "dev001.wav"])
        check(first[0] == "" and first[2] and second[2], first, second)
        check("rank 1: 'rondo transcribe' was given" in first[1] + second[1], first, second)
        mpirun = shutil.which("mpirun")
        if not mpirun:
            raise Skip("no mpirun")
        process = subprocess.Popen([mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", RONDO, *command],
                                   cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check_equal(expected, ends(process, TIMEOUT, 0), "mpirun")


main(globals())
