"""What shells complete of a command line, and the manual page."""

from cli_support import *

# Words so far, the last one at the cursor: what has to be offered, and what must not be.
CASES = [
    (["tra"], ["train", "transcribe"], ["prepare"]),
    ([""], ["train", "prepare", "completion"], ["try-kernels", "manual", "--help"]),
    (["--"], ["--help", "--version"], ["--ranks"]),
    (["train", "--re"], ["--resume", "--resume-or-start", "--replace"], ["--ranks"]),
    (["train", "--alphabet", ""], ["keep", "extend", "union", "new"], ["--help"]),
    (["train", "--alphabet", "un"], ["union"], ["keep"]),
    (["prepare", "common"], ["common-voice"], ["csv"]),
    (["prepare", "folder", "--d"], ["--dev"], ["--resume"]),
    (["lm", ""], ["train"], ["prepare"]),
    (["train", "rec"], ["recipe.toml", "recordings"], ["other"]),
    # A value or a file that is called as a command is none.
    (["train", "--show", "prepare", "--re"], ["--resume"], ["--dev"]),
]


def shell(name):
    if not shutil.which(name):
        raise Skip(f"no {name}")
    return run("completion", name)[0]


def files(root):
    for name in ("recipe.toml", "other"):
        (root / name).write_text("")
    (root / "recordings").mkdir()


def said(*command, stdin, cwd):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=cwd, check=False)
    check(done.returncode == 0 and not done.stderr, command, done.stdout[-500:], done.stderr)
    return done.stdout


def offers(complete):
    """complete(words): what is offered for the last of them."""
    for words, wanted, unwanted in CASES:
        offered = complete(["rondo", *words])
        check(set(wanted) <= set(offered), words, "are completed by", offered)
        check(not set(unwanted) & set(offered), words, "are completed by", offered)


def test_bash():
    script = shell("bash")
    with folder() as root:
        files(root)

        def complete(words):
            quoted = " ".join(f"'{word}'" for word in words)
            return said("bash", "--norc", "-s", cwd=root, stdin=f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
                        "_rondo; printf '%s\\n' \"${COMPREPLY[@]}\"\n").splitlines()

        offers(complete)


def test_zsh():
    script = shell("zsh")
    with folder() as root:
        files(root)

        def complete(words):
            quoted = " ".join(f"'{word}'" for word in words)
            # What the completion system of zsh would do with the words that it is given.
            stand_in = ("compadd() { shift; for word in $@; do [[ $word == $PREFIX* ]] && print -- $word; done; return 0 }\n"
                        f"_files() {{ print -l -- $PREFIX*(N) }}\nwords=({quoted}); CURRENT={len(words)}; PREFIX='{words[-1]}'\n")
            return said("zsh", "-f", "-s", cwd=root, stdin=stand_in + script).splitlines()

        offers(complete)


def test_fish():
    script = shell("fish")
    with folder() as root:
        files(root)
        (root / "rondo.fish").write_text(script)

        def complete(words):
            line = " ".join(word or "" for word in words)
            out = said("fish", "--no-config", cwd=root, stdin=f"source rondo.fish\ncomplete -C '{line}'\n")
            return [entry.split("\t")[0].rstrip("/") for entry in out.splitlines()]

        offers(complete)


def test_the_manual_page():
    page, _ = run("manual", says=[".TH rondo 1", ".SS rondo train", ".SS rondo prepare common\\-voice"], not_says="try\\-kernels")
    for option in ("resume\\-or\\-start", "alphabet", "help\\-config"):
        check(f"\\fB\\-\\-{option}\\fR" in page, option)
    if not shutil.which("groff"):
        raise Skip("no groff")
    text = said("groff", "-man", "-ww", "-Tascii", "-P-cbou", stdin=page, cwd="/")
    for words in ("rondo - Trains CTC/LSTM sequence models", "rondo train [OPTIONS] [config ...]", "--alphabet {keep,extend,union,new}",
                  "rondo prepare speech-demo corpus"):
        check(words in text, words, text[:3000])
    check(max(map(len, text.splitlines())) < 200, "lines are not filled")


def test_what_is_wrong():
    run("completion", "csh", code=2, errs="one of bash, zsh, fish")
    run("completion", code=2, errs="shell is required")
    run("completio", code=2, errs="did you mean 'completion'?")
    run("try-kernel", code=2, errs="unknown command 'try-kernel'", not_says="try-kernels")


main(globals())
