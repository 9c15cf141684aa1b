"""rondo: recognition with CTC/LSTM models, decoding, alignment, the CTC loss, and training.

    import rondo
    print(rondo.Recognizer("model.safetensors").transcribe("a.wav"))

Arrays are numpy's, or anything that DLPack shows numpy. The library works without Python's lock, so threads compute at
once. What it cannot do is a rondo.Error, with a sentence that tells why. `python -m rondo` is the command.
"""

from ._library import Error, InvalidError, NoMemoryError, lib, text_of
from ._result import Piece, Result
from .alignment import Alignment, TokenSpan, align, forced_align, merge_tokens
from .ctc import CtcLoss, ctc_loss
from .decoding import Decoder, LanguageModel, Vocabulary, decode, decode_batch
from .pyctcdecode import build_ctcdecoder
from .recognizer import ModelInfo, Partial, Recognizer, Stream, StreamGroup
from .session import Session, SessionResult
from .training import Training, TrainingStep, Validation, train

__version__: str = text_of(lib.version())

__all__ = [
    "Alignment", "CtcLoss", "Decoder", "Error", "InvalidError", "LanguageModel", "ModelInfo", "NoMemoryError", "Partial",
    "Piece", "Recognizer", "Result", "Session", "SessionResult", "Stream", "StreamGroup", "TokenSpan", "Training",
    "TrainingStep", "Validation", "Vocabulary", "align", "build_ctcdecoder", "ctc_loss", "decode", "decode_batch", "forced_align",
    "merge_tokens", "train",
]
