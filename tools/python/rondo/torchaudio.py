"""ctc_decoder() by the names of torchaudio.models.decoder: `from rondo.torchaudio import ctc_decoder`.

What is different:
  - The score of a text is the sum over all of its alignments.
  - lm_dict, beam_size_token, beam_threshold, sil_score, log_add and unk_score have no effect: texts are of the lexicon's
    words alone.
  - A lexicon's words are spelled by their own characters, and another spelling is an error. So is lm without a lexicon, or
    other than the path of an n-gram model of words.
  - Emissions are arrays of numpy, or anything that DLPack shows it, and so are the hypotheses' tokens and timesteps.
"""

from __future__ import annotations

import math
import os
import pathlib
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy as np

from ._arrays import Array
from ._library import InvalidError
from ._result import Result
from .alignment import TokenSpan, forced_align, merge_tokens
from .decoding import Decoder, LanguageModel, Path, Vocabulary

__all__ = ["CTCDecoder", "CTCHypothesis", "TokenSpan", "ctc_decoder", "forced_align", "merge_tokens"]


class CTCHypothesis(NamedTuple):
    """A text: the classes of its tokens and their first frames, its words, and its score."""

    tokens: "np.ndarray[Any, Any]"
    words: list[str]
    score: float
    timesteps: "np.ndarray[Any, Any]"


class CTCDecoder:
    """A decoder with torchaudio's calls. Any number of threads may use one."""

    def __init__(self, decoder: Decoder, tokens: list[str]) -> None:
        self._decoder = decoder
        self._tokens = tokens
        self._classes = {token: i for i, token in enumerate(tokens)}

    def __call__(self, emissions: Array, lengths: Optional[Array] = None) -> list[list[CTCHypothesis]]:
        """The best texts of each of emissions [sequences, frames, classes]."""
        return [[self._hypothesis(r) for r in found.alternatives]
                for found in self._decoder.decode_batch(emissions, lengths)]

    def idxs_to_tokens(self, idxs: Array) -> list[str]:
        """What classes stand for."""
        return [self._tokens[int(i)] for i in idxs]

    def _hypothesis(self, r: Result) -> CTCHypothesis:
        known = [(self._classes[p.text], round(p.begin)) for p in r.characters if p.text in self._classes]
        tokens, starts = (np.array(column, np.int64) for column in (zip(*known) if known else ((), ())))
        return CTCHypothesis(tokens, [w.text for w in r.words], r.score, starts)


def _lines(given: Union[Path, Sequence[str]]) -> list[str]:
    if isinstance(given, (str, os.PathLike)):
        return [line for line in pathlib.Path(given).read_text(encoding="utf-8").splitlines() if line.strip()]
    return list(given)


def _words_of(lexicon: Path, tokens: list[str], sil_token: str) -> list[str]:
    words = []
    for number, line in enumerate(_lines(lexicon), 1):
        word, *spelling = line.split()
        letters = spelling[:-1] if spelling[-1:] == [sil_token] else spelling
        if letters != list(word):
            raise InvalidError(f"{os.fspath(lexicon)}:{number}: '{word}' is spelled '{' '.join(spelling)}', expected its own "
                               "characters; `rondo decode --lexicon` takes others")
        words.append(word)
    return list(dict.fromkeys(words))


def ctc_decoder(lexicon: Optional[Path], tokens: Union[Path, Sequence[str]], lm: Optional[Path] = None,
                lm_dict: Optional[str] = None, nbest: int = 1, beam_size: int = 50, beam_size_token: Optional[int] = None,
                beam_threshold: float = 50, lm_weight: float = 2, word_score: float = 0, unk_score: float = -math.inf,
                sil_score: float = 0, log_add: bool = False, blank_token: str = "-", sil_token: str = "|",
                unk_word: str = "<unk>") -> CTCDecoder:
    """torchaudio.models.decoder.ctc_decoder(): a decoder for tokens, with the words of a lexicon and an n-gram model."""
    if lm is not None and not isinstance(lm, (str, os.PathLike)):
        raise InvalidError(f"lm: a {type(lm).__name__}, expected the path of an n-gram model")
    if lm is not None and lexicon is None:
        raise InvalidError("lm: given without a lexicon; models of tokens are not taken")
    names = _lines(tokens)
    for role, token in (("blank_token", blank_token), ("sil_token", sil_token)):
        if token not in names:
            raise InvalidError(f"{role}: '{token}' is none of the {len(names)} tokens")
    options: dict[str, Any] = {"beam": beam_size, "nbest": nbest, "word_score": word_score}
    if lexicon is not None:
        options["words"] = _words_of(lexicon, names, sil_token)
    if lm is not None:
        # Theirs multiplies log10 p, ours ln p.
        options.update(language_model=LanguageModel(lm), lm_weight=lm_weight / math.log(10), unknown_score=0.0)
    vocabulary = Vocabulary(names, blank=names.index(blank_token), border=sil_token)
    return CTCDecoder(Decoder(vocabulary, **options), names)
