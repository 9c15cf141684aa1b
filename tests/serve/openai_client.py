"""openai_client.py RONDO: `rondo serve` through PyPI's package openai, as its users call it.

A virtual environment in a temporary folder has the package. Exit status 77 where there is none to be had.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))


def make_environment(folder):
    """The Python of a new environment with the package."""
    python = folder / "bin" / "python"
    for command, why in (([sys.executable, "-m", "venv", folder], "no virtual environment can be made (Debian: python3-venv)"),
                         ([python, "-m", "pip", "install", "--quiet", "--no-input", "openai"], "pip cannot install openai")):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            print(f"SKIP: {why}: {(done.stdout.strip().splitlines() or ['it said nothing'])[-1]}")
            sys.exit(77)
    return python


def use(rondo):
    """In the environment."""
    import json
    import openai
    from cli_support import TONE, check, main, run, tone_corpus, train
    from serve_support import server

    def said(root, *words):
        return run("transcribe", root / "run", root / "data/dev000.wav", *words)[0]

    def test_transcriptions():
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary)
            (root / "data").mkdir()
            tone_corpus(root / "data")
            train(root / "data", root / "run", "training.epochs=30", "model.bidirectional=false", "features.cmvn=global", base=TONE)
            (root / "token").write_text("s3cret")
            with server(root / "run", "--token-file", root / "token") as s:
                client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="s3cret")
                ask(client, root)
                refuse(client, openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="other", max_retries=0), root)

    def ask(client, root):
        text, file = said(root).strip(), root / "data/dev000.wav"
        check([m.id for m in client.models.list()] == ["run"])
        check(client.models.retrieve("run").owned_by == "rondo")
        make = client.audio.transcriptions.create
        check(make(model="run", file=file.open("rb")).text == text)
        check(make(model="run", file=("x.wav", file.read_bytes()), language="en", temperature=0, prompt="p").text == text)
        check(make(model="run", file=file, response_format="text") == text + "\n")
        check(make(model="run", file=file, response_format="srt") == said(root, "--format", "srt"))
        check(make(model="run", file=file, response_format="vtt") == said(root, "--format", "vtt"))
        verbose = make(model="run", file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"])
        known = json.loads(said(root, "--format", "jsonl"))
        check(verbose.text == text and abs(verbose.duration - known["duration"]) < 1e-3, verbose)
        check([(w.word, w.start, w.end) for w in verbose.words] ==
              [(w["text"], round(w["begin"], 3), round(w["end"], 3)) for w in known["words"]], verbose, known)
        check(" ".join(segment.text for segment in verbose.segments) == text, verbose)
        events = list(make(model="run", file=file, stream=True))
        check("".join(e.delta for e in events if e.type == "transcript.text.delta") == text, events)
        check(events[-1].type == "transcript.text.done" and events[-1].text == text, events)

    def refuse(client, stranger, root):
        file = root / "data/dev000.wav"
        for kind, words, call in (
                (openai.AuthenticationError, "not the server's", lambda: stranger.models.list()),
                (openai.NotFoundError, "no model 'other'", lambda: client.audio.transcriptions.create(model="other", file=file)),
                (openai.BadRequestError, "x.wav", lambda: client.audio.transcriptions.create(model="run", file=("x.wav", b"garbage" * 99)))):
            try:
                call()
            except kind as e:
                check(words in e.message, e.message)
            else:
                raise AssertionError(f"no {kind.__name__}")

    main({"test_transcriptions": test_transcriptions})


if __name__ == "__main__":
    if os.environ.get("RONDO_IN_ENVIRONMENT"):
        use(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        python = make_environment(pathlib.Path(temporary))
        # What a developer has set for OpenAI is not to be tested.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "PYTHON")) and not k.lower().endswith("_proxy")}
        environment |= {"RONDO_IN_ENVIRONMENT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        sys.exit(subprocess.run([python, __file__, *sys.argv[1:]], env=environment).returncode)
