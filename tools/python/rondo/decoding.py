"""Texts from the outputs of any CTC model: vocabularies, language models, decoders."""

from __future__ import annotations

import ctypes
import json
import math
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

import numpy as np

from ._arrays import Array, as_array, integers, matrix_of, shaped
from ._library import (DecoderOptions, Handle, HotWord, InvalidError, Owner, bytes_of, double, int32, lib, make,
                       path_bytes, set_options, text_of, texts)
from ._result import Result, result_from

Path = Union[str, "os.PathLike[str]"]
HotWords = Union[Mapping[str, float], Iterable[str]]

_FIRST_BLANK, _FIND_BLANK, _LAST_BLANK = -3, -2, -1
_BLANKS: dict[Any, int] = {None: _FIND_BLANK, "first": _FIRST_BLANK, "last": _LAST_BLANK}


class Vocabulary(Handle):
    """What the classes of a CTC model stand for; tokens[i] is class i.

    tokens: a list of them; or a file or a folder of Hugging Face, as `rondo decode` takes it.
    blank: its class, "first" or "last" (before or behind the tokens), or None: found by its name ("<blank>", "<pad>", "" and the like).
    border: the token that separates words, "none" or "every"; None: told from the tokens.
    Any number of threads may use one.
    """

    def __init__(self, tokens: Union[Sequence[str], Path], *, blank: Union[int, str, None] = None,
                 border: Optional[str] = None) -> None:
        is_named = blank is None or isinstance(blank, str)
        where = _BLANKS.get(blank, -4) if is_named else int32(blank, "blank")
        if where < (_FIRST_BLANK if is_named else 0):
            raise InvalidError(f"blank: {blank!r}, expected a class, 'first', 'last' or None")
        edge = None if border is None else bytes_of(border, "border")
        if isinstance(tokens, (str, os.PathLike)):
            made = make(lib.vocabulary_open, lib.vocabulary_free, path_bytes(tokens), where, edge)
        else:
            names = [bytes_of(t, f"tokens[{i}]") for i, t in enumerate(tokens)]
            made = make(lib.vocabulary_new, lib.vocabulary_free, texts(names), len(names), where, edge)
        super().__init__(made)

    @classmethod
    def _of_model(cls, model: Owner) -> "Vocabulary":
        self = cls.__new__(cls)
        Handle.__init__(self, make(lib.vocabulary_of_model, lib.vocabulary_free, model))
        return self


class LanguageModel(Handle):
    """An n-gram model: an ARPA file, a binary of KenLM, or what `rondo lm build` or `rondo lm train` wrote; or the bytes
    of one.

    Any number of threads may use one.
    """

    def __init__(self, model: Union[Path, bytes], *, name: str = "the language model") -> None:
        if isinstance(model, bytes):
            made = make(lib.language_model_from_memory, lib.language_model_free, model, len(model),
                        bytes_of(name, "name"))
        else:
            made = make(lib.language_model_open, lib.language_model_free, path_bytes(model, "model"))
        super().__init__(made)

    def scores(self, words: Union[str, Sequence[str]], *, end: bool = True) -> "np.ndarray[Any, Any]":
        """log10 p of each word of a sentence, and with `end` of its end."""
        given = [bytes_of(w, "words") for w in (words.split() if isinstance(words, str) else words)]
        each = np.zeros(len(given) + int(end))
        lib.language_model_score(self._live(), texts(given), len(given), int(end), None,
                                 each.ctypes.data_as(ctypes.POINTER(ctypes.c_double)))
        return each

    def score(self, words: Union[str, Sequence[str]], *, end: bool = True) -> float:
        """log10 p of a sentence."""
        return float(self.scores(words, end=end).sum())


def _hot_words(given: Optional[HotWords], weight: float) -> tuple[Any, int]:
    if given is None:
        return None, 0
    if isinstance(given, str):
        raise TypeError(f"hot_words: '{given}', expected a list of phrases or a dict from phrases to weights")
    pairs = given.items() if isinstance(given, Mapping) else [(phrase, weight) for phrase in given]
    words = [HotWord(bytes_of(phrase, "hot_words"), double(w, "hot_words")) for phrase, w in pairs]
    return (HotWord * max(len(words), 1))(*words), len(words)


class Decoder(Handle):
    """A search for the most probable text.

    vocabulary: of the model whose outputs it reads; or what Vocabulary takes.
    language_model: or the path of one. It, lm_weight, word_score, unknown_score: pyctcdecode's alpha, beta, unk_score_offset.
    beam: texts that are kept from frame to frame; nbest: texts of a result, as its alternatives.
    token_floor: classes that are less probable in a frame do not extend texts in it.
    words: texts are of these alone.
    known_words: other words of a language model of words count as not known, each with unknown_score beside its own score.
    sentence: whether the text begins and ends as a sentence for the language model.
    hot_words: phrases that are expected, each with a natural logarithm as its weight; or a list of them, which all have
        hot_word_weight.
    What is not given is as `rondo decode` has it (but no token_floor by itself). Any number of threads may use one.
    """

    def __init__(self, vocabulary: Union[Vocabulary, Sequence[str], Path], *,
                 language_model: Union[LanguageModel, Path, None] = None, lm_weight: Optional[float] = None,
                 word_score: Optional[float] = None, unknown_score: Optional[float] = None, beam: Optional[int] = None,
                 nbest: Optional[int] = None, token_floor: Optional[float] = None,
                 words: Optional[Iterable[str]] = None, known_words: Optional[Iterable[str]] = None, sentence: bool = True,
                 hot_words: Optional[HotWords] = None, hot_word_weight: float = 5.0) -> None:
        o = DecoderOptions()
        lib.decoder_options_init(ctypes.byref(o), ctypes.sizeof(o))
        set_options(o, lm_weight=lm_weight, word_score=word_score, unknown_score=unknown_score, beam=beam, nbest=nbest,
                    token_floor=token_floor)
        known = None
        if language_model is not None:
            known = (language_model if isinstance(language_model, LanguageModel) else LanguageModel(language_model))._live()
            o.language_model = known.address
        lexicon = None if words is None else [bytes_of(w, "words") for w in words]
        if lexicon is not None:
            o.words, o.word_count = texts(lexicon), len(lexicon)
        if known_words is not None:
            listed = [bytes_of(w, "known_words") for w in known_words]
            o.known_words, o.known_word_count = texts(listed), len(listed)
        o.sentence_begin = o.sentence_end = int(sentence)
        hot, o.hot_word_count = _hot_words(hot_words, hot_word_weight)
        if hot is not None:
            o.hot_words = hot
        self._vocabulary = as_vocabulary(vocabulary)._live()
        super().__init__(make(lib.decoder_new, lib.decoder_free, self._vocabulary, ctypes.byref(o)))
        del known  # it was needed until now

    @classmethod
    def from_pretrained(cls, folder: Path, **options: Any) -> "Decoder":
        """Of a folder of Hugging Face: its vocabulary, and the model and weights in its language_model/, if there are
        any, as `rondo decode` takes them. Options are those of Decoder, and come before those of the folder."""
        return cls(Vocabulary(folder), **{**_language_model_of(pathlib.Path(folder)), **options})

    def with_hot_words(self, hot_words: HotWords, hot_word_weight: float = 5.0) -> "Decoder":
        """The same with other hot words, sharing the rest; for one utterance or stream."""
        hot, count = _hot_words(hot_words, hot_word_weight)
        other = Decoder.__new__(Decoder)
        other._vocabulary = self._vocabulary
        Handle.__init__(other, make(lib.decoder_with_hot_words, lib.decoder_free, self._live(), hot, count))
        return other

    @property
    def warnings(self) -> list[str]:
        """What is allowed and probably not meant, a sentence each."""
        found: list[str] = []
        decoder = self._live()
        while (sentence := lib.decoder_warning(decoder, len(found))) is not None:
            found.append(text_of(sentence))
        return found

    def decode(self, scores: Array, *, frame_seconds: float = 1.0) -> Result:
        """The text of scores [frames, classes], logits or log-probabilities."""
        return _decode(self._vocabulary, self._live(), scores, frame_seconds)

    def decode_batch(self, scores: Union[Array, Sequence[Array]], lengths: Optional[Array] = None, *,
                     frame_seconds: float = 1.0, threads: Optional[int] = None) -> list[Result]:
        """The texts of several: a list of [frames, classes], or [sequences, frames, classes] with their lengths."""
        return _decode_batch(self._vocabulary, self._live(), scores, lengths, frame_seconds, threads)


def unknown_score_of(offset: float, alpha: float) -> float:
    """What pyctcdecode makes of unk_score_offset: a base-10 logarithm that alpha weighs."""
    return alpha * math.log(10) * offset


def _language_model_of(folder: pathlib.Path) -> dict[str, Any]:
    inside = folder / "language_model"
    if not inside.is_dir():
        return {}
    models = sorted(p for p in inside.iterdir() if p.is_file() and p.name not in ("attrs.json", "unigrams.txt"))
    if len(models) != 1:
        names = ", ".join(p.name for p in models) or "none"
        raise InvalidError(f"{inside}: expected one language model, found {names}")
    options: dict[str, Any] = {"language_model": LanguageModel(models[0])}
    unigrams = inside / "unigrams.txt"
    if unigrams.exists():
        try:
            options["known_words"] = unigrams.read_text(encoding="utf-8").split()
        except ValueError as e:
            raise InvalidError(f"{unigrams}: {e}") from e
    attributes = inside / "attrs.json"
    if not attributes.exists():
        return options
    try:
        given = json.loads(attributes.read_text(encoding="utf-8"))
        options["lm_weight"] = float(given.get("alpha", 0.5))
        options["word_score"] = float(given.get("beta", 1.5))
        options["unknown_score"] = unknown_score_of(float(given.get("unk_score_offset", -10)), options["lm_weight"])
        options["sentence"] = bool(given.get("score_boundary", True))
    except (ValueError, TypeError, AttributeError) as e:
        raise InvalidError(f"{attributes}: {e}") from e
    return options


def _decode(vocabulary: Owner, decoder: Optional[Owner], scores: Array, frame_seconds: float) -> Result:
    m, _kept = matrix_of(scores, ("frames", "classes"), "scores")
    return result_from(lib.decode, vocabulary, decoder, ctypes.byref(m), double(frame_seconds, "frame_seconds"))


def _decode_batch(vocabulary: Owner, decoder: Optional[Owner], scores: Union[Array, Sequence[Array]],
                  lengths: Optional[Array], frame_seconds: float, threads: Optional[int]) -> list[Result]:
    if isinstance(scores, (list, tuple)):
        if lengths is not None:
            raise InvalidError("lengths: given with a list of scores, which have lengths of their own")
        each = list(scores)
    else:
        batch = shaped(as_array(scores, "scores"), ("sequences", "frames", "classes"), "scores")
        given = [batch.shape[1]] * len(batch) if lengths is None else integers(lengths, "lengths").tolist()
        if len(given) != len(batch):
            raise InvalidError(f"lengths: {len(given)}, expected {len(batch)}")
        for i, length in enumerate(given):
            if not 0 <= length <= batch.shape[1]:
                raise InvalidError(f"lengths[{i}]: {length}, expected 0 to {batch.shape[1]}")
        each = [batch[i, :length] for i, length in enumerate(given)]
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda one: _decode(vocabulary, decoder, one, frame_seconds), each))


def as_vocabulary(given: Union[Vocabulary, Sequence[str], Path]) -> Vocabulary:
    """A vocabulary, or one of these tokens."""
    return given if isinstance(given, Vocabulary) else Vocabulary(given)


def _search(vocabulary: Vocabulary, options: dict[str, Any]) -> Optional[Owner]:
    return None if options == {"beam": 0} else Decoder(vocabulary, **options)._live()


def decode(scores: Array, vocabulary: Union[Vocabulary, Sequence[str], Path], *, frame_seconds: float = 1.0,
           **options: Any) -> Result:
    """The text of scores [frames, classes], logits or log-probabilities of any CTC model.

    By a search with the options of Decoder; with beam=0, by the best class of each frame. A Decoder is faster where there
    are many to decode.
    """
    known = as_vocabulary(vocabulary)
    return _decode(known._live(), _search(known, options), scores, frame_seconds)


def decode_batch(scores: Union[Array, Sequence[Array]], vocabulary: Union[Vocabulary, Sequence[str], Path],
                 lengths: Optional[Array] = None, *, frame_seconds: float = 1.0, threads: Optional[int] = None,
                 **options: Any) -> list[Result]:
    """decode() of a list of [frames, classes], or of [sequences, frames, classes] with their lengths, in threads."""
    known = as_vocabulary(vocabulary)
    return _decode_batch(known._live(), _search(known, options), scores, lengths, frame_seconds, threads)
