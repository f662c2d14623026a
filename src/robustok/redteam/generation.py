"""Answers to the canonical and to the attacked prompt, for a judge or a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.display import Progress
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids
from robustok.models.load import max_length_of

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

Judge = Callable[[str, str], Any]


@dataclass(frozen=True)
class Answers:
    """What a model answers to a prompt, tokenized canonically and by an attack.

    >>> Answers("a", "hi", "hello", "bye").as_row()["attacked"]
    'bye'

    Args:
        key: name of the prompt.
        text: the prompt.
        canonical: answer to its canonical tokenization.
        attacked: answer to the attacked one.
        canonical_verdict: what the judge gave for ``canonical``; None without a judge.
        attacked_verdict: what it gave for ``attacked``.
        seed: seed of the attack; None where it is unknown.
    """

    key: str
    text: str
    canonical: str
    attacked: str
    canonical_verdict: float | None = None
    attacked_verdict: float | None = None
    seed: int | None = None

    def as_row(self) -> dict[str, Any]:
        """A plain dictionary, ready for JSON."""
        return asdict(self)


def generate(
    model: Any,
    vocab: Vocabulary,
    ids: Ids,
    *,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_new_tokens: int = 64,
) -> str:
    """The model's greedy answer to one tokenization.

    >>> isinstance(generate(model, vocab, vocab.encode("hello"), max_new_tokens=2), str)
    True

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        ids: the tokenization of the prompt.
        prefix: ids before it, such as those of a chat template; by default none.
        suffix: ids after it; by default none.
        max_new_tokens: greatest number of generated tokens, at least 1.

    Generation stops at the model's end tokens. Special tokens are left out of the answer.

    Raises RobustokError where prompt and answer do not fit the model's longest input.
    """
    import torch

    from robustok.scoring.forward import quiet

    parts = [np.asarray([] if p is None else p, np.int64) for p in (prefix, ids, suffix)]
    whole = np.concatenate(parts)
    limit = max_length_of(model)
    if limit is not None and len(whole) + max_new_tokens > limit:
        raise RobustokError(
            f"{len(whole)} tokens and {max_new_tokens} to generate are more than the model's "
            f"{limit} positions: shorten the prompt or generate fewer"
        )
    given = torch.as_tensor(whole, device=model.device)[None]
    end = getattr(model.generation_config, "eos_token_id", None)
    pad = end[0] if isinstance(end, list) else end
    with quiet(model):
        output = model.generate(
            input_ids=given, attention_mask=torch.ones_like(given), do_sample=False,
            max_new_tokens=max_new_tokens, pad_token_id=0 if pad is None else pad,
            temperature=None, top_p=None, top_k=None,
        )  # fmt: skip
    answer = output[0, len(whole) :].tolist()
    kept = [i for i in answer if i < len(vocab.tokens) and i not in vocab.special]
    return vocab.decode_bytes(kept).decode("utf-8", "replace")


def generate_answers(
    model: Any,
    vocab: Vocabulary,
    attacks: Sequence[Any],
    *,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_new_tokens: int = 64,
    judge: Judge | None = None,
    progress: Progress | None = None,
) -> list[Answers]:
    """Answers to the canonical and the attacked tokenization of each prompt.

    >>> from robustok.redteam import as_objective, attack_prompt
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> attacks = [attack_prompt(vocab, "hello", length, seed=0)]
    >>> judge = lambda prompt, answer: len(answer) > 3
    >>> generate_answers(model, vocab, attacks, judge=judge, max_new_tokens=2)[0].key
    'hello'

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        attacks: the attacks, with ``key``, ``text``, ``ids`` and ``seed``.
        prefix: ids before every prompt; by default none.
        suffix: ids after every prompt; by default none.
        max_new_tokens: greatest number of generated tokens, at least 1.
        judge: called with (prompt, answer); returns a number or a truth value. By default none.
        progress: called with (prompts done, prompts).

    Raises RobustokError as :func:`generate`, and where the judge gives no number.
    """
    results = []
    for attack in attacks:
        canonical, attacked = (
            generate(model, vocab, ids, prefix=prefix, suffix=suffix,
                     max_new_tokens=max_new_tokens)
            for ids in (vocab.encode(attack.text), attack.ids)
        )  # fmt: skip
        before, after = (judged(judge, attack.text, answer) for answer in (canonical, attacked))
        results.append(
            Answers(attack.key, attack.text, canonical, attacked, before, after, attack.seed)
        )
        if progress is not None:
            progress(len(results), len(attacks))
    return results


def judged(judge: Judge | None, text: str, answer: str) -> float | None:
    """The number that a judge gives to an answer; None without a judge."""
    if judge is None:
        return None
    verdict = judge(text, answer)
    try:
        return float(verdict)
    except (TypeError, ValueError):
        raise RobustokError(
            f"the judge gave {verdict!r}, which is no number: return a number or True or False"
        ) from None
