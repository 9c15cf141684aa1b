"""build_ctcdecoder() and its decoder by the names of pyctcdecode 0.5: `from rondo.pyctcdecode import build_ctcdecoder`.

What is different:
  - The score of a text is the sum over all of its alignments, so scores are other numbers than pyctcdecode's.
  - A beam is (text, None, text_frames, None, score): states of language models are not shown, nor is the share of the
    outputs in the score.
  - beam_prune_logp and prune_history have no effect: the search keeps the best beam_width texts.
  - unigrams are those of the language model, which tells unknown words; a list of them is not needed.
  - Batches are decoded in threads. `pool` may be None, and is not used.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
from typing import Any, Collection, Iterable, NamedTuple, Optional, Sequence

import numpy as np

from ._arrays import Array, as_array, floats, shaped
from ._library import InvalidError
from ._result import Result
from .decoding import Decoder, LanguageModel, Path, Vocabulary, _language_model_of, unknown_score_of

_PAD = re.compile(r"[<\[]pad[>\]]", re.IGNORECASE)
_LEAST = 1e-15  # probabilities that are given are at least this


class OutputBeam(NamedTuple):
    """A text. text_frames: each word with its first frame and the one behind its last."""

    text: str
    last_lm_state: None
    text_frames: list[tuple[str, tuple[int, int]]]
    logit_score: None
    lm_score: float


def _vocabulary_of(labels: Sequence[str]) -> Vocabulary:
    """The blank is "" or a padding, or "_", or stands behind the labels; words are separated by " " or "|"."""
    names = list(labels)
    pieces = any(name.startswith(("##", "\u2581")) for name in names)
    if not pieces and " " not in names:
        names = [" " if name == "|" else name for name in names]
    names = ["" if _PAD.fullmatch(name) else name for name in names]
    if not pieces and "" not in names:
        names = ["" if name == "_" else name for name in names]
    if "" not in names:
        names.append("")
    border = None if pieces else " " if " " in names else "none"
    return Vocabulary(names, blank=names.index(""), border=border)


class BeamSearchDecoderCTC:
    """A decoder with pyctcdecode's methods. Any number of threads may use one."""

    def __init__(self, labels: Sequence[str], options: Optional[dict[str, Any]] = None) -> None:
        self._vocabulary = _vocabulary_of(labels)
        self._options = options or {}
        self._decoders: dict[tuple[int, float, int], Decoder] = {}

    @classmethod
    def load_from_dir(cls, filepath: Path, unigram_encoding: Optional[str] = None) -> "BeamSearchDecoderCTC":
        """A folder with alphabet.json and perhaps language_model/, as pyctcdecode and Hugging Face's processors save it."""
        folder = pathlib.Path(filepath)
        alphabet = folder / "alphabet.json"
        try:
            labels = json.loads(alphabet.read_text(encoding="utf-8"))["labels"]
        except (ValueError, KeyError, TypeError) as e:
            raise InvalidError(f"{alphabet}: expected an object with \"labels\": {e!r}") from e
        return cls(labels, _language_model_of(folder))

    def _decoder(self, beam_width: int, token_min_logp: float, nbest: int) -> Decoder:
        key = beam_width, token_min_logp, nbest
        if key not in self._decoders:
            floor = min(math.exp(min(token_min_logp, 0.0)), 1 - 1e-9)
            self._decoders[key] = Decoder(self._vocabulary, beam=beam_width, nbest=nbest, token_floor=floor,
                                          **self._options)
        return self._decoders[key]

    def _results(self, logits_list: Iterable[Array], nbest: int, beam_width: int, token_min_logp: float,
                 hotwords: Optional[Iterable[str]], hotword_weight: float) -> list[Result]:
        decoder = self._decoder(beam_width, token_min_logp, nbest)
        words = list(hotwords or [])
        if words:
            decoder = decoder.with_hot_words(words, hotword_weight)
        return decoder.decode_batch([_logits(x) for x in logits_list])

    def decode(self, logits: Array, beam_width: int = 100, beam_prune_logp: float = -10.0, token_min_logp: float = -5.0,
               hotwords: Optional[Iterable[str]] = None, hotword_weight: float = 10.0, lm_start_state: None = None) -> str:
        """The text of logits, log-probabilities or probabilities [frames, classes]."""
        _refuse_state(lm_start_state)
        return self._results([logits], 1, beam_width, token_min_logp, hotwords, hotword_weight)[0].text

    def decode_beams(self, logits: Array, beam_width: int = 100, beam_prune_logp: float = -10.0,
                     token_min_logp: float = -5.0, prune_history: bool = False,
                     hotwords: Optional[Iterable[str]] = None, hotword_weight: float = 10.0,
                     lm_start_state: None = None) -> list[OutputBeam]:
        """The beam's texts, the best first."""
        _refuse_state(lm_start_state)
        return _beams(self._results([logits], beam_width, beam_width, token_min_logp, hotwords, hotword_weight)[0])

    def decode_batch(self, pool: Any, logits_list: Iterable[Array], beam_width: int = 100, beam_prune_logp: float = -10.0,
                     token_min_logp: float = -5.0, hotwords: Optional[Iterable[str]] = None,
                     hotword_weight: float = 10.0) -> list[str]:
        """The text of each."""
        found = self._results(logits_list, 1, beam_width, token_min_logp, hotwords, hotword_weight)
        return [r.text for r in found]

    def decode_beams_batch(self, pool: Any, logits_list: Iterable[Array], beam_width: int = 100,
                           beam_prune_logp: float = -10.0, token_min_logp: float = -5.0, prune_history: bool = False,
                           hotwords: Optional[Iterable[str]] = None,
                           hotword_weight: float = 10.0) -> list[list[tuple[str, Any, None, float]]]:
        """decode_beams() of each, without the state, as in pyctcdecode: (text, text_frames, None, score)."""
        found = self._results(logits_list, beam_width, beam_width, token_min_logp, hotwords, hotword_weight)
        return [[(b.text, b.text_frames, b.logit_score, b.lm_score) for b in _beams(r)] for r in found]


def _refuse_state(state: Any) -> None:
    if state is not None:
        raise InvalidError("lm_start_state: a state of a language model is not taken, expected None")


def _logits(x: Array) -> Any:
    a = floats(shaped(as_array(x, "logits"), ("frames", "classes"), "logits"), "logits")
    if len(a) > 0 and math.isclose(a.sum(axis=1, dtype=np.float64).mean(), 1, rel_tol=1e-6):
        return np.log(np.clip(a, _LEAST, 1))  # probabilities
    return a


def _beams(result: Result) -> list[OutputBeam]:
    return [OutputBeam(r.text, None, [(w.text, (round(w.begin), round(w.end))) for w in r.words], None, r.score)
            for r in result.alternatives]


def build_ctcdecoder(labels: Sequence[str], kenlm_model_path: Optional["str | os.PathLike[str]"] = None,
                     unigrams: Optional[Collection[str]] = None, alpha: float = 0.5, beta: float = 1.5,
                     unk_score_offset: float = -10.0, lm_score_boundary: bool = True) -> BeamSearchDecoderCTC:
    """pyctcdecode.build_ctcdecoder(): a decoder for labels, with an n-gram model of KenLM's or ARPA's format."""
    options: dict[str, Any] = {}
    if kenlm_model_path is not None:
        options = {"language_model": LanguageModel(kenlm_model_path), "lm_weight": alpha, "word_score": beta,
                   "unknown_score": unknown_score_of(unk_score_offset, alpha), "sentence": lm_score_boundary,
                   "known_words": unigrams}
    else:
        options = {"word_score": 0.0}  # without a model, pyctcdecode has no score for words
    return BeamSearchDecoderCTC(labels, options)
