"""A tokenizer that samples: wraps any tokenizer object and behaves like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robustok.errors import RobustokError
from robustok.runtime.environment import import_lock
from robustok.samplers import Sampler, Spec
from robustok.tokenizer.tokenizers_api import require_parts


def stochastic(
    tokenizer: Any, scheme: str | Spec | Sampler, *, seed: int, roles: Sequence[str] = ("user",)
) -> Any:
    """Wrap a tokenizer, so that it draws the tokenization of every text that it encodes.

    >>> import robustok as rt
    >>> drawing = rt.stochastic(tokenizer, "uniform", seed=0)
    >>> drawing.encode("hello world").tokens
    ['h', 'e', 'l', 'l', 'o', 'Ġwor', 'ld']
    >>> drawing.set_epoch(1)
    >>> drawing.encode("hello world").tokens
    ['hello', 'Ġ', 'w', 'or', 'l', 'd']
    >>> drawing.eval().encode("hello world").tokens
    ['hello', 'Ġworld']

    Args:
        tokenizer: a transformers tokenizer with a Rust backend ("fast"), a
            ``tokenizers.Tokenizer``, a SentencePiece processor or a tiktoken ``Encoding``. It is
            not changed. One of the ready-made tokenizers of ``tokenizers``, such as
            ``ByteLevelBPETokenizer``, is copied to a ``Tokenizer``.
        scheme: a spec, or a sampler of the tokenizer's vocabulary.
        seed: any integer.
        roles: roles of chat messages whose contents ``apply_chat_template`` draws; the template and
            the messages of all other roles stay canonical.

    The result has the methods of ``tokenizer``, and ``train()``, ``eval()``, ``set_epoch(epoch)``
    and ``sample_encode(text, n)``. Draws are on at first. Truncation, special tokens and padding
    are the tokenizer's, applied to the drawn ids. ``tokenizer`` and the result share one backend,
    so tokens added to either are in both.

    A draw depends on ``seed``, the epoch, and the canonical ids of the text (of each run between
    special tokens: its ids and its number), and on nothing else. So the same text has the same ids
    within an epoch, and ``set_epoch`` must be called with the number of the epoch or of the step
    for new ones. Worker processes that are forked, or spawned by multiprocessing, follow
    ``set_epoch``, ``train`` and ``eval``.

    Raises RobustokError for a tokenizer that cannot be read, such as a slow one of transformers,
    for one that has draws of its own on, as BPE-dropout, and for an unknown scheme.
    """
    if hasattr(tokenizer, "wrapped_tokenizer"):
        raise RobustokError("this tokenizer is stochastic already: wrap its wrapped_tokenizer")
    package = type(tokenizer).__module__.split(".")[0]
    if getattr(tokenizer, "backend_tokenizer", None) is not None:
        with import_lock:
            from robustok.integrations.stochastic.fast import stochastic_pretrained

        wrapper = stochastic_pretrained(tokenizer, scheme, seed, roles)
    elif package == "tokenizers":
        require_parts("rt.stochastic of a tokenizer of the tokenizers library")
        with import_lock:
            from tokenizers import Tokenizer

            from robustok.integrations.stochastic.fast import StochasticTokenizer

        if not isinstance(tokenizer, Tokenizer) and hasattr(tokenizer, "to_str"):
            tokenizer = Tokenizer.from_str(tokenizer.to_str())
        wrapper = StochasticTokenizer(tokenizer, scheme, seed)
    elif package in ("tiktoken", "sentencepiece"):
        with import_lock:
            from robustok.integrations.stochastic import switch as kinds

        kind = kinds.StochasticEncoding if package == "tiktoken" else kinds.StochasticProcessor
        wrapper = kind(tokenizer, scheme, seed)
    else:
        raise RobustokError(
            f"cannot make a {type(tokenizer).__name__} stochastic: pass a transformers tokenizer "
            "with a Rust backend (is_fast), or a tokenizers, tiktoken or sentencepiece object"
        )
    _ = wrapper.draws.sampler  # raises errors of the tokenizer and the scheme here
    return wrapper
