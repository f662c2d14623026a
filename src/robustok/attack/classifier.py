"""Objective on a sequence classifier of transformers: log-odds of every label but some.

Encoders read a text in both directions, so candidates share no prefix: a call costs as many tokens
as the candidates have together, where the prefix tree of a causal model costs a fraction of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

from robustok.errors import RobustokError, nearest
from robustok.evaluation.questions import (
    Ids,
    check_max_candidate_length,
    max_candidate_length,
    plain_ids,
)
from robustok.models.devices import default_device
from robustok.models.load import check_model, load_config, loading
from robustok.ragged import Ragged
from robustok.runtime.hub import hub_arguments
from robustok.scoring.engine import not_a_number
from robustok.scoring.forward import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MAX_BATCH_TOKENS = 4096


class ClassifierLogit:
    """Log-odds that a sequence classifier gives none of the labels ``flagged``.

    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> config = BertConfig(vocab_size=vocab.size, intermediate_size=16, num_labels=2, **shape)
    >>> classifier = BertForSequenceClassification(config)
    >>> objective = ClassifierLogit(classifier, [1])
    >>> objective(vocab.encode_batch(texts)).shape
    (2,)

    Args:
        model: any ``AutoModelForSequenceClassification`` of transformers, encoder or causal.
        flagged: labels to avoid, at least one: numbers, or names of ``model.config.id2label``.
        flag_probability: least joint probability of these labels at which a text is flagged,
            between 0 and 1, by default 0.5. The attack succeeds below it.
        prefix: ids before every candidate, such as the classifier's start token.
        suffix: ids after every candidate, such as its separator; see :func:`special_frame`.

    A model with one output, or with several that do not exclude each other
    (``problem_type="multi_label_classification"``), is read through a sigmoid: the score is minus
    the greatest logit of ``flagged``.

    Candidates of equal length share a forward pass without padding. A causal classifier without
    ``pad_token_id`` reads one candidate at a time.

    Raises RobustokError for an unknown label and for labels that leave no other.
    """

    def __init__(
        self,
        model: Any,
        flagged: Sequence[int | str],
        *,
        flag_probability: float = 0.5,
        prefix: Ids | None = None,
        suffix: Ids | None = None,
    ) -> None:
        self.model, self.prefix, self.suffix = model, prefix, suffix
        self.flagged = [_label_number(model, label) for label in flagged]
        count = int(model.config.num_labels)
        kind = getattr(model.config, "problem_type", None)
        self.sigmoid = count == 1 or kind == "multi_label_classification"
        if not self.flagged or (not self.sigmoid and len(set(self.flagged)) == count):
            raise RobustokError(f"give at least one flagged label of {count}, and leave another")
        self.name, self.threshold = "classifier", log_odds(flag_probability)
        self.max_length = max_candidate_length(model, [], prefix, suffix)
        if self.max_length is not None:
            self.max_length -= _reserved_positions(model)
        check_max_candidate_length(model, self.max_length)

    def __call__(self, rows: Ragged) -> np.ndarray:
        """The log-odds of each candidate, float64 [candidates]."""
        logits = self.logits(rows)
        flagged = logits[:, self.flagged]
        if self.sigmoid:
            return -flagged.max(axis=1)
        others = np.delete(logits, self.flagged, axis=1)
        return np.logaddexp.reduce(others, axis=1) - np.logaddexp.reduce(flagged, axis=1)

    def logits(self, rows: Ragged) -> np.ndarray:
        """The classifier's logits of the candidates ``rows``, float64 [candidates, labels].

        Raises RobustokError for one that is not a finite number.
        """
        before, after = plain_ids(self.prefix), plain_ids(self.suffix)
        whole = [[*before, *row.tolist(), *after] for row in rows]
        lengths = np.array([len(row) for row in whole])
        result = np.empty((len(whole), int(self.model.config.num_labels)))
        with quiet(self.model):
            for length in np.unique(lengths).tolist():
                members = np.flatnonzero(lengths == length)
                size = max(1, _MAX_BATCH_TOKENS // max(1, length))
                size = 1 if self.model.config.pad_token_id is None else size
                for begin in range(0, len(members), size):
                    chosen = members[begin : begin + size].tolist()
                    ids = torch.tensor([whole[i] for i in chosen], device=self.model.device)
                    output = self.model(input_ids=ids, attention_mask=torch.ones_like(ids))
                    result[chosen] = output.logits.double().cpu().numpy()
        wrong = np.flatnonzero(~np.isfinite(result).all(axis=1))
        if len(wrong):
            raise not_a_number(f"candidate {wrong[0]}", "logit")
        return result


def load_classifier(path_or_name: str | Path) -> Any:
    """Load a sequence classifier of transformers, in evaluation mode.

    >>> from transformers import LlamaConfig, LlamaForSequenceClassification
    >>> shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> config = LlamaConfig(vocab_size=vocab.size, intermediate_size=16, **shape)
    >>> LlamaForSequenceClassification(config).save_pretrained("runs/classifier")
    >>> load_classifier("runs/classifier").config.num_labels
    2

    Args:
        path_or_name: a folder, or a hub name with or without ``@revision``.

    Raises RobustokError where there is no such model, and where it is no classifier.
    """
    check_model(path_or_name)
    name, where = hub_arguments(path_or_name)
    config = load_config(path_or_name)
    if not any("SequenceClassification" in a for a in config.architectures or ()):
        raise RobustokError(f"'{path_or_name}' is no sequence classifier: give one that is")
    with loading("classifier", path_or_name):
        model: Any = AutoModelForSequenceClassification.from_pretrained(
            name, use_safetensors=True, **where
        )
    return model.to(default_device()).eval()


def special_frame(tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """The special tokens that a tokenizer puts before and after a text, as two int32 arrays.

    >>> from transformers import PreTrainedTokenizerFast
    >>> prefix, suffix = special_frame(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    >>> len(prefix), len(suffix)
    (0, 0)

    Args:
        tokenizer: a tokenizer of transformers.

    Raises RobustokError where the special tokens change how the text is tokenized.
    """
    inner = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a", add_special_tokens=True)
    for begin in range(len(whole) - len(inner) + 1):
        if whole[begin : begin + len(inner)] == inner:
            after = whole[begin + len(inner) :]
            return np.asarray(whole[:begin], np.int32), np.asarray(after, np.int32)
    raise RobustokError("the tokenizer's special tokens change the text: give prefix and suffix")


def log_odds(flag_probability: float) -> float:
    """Least log-odds of passing a classifier that flags from ``flag_probability`` on."""
    if not 0 < flag_probability < 1:
        raise RobustokError(f"flag_probability {flag_probability} is not between 0 and 1")
    return float(np.log1p(-flag_probability) - np.log(flag_probability))


def _reserved_positions(model: PreTrainedModel) -> int:
    """Positions before that of the first token: RoBERTa counts on from its padding token's."""
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else padding + 1


def _label_number(model: Any, label: int | str) -> int:
    names = {str(name): int(number) for number, name in (model.config.id2label or {}).items()}
    number = names.get(label) if isinstance(label, str) else int(label)
    if number is None:
        raise RobustokError(f"unknown label '{label}': {nearest(str(label), list(names))}")
    if not 0 <= number < int(model.config.num_labels):
        raise RobustokError(f"label {number} of {model.config.num_labels}: give the number of one")
    return number
