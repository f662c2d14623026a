"""Attacks as JSON Lines, and their replay against another model or an OpenAI-compatible server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.checks import check_ids
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids
from robustok.files import json_lines, write_rows
from robustok.ragged import Ragged
from robustok.redteam.attacks import Prompt, PromptAttack
from robustok.redteam.objective import Objective

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary


@dataclass(frozen=True)
class AttackRecord:
    """One attack, complete enough to be replayed: a row of a file of attacks.

    >>> AttackRecord("a", "hi", [5], [1], "", [], [], {}).lengths
    [1]

    Args:
        key: name of the prompt.
        text: the prompt.
        ids: the attacked tokenization, a list of int.
        lengths: number of bytes of each token of ``ids``.
        vocabulary: fingerprint of the vocabulary that the ids belong to.
        prefix: ids before the prompt, such as those of a chat template.
        suffix: ids after it.
        fields: further fields of the prompt, such as ``target``.
        canonical_ids: the canonical tokenization of the prompt.
        objective: name of what was maximized.
        settings: the attack's settings as a string.
        seed: seed of the attack.
        score: score of ``ids`` on the attacked model.
        canonical_score: score of the canonical tokenization on it.
        success: whether the attack succeeded; None where the objective has no threshold.
    """

    key: str
    text: str
    ids: list[int]
    lengths: list[int]
    vocabulary: str
    prefix: list[int]
    suffix: list[int]
    fields: dict[str, Any]
    canonical_ids: list[int] = field(default_factory=list)
    objective: str = ""
    settings: str = ""
    seed: int = 0
    score: float = 0.0
    canonical_score: float = 0.0
    success: bool | None = None


def as_records(
    vocab: Vocabulary,
    attacks: Sequence[PromptAttack],
    *,
    prompts: Sequence[Prompt] = (),
    prefix: Ids | None = None,
    suffix: Ids | None = None,
) -> list[AttackRecord]:
    """Attacks as records that can be written and replayed.

    >>> from robustok.redteam import as_objective, attack_prompt
    >>> objective = as_objective(lambda rows: rows.lengths, name="length")
    >>> as_records(vocab, [attack_prompt(vocab, "hello", objective, seed=0)])[0].text
    'hello'

    Args:
        vocab: the vocabulary of the ids.
        attacks: the attacks.
        prompts: the attacked prompts, whose fields are kept; by default none.
        prefix: ids before every prompt; by default none.
        suffix: ids after every prompt; by default none.
    """
    fields = {prompt.key: prompt.fields for prompt in prompts}
    around = [[] if ids is None else [int(i) for i in ids] for ids in (prefix, suffix)]
    records = []
    for attack in attacks:
        lengths = [len(vocab.tokens[i]) for i in attack.ids]
        canonical = np.asarray(vocab.encode(attack.text)).tolist()
        records.append(
            AttackRecord(
                attack.key, attack.text, attack.ids, lengths, vocab.fingerprint,
                around[0], around[1], fields.get(attack.key, {}), canonical, attack.objective,
                attack.settings, attack.seed, attack.score, attack.canonical_score, attack.success,
            )
        )  # fmt: skip
    return records


def write_attacks(
    path: str | Path,
    vocab: Vocabulary,
    attacks: Sequence[PromptAttack],
    *,
    prompts: Sequence[Prompt] = (),
    prefix: Ids | None = None,
    suffix: Ids | None = None,
) -> None:
    """Write attacks as JSON Lines.

    >>> from robustok.redteam import as_objective, attack_prompt
    >>> objective = as_objective(lambda rows: rows.lengths, name="length")
    >>> write_attacks("a.jsonl", vocab, [attack_prompt(vocab, "hello", objective, seed=0)])
    >>> read_attacks("a.jsonl")[0].text
    'hello'

    Args:
        path: the file, written as a whole.
        vocab: the vocabulary of the ids.
        attacks: the attacks.
        prompts: the attacked prompts, whose fields are kept; by default none.
        prefix: ids before every prompt; by default none.
        suffix: ids after every prompt; by default none.
    """
    records = as_records(vocab, attacks, prompts=prompts, prefix=prefix, suffix=suffix)
    write_rows(Path(path), [asdict(record) for record in records])


def read_attacks(path: str | Path) -> list[AttackRecord]:
    """The attacks of a file that :func:`write_attacks` wrote.

    >>> from robustok.redteam import as_objective, attack_prompt
    >>> objective = as_objective(lambda rows: rows.lengths, name="length")
    >>> write_attacks("b.jsonl", vocab, [attack_prompt(vocab, "hello", objective, seed=0)])
    >>> len(read_attacks("b.jsonl"))
    1

    Args:
        path: the file.

    Raises RobustokError, with the line, for a row that is no attack.
    """
    records = []
    for number, row in json_lines(Path(path)):
        try:
            record = AttackRecord(**row)
            for ids in (record.ids, record.prefix, record.suffix):
                if check_ids(ids).min(initial=0) < 0:
                    raise ValueError("an id is negative")
            if not record.ids or len(record.lengths) != len(record.ids):
                raise ValueError("lengths must be given for each of at least one id")
        except (TypeError, ValueError, RobustokError) as error:
            raise RobustokError(f"{path}:{number}: not an attack: {error}") from None
        records.append(record)
    if not records:
        raise RobustokError(f"{path} has no attacks: write some with robustok attack --out")
    return records


def carried(record: AttackRecord, vocab: Vocabulary) -> np.ndarray:
    """The attack's tokenization in any vocabulary, int32.

    >>> from robustok.redteam import as_objective, attack_prompt
    >>> objective = as_objective(lambda rows: rows.lengths, name="length")
    >>> write_attacks("c.jsonl", vocab, [attack_prompt(vocab, "hello", objective, seed=0)])
    >>> vocab.decode(carried(read_attacks("c.jsonl")[0], vocab))
    'hello'

    Args:
        record: the attack.
        vocab: the vocabulary to carry it to.

    In another vocabulary than the attacked one, the text is cut at the same bytes. A part that is
    no token there is cut into the longest tokens from its left.

    Raises RobustokError where the other vocabulary normalizes the text to other bytes.
    """
    if record.vocabulary == vocab.fingerprint:
        return check_ids(record.ids, vocab.size)
    data = vocab.decode_bytes(vocab.encode(record.text))
    if sum(record.lengths) != len(data):
        raise RobustokError(
            f"attack '{record.key}' cuts {sum(record.lengths)} bytes, but the other vocabulary "
            f"reads its text as {len(data)}: attack that model itself"
        )
    by_bytes = vocab.derived("ids by bytes", lambda: _ids_by_bytes(vocab))
    ids: list[int] = []
    begin = 0
    for length in record.lengths:
        part = data[begin : begin + length]
        token = by_bytes.get(part)
        ids.extend(_split(part, by_bytes) if token is None else [token])
        begin += length
    return np.asarray(ids, np.int32)


def _ids_by_bytes(vocab: Vocabulary) -> dict[bytes, int]:
    return {spelled: i for i, spelled in enumerate(vocab.tokens) if i not in vocab.special}


def _split(part: bytes, by_bytes: dict[bytes, int]) -> list[int]:
    """The longest tokens of a part from its left."""
    ids, begin = [], 0
    while begin < len(part):
        end = next((e for e in range(len(part), begin, -1) if part[begin:e] in by_bytes), None)
        if end is None:
            raise RobustokError(f"the other vocabulary has no token for byte {part[begin]:#x}")
        ids.append(by_bytes[part[begin:end]])
        begin = end
    return ids


@dataclass(frozen=True)
class Replay:
    """Scores of one attack on another model.

    >>> Replay("a", [5], -1.0, 2.0, True).score
    2.0

    Args:
        key: name of the prompt.
        ids: the tokenization in that model's vocabulary, a list of int.
        canonical_score: score of the canonical tokenization.
        score: score of the attacked one.
        success: whether ``score`` exceeds the objective's threshold; None without a threshold.
    """

    key: str
    ids: list[int]
    canonical_score: float
    score: float
    success: bool | None


def replay(
    records: Sequence[AttackRecord],
    vocab: Vocabulary,
    objective: Callable[[Prompt], Objective],
) -> list[Replay]:
    """Score attacks on another model, without any search.

    >>> from robustok.redteam import as_objective, attack_prompt
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> write_attacks("d.jsonl", vocab, [attack_prompt(vocab, "hello", length, seed=0)])
    >>> replay(read_attacks("d.jsonl"), vocab, lambda prompt: length)[0].canonical_score
    1.0

    Args:
        records: the attacks, as :func:`read_attacks` gives them.
        vocab: the other model's vocabulary.
        objective: the objective of a prompt on the other model.

    Raises RobustokError as :func:`carried`.
    """
    results = []
    for record in records:
        one = objective(Prompt(record.key, record.text, record.fields))
        ids = carried(record, vocab)
        canonical = np.asarray(vocab.encode(record.text), np.int32)
        scores = one(Ragged.from_rows([canonical, ids])).tolist()
        success = None if one.threshold is None else scores[1] > one.threshold
        results.append(Replay(record.key, ids.tolist(), scores[0], scores[1], success))
    return results


def complete_on_server(
    url: str,
    model: str,
    ids: Sequence[int],
    *,
    max_tokens: int = 64,
    api_key: str | None = None,
    timeout: float = 120.0,
) -> str:
    """The completion that an OpenAI-compatible server gives to a prompt of token ids.

    >>> complete_on_server("http://localhost:8000/v1", "m", [5, 6])  # doctest: +SKIP
    ' the revolution'

    Args:
        url: base URL of the API, such as ``http://localhost:8000/v1``.
        model: name of the model on the server.
        ids: the whole prompt, chat template included, in the vocabulary of the server's model.
        max_tokens: greatest number of generated tokens.
        api_key: sent as a bearer token; by default none.
        timeout: seconds to wait for the answer.

    The prompt is sent greedily decoded (temperature 0) to ``/completions``.

    Raises RobustokError for an unreachable server and for an answer that is no completion.
    """
    if not url.startswith(("http://", "https://")):
        raise RobustokError(f"server '{url}' is no URL: give http://HOST:PORT/v1")
    body = {"model": model, "prompt": [int(i) for i in ids], "max_tokens": max_tokens,
            "temperature": 0}  # fmt: skip
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(
        f"{url.rstrip('/')}/completions", json.dumps(body).encode(), headers
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            answer = json.load(response)
        return str(answer["choices"][0]["text"])
    except urllib.error.HTTPError as error:
        reason = error.read(500).decode("utf-8", "replace").replace("\n", " ")
        raise RobustokError(f"the server answered {error.code}: {reason}") from None
    except (OSError, ValueError) as error:
        raise RobustokError(f"no answer from {url}: {error}") from None
    except (KeyError, IndexError, TypeError):
        raise RobustokError(f"{url} gave no completion: is it OpenAI-compatible?") from None
