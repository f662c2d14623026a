"""Record what robustok computes and compare it with an earlier record, before and after a change.

    python tests/freeze.py record FILE.json [--only PART]
    python tests/freeze.py compare FILE.json [--only PART]

Only the public interface is used (`robustok` and `python -m robustok`), so one file runs on two
source trees: PYTHONPATH decides which tree is measured. The parts are `draws`, `guard`, `commands`,
`attack` and `study`. `compare` prints every difference and exits with 1 if there is one. A one-line
error or a report whose text changed is printed as "message changed" and is no difference.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import difflib
import hashlib
import itertools
import json
import lzma
import math
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Result fields that a change renamed: both names are compared as one.
RENAMED = {
    "train": "train_scheme",
    "query": "eval_scheme",
    "question": "eval_scheme",
    "queries": "eval_schemes",
}
VOLATILE = re.compile(
    r"(.*_)?(seconds|time|date|pid|host|hostname|elapsed|memory|rate)|created(_.*)?|(started|ended|"
    r"finished)(_.*)?|versions?|.*_version|robustok|python|platform|machine|devices?|packages|"
    r"commit|.*_per_second|seconds_.*|waiting"
)
DURATION = re.compile(r"\d[\d.,:]*\s?(s|sec|seconds|min|minutes|ms|[kMG]?B/s|[a-z]+/s)\b")
CLOSE = 1e-9  # relative difference of two numbers that is reported and is no failure
SHOWN = 30_000  # longest value kept for a diff, in characters
TOKENIZERS = ("gpt2", "llama3", "qwen3", "llama2", "internlm2")
DATA = Path(os.environ.get("ROBUSTOK_DATA", "../shared/data")).resolve()

SPECS = (
    "canonical", "characters",
    "stochastok(alpha=0)", "stochastok(alpha=0.1)", "stochastok(alpha=1)", "stochastok(alpha=3)",
    "stochastok(alpha=2, ways=3)", "stochastok(alpha=2, max_picks=3)",
    "stochastok-uniform(alpha=0)", "stochastok-uniform(alpha=0.1)",
    "stochastok-uniform(alpha=1)", "stochastok-uniform(alpha=3)",
    "stochastok-uniform(alpha=2, support=pairwise)",
    "uniform-k(alpha=0)", "uniform-k(alpha=0.1)", "uniform-k(alpha=1)", "uniform-k(alpha=3)",
    "uniform-k(k=3)", "uniform-k(k=40)", "uniform",
    "bpe-dropout(p=0)", "bpe-dropout(p=0.1)", "bpe-dropout(p=0.1, rule=hf)",
    "bpe-dropout(p=0.1, rule=sentencepiece)", "bpe-dropout(p=0.7)",
    "bpe-dropout(p=0.7, rule=hf)", "bpe-dropout(p=0.7, rule=sentencepiece)", "bpe-dropout(p=1)",
    "grampa(temperature=2, min_length=2)", "grampa(temperature=0.5)",
    "unigram(temperature=2)", "unigram(temperature=0.2)",
    "maxmatch-dropout(p=0.3)", "maxmatch-dropout(p=0)",
    "mix(0.5 canonical, 0.5 uniform)", "mix(0.2 uniform-k(alpha=1), 0.8 stochastok(alpha=1))",
    "exactly(uniform, splits=0.5)", "exactly(uniform, distance=1)",
    "exactly(uniform, length_ratio=1.5)", "exactly(stochastok(alpha=1), splits=1)",
)  # fmt: skip
SLOW = ("exactly(stochastok",)  # draws by rejection: only of short texts
SCHEDULES = ("stochastok(alpha=0->2)", "uniform-k(alpha=0.1->1)", "bpe-dropout(p=0->0.5)")
ENGLISH = (
    "which word starts with street or with house? The theater is there, isn't it? We'll see it. ",
    "Pick the one with 'a' in it: where, as, will, just. Answer: hello world and more words. ",
    "It rained all morning, so the garden is wet and the carry-over of half the rain was glad. ",
)
SENTENCES = [*ENGLISH, "naïve café мир 東京は夜 😀 12345 x=1; y=22\n\n\tfoo_bar.baz!foo ?!"]


class Recorder:
    """Entries by name: a digest, the value itself where it is short, and its kind."""

    def __init__(self, folders: dict[str, str] | None = None) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.folders = folders or {}

    def add(self, name: str, value: Any, kind: str = "value") -> None:
        """Record a JSON value; `kind` "message" is text that may change."""
        plain = normalized(self._without_folders(value))
        text = json.dumps(plain, ensure_ascii=False, sort_keys=True, default=str)
        entry: dict[str, Any] = {"kind": kind, "digest": sha256(text.encode())}
        if len(text) <= SHOWN:
            entry["value"] = plain
        self.entries[name] = entry

    def add_digest(self, name: str, *parts: bytes) -> None:
        self.entries[name] = {"kind": "digest", "digest": sha256(*parts)}

    def guarded(self, name: str, action: Callable[[], None]) -> None:
        """Run an action; its error becomes the entry."""
        import robustok as rt

        try:
            action()
        except rt.RobustokError as error:
            self.add(f"{name}/error", str(error), "message")
        except Exception as error:
            self.add(f"{name}/failure", f"{type(error).__name__}: {error}")

    def _without_folders(self, value: Any) -> Any:
        text = json.dumps(value, ensure_ascii=False, default=str)
        for folder, sign in self.folders.items():
            text = text.replace(folder, sign)
        return json.loads(text)


def sha256(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def normalized(value: Any) -> Any:
    """The value without volatile fields, with one name for a renamed field."""
    if isinstance(value, dict):
        result: dict[str, Any] = {}
        for name, entry in value.items():
            if VOLATILE.fullmatch(name):
                continue
            name = str(RENAMED.get(name, name))
            entry = normalized(entry)
            if name in result:  # a row with a scheme and a question
                entry = sorted([result[name], entry], key=str)
            result[name] = entry
        return result
    if isinstance(value, (list, tuple)):
        return [normalized(entry) for entry in value]
    return value


def rows_digest(rows: Any) -> tuple[bytes, bytes]:
    return (
        np.ascontiguousarray(rows.values, np.int32).tobytes(),
        np.ascontiguousarray(rows.offsets, np.int64).tobytes(),
    )


def ids_bytes(ids: Any) -> bytes:
    return np.ascontiguousarray(ids, np.int64).tobytes()


# --- tokenizers and texts ---------------------------------------------------------------------


def toy_tokenizer() -> Any:
    """Byte-level BPE of at most 700 tokens with two special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|end|>", "<|im_start|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    words = re.findall(r"\w+", " ".join(ENGLISH))  # and their beginnings and ends
    parts = [word[a:b] for word in words for a in (0, 1, 2) for b in (2, 3, 4, 5, 9)]
    texts = [*(text * 2 for text in SENTENCES), " ".join(parts), "\n".join(parts)]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def unigram_tokenizer() -> Any:
    """Unigram with scores: all bytes of the sentences, and prefixes and suffixes of words."""
    from tokenizers import Tokenizer, models

    text = "".join(SENTENCES)
    pieces = dict.fromkeys(sorted(set(text)))
    for word in re.findall(r" ?\w+", text):
        pieces |= dict.fromkeys(word[:n] for n in range(2, len(word) + 1))
        pieces |= dict.fromkeys(word[n:] for n in range(1, len(word) - 1))
    scores = [("<unk>", 0.0)]
    scores += [(piece, -2.0 - 5.0 / len(piece) - i % 7 / 10) for i, piece in enumerate(pieces)]
    return Tokenizer(models.Unigram(scores, 0, False))


def vocabularies() -> dict[str, Any]:
    import robustok as rt

    result = {"toy": toy_tokenizer(), "unigram": unigram_tokenizer()}
    vocabs = {name: rt.Vocabulary.load(tokenizer) for name, tokenizer in result.items()}
    for name in TOKENIZERS:
        path = DATA / "tokenizers" / name / "tokenizer.json"
        if path.exists():
            vocabs[name] = rt.Vocabulary.load(str(path))
        else:
            print(f"skipped: {path} is missing; set ROBUSTOK_DATA", file=sys.stderr)
    return vocabs


def corpus_lines(name: str, count: int) -> list[str]:
    path = DATA / "corpus" / f"{name}.jsonl.xz"
    if not path.exists():
        return []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in itertools.islice(file, count)]


def short_texts(name: str) -> list[str]:
    if name == "unigram":
        return [text.strip() for text in SENTENCES]
    hard = DATA / "corpus" / "hard_cases.jsonl"
    lines = hard.read_text(encoding="utf-8").splitlines() if hard.exists() else []
    texts = [json.loads(line)["text"] for line in lines]
    return [*SENTENCES, *(text for text in texts if len(text) <= 300)]


def long_texts(name: str) -> list[str]:
    """English of 20 KB, and Chinese prose and code of 4 KB each."""
    if name == "unigram":
        return ["".join(SENTENCES[:3]) * 12]
    english = "\n".join(corpus_lines("english_val", 30))[:20_000] or "".join(ENGLISH) * 70
    other = corpus_lines("multilingual_code", 345)
    chinese = "".join(text for text in other if "的" in text)[:1400]
    code = "".join(text for text in other if "return" in text or "def " in text)[:4000]
    return [text for text in (english, chinese, code) if text]


# --- part: draws ------------------------------------------------------------------------------


def record_draws(record: Recorder, folder: Path) -> None:
    for name, vocab in vocabularies().items():
        began = time.process_time()
        short, long = short_texts(name), long_texts(name)
        record.guarded(f"{name}/vocabulary", lambda: _vocabulary(record, name, vocab, short, long))  # noqa: B023
        for spec in SPECS:
            record.guarded(
                f"{name}/{spec}",
                lambda: _draws_of(record, f"{name}/{spec}", vocab, spec, short, long),  # noqa: B023
            )
        for spec in SCHEDULES:
            record.guarded(
                f"{name}/{spec}",
                lambda: _schedule(record, f"{name}/{spec}", vocab, spec, short[:8]),  # noqa: B023
            )
        record.guarded(f"{name}/lattice", lambda: _lattice(record, name, vocab, short))  # noqa: B023
        print(f"  {name}: {time.process_time() - began:.1f} s of processor time", file=sys.stderr)
    import robustok as rt

    record.add("schemes", list(rt.schemes()))


def _vocabulary(record: Recorder, name: str, vocab: Any, short: list[str], long: list[str]) -> None:
    rows = vocab.encode_batch(short + long)
    record.add_digest(f"{name}/encode", *rows_digest(rows))
    record.add_digest(f"{name}/encode one", *(ids_bytes(vocab.encode(text)) for text in short))
    record.add_digest(f"{name}/decode", *(vocab.decode_bytes(row) for row in rows))


def _draws_of(
    record: Recorder, name: str, vocab: Any, spec: str, short: list[str], long: list[str]
) -> None:
    import robustok as rt

    sampler = rt.sampler(spec, vocab)
    record.add(f"{name}/spec", sampler.spec)
    rows = sampler.sample_batch(short, seed=0, draws=2)
    record.add_digest(f"{name}/short", *rows_digest(rows))
    ids = vocab.encode_batch(short)
    keys = [7 * i + 3 for i in range(len(short))]
    drawn = sampler.sample_batch(ids, seed=2**40 + 5, draws=3, keys=keys, threads=2, epoch=4)
    record.add_digest(f"{name}/ids, keys, epoch", *rows_digest(drawn))
    if not spec.startswith(SLOW):
        drawn = sampler.sample_batch(long, seed=-1, threads=1)
        record.add_digest(f"{name}/long", *rows_digest(drawn))
        drawn = sampler.sample_batch(vocab.encode_batch(long), seed=9, threads=2)
        record.add_digest(f"{name}/long, ids", *rows_digest(drawn))
    keep = np.arange(len(ids.values)) % 3 == 0
    drawn = sampler.sample_batch(ids, seed=5, keep=keep)
    record.add_digest(f"{name}/kept", *rows_digest(drawn))
    single = [sampler.sample(text, seed=3) for text in short[:6]]
    single += [sampler.sample(text.encode(), seed=3, key=8) for text in short[:6]]
    single += [sampler.sample(vocab.encode(text), seed=3, epoch=2) for text in short[:6]]
    record.add_digest(f"{name}/one", *map(ids_bytes, single))
    record.guarded(
        f"{name}/log_prob",
        lambda: record.add(
            f"{name}/log_prob",
            [number(sampler.log_prob(row)) for row in itertools.islice(rows, 12)],
        ),
    )
    old = [vocab.encode(text) for text in short[:6]]
    record.add(f"{name}/distance", [rt.distance(vocab, v, rows[2 * i]) for i, v in enumerate(old)])


def number(value: float) -> float | str:
    """A number rounded to 1e-12; JSON has no infinity."""
    return round(value, 12) if math.isfinite(value) else str(value)


def _schedule(record: Recorder, name: str, vocab: Any, spec: str, texts: list[str]) -> None:
    import robustok as rt

    for progress in (0.0, 0.3, 1.0):
        sampler = rt.schedule(spec, vocab).at(progress)
        record.add(f"{name}/{progress}", sampler.spec)
        record.add_digest(
            f"{name}/{progress}/draws", *rows_digest(sampler.sample_batch(texts, seed=1))
        )


def _lattice(record: Recorder, name: str, vocab: Any, short: list[str]) -> None:
    import robustok as rt

    for i, text in enumerate([text for text in short if len(text.encode()) <= 100][:14]):
        lattice = vocab.lattice(text)
        counts: dict[str, Any] = {"total": str(lattice.count())}
        counts["distance"] = [str(lattice.count(distance=k)) for k in range(7)]
        ids = vocab.encode(text)
        segments = range(len(ids), len(ids) + 30, 3)
        counts["segments"] = [str(lattice.count(segments=s)) for s in segments]
        record.add(f"{name}/count {i}", counts)
        near = [rows_digest(lattice.neighbors(ids, distance=d)) for d in (1, 2, 3)]
        record.add_digest(f"{name}/neighbors {i}", *itertools.chain(*near))
        listed = [
            *lattice.enumerate(limit=200), *lattice.enumerate(distance=2, limit=200),
            *lattice.enumerate(segments=len(ids) + 1, limit=200),
        ]  # fmt: skip
        record.add_digest(f"{name}/enumerate {i}", *map(ids_bytes, listed))
    texts = [text for text in short if text.strip()][:20]
    for scheme in ("stochastok", "uniform-k"):
        found = rt.at_strength(scheme, vocab, texts, splits=0.5)
        record.add(f"{name}/at_strength {scheme}", str(found))


# --- part: guard ------------------------------------------------------------------------------


def record_guard(record: Recorder, folder: Path) -> None:
    vocabs = vocabularies()
    each = 100_000 // len(vocabs) + 1
    for name, vocab in vocabs.items():
        record.guarded(name, lambda: _guard(record, name, vocab, each))  # noqa: B023


def _guard(record: Recorder, name: str, vocab: Any, count: int) -> None:
    import robustok as rt

    if name == "unigram":
        pieces = [text[i : i + 30] for text in SENTENCES for i in range(len(text))]
        rows = perturbed(vocab, [pieces[i % len(pieces)] for i in range(count)])
    else:
        text = "".join(SENTENCES) * 40 + "".join(long_texts(name))
        starts = np.random.default_rng(1).integers(0, len(text) - 60, (count, 2))
        rows = perturbed(vocab, [text[a : a + 5 + int(b) % 50] for a, b in starts])
    guard = rt.Guard(vocab)
    single = hashlib.sha256()
    totals = {"canonical": 0, "distance": 0, "splits": 0, "findings": 0}
    for row in rows:
        verdict = guard.check(row)
        fields = verdict_fields(verdict)
        single.update(json.dumps(fields).encode())
        totals["canonical"] += fields[0]
        totals["distance"] += fields[1]
        totals["splits"] += fields[2]
        totals["findings"] += len(fields[4])
    record.add(f"{name}/totals of {len(rows)} rows", totals)
    record.entries[f"{name}/verdicts"] = {"kind": "digest", "digest": single.hexdigest()}
    if hasattr(guard, "check_batch"):
        batch = guard.check_batch(rows)
        columns = (batch.canonical, batch.distance, batch.splits)
        record.add_digest(
            f"{name}/batch", *map(ids_bytes, columns), *rows_digest(batch.repaired),
            *(json.dumps(verdict_fields(v)).encode() for v in itertools.islice(batch, 2000)),
        )  # fmt: skip
    for i in (0, 1, 2, 3, 4, 5, 6):
        record.add(f"{name}/verdict {i}", verdict_fields(guard.check(rows[i])))


def verdict_fields(verdict: Any) -> list[Any]:
    findings = [
        [f.kind, int(f.begin), int(f.end), list(map(int, f.ids)), list(map(int, f.canonical))]
        for f in verdict.findings
    ]
    return [
        bool(verdict.canonical), int(verdict.distance), int(verdict.splits),
        np.asarray(verdict.repaired).tolist(), findings,
    ]  # fmt: skip


def perturbed(vocab: Any, texts: list[str]) -> list[np.ndarray]:
    """Canonical rows, draws, cut rows, and rows with other, special and unknown ids."""
    import robustok as rt

    canonical = vocab.encode_batch(texts)
    drawn = rt.sampler("uniform", vocab).sample_batch(canonical, seed=0)
    near = rt.sampler("uniform-k(k=2)", vocab).sample_batch(canonical, seed=0)
    special = sorted(vocab.special) or [0]
    random = np.random.default_rng(0)
    rows = []
    for i in range(len(texts)):
        kind = i % 7
        row = np.array((canonical, drawn, near)[kind if kind < 3 else 0][i])
        at = int(random.integers(0, len(row) + 1))
        if kind == 3:
            row = np.array(drawn[i])[at:]
        elif kind == 4 and len(row):
            row[at % len(row)] = random.integers(0, vocab.size)
        elif kind == 5:
            row = np.insert(row, at, special[i % len(special)])
        elif kind == 6:
            row = np.insert(row, at, vocab.size + i % 3)
        rows.append(row.astype(np.int64))
    return rows


# --- toy files for commands -------------------------------------------------------------------

PROMPTS = [
    {"key": "a", "prompt": "happen, glad garden", "target": " rain", "choices": [" up", " rain"],
     "label": 0},
    {"key": "b", "prompt": "which word starts with street", "target": " up",
     "choices": [" up", " rain"], "label": 1},
]  # fmt: skip
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}answer:"


def make_files(folder: Path) -> None:
    """Tokenizer, tiny random models, questions, prompts, texts and ids."""
    import torch
    import transformers as tf

    torch.set_num_threads(1)
    tokenizer = toy_tokenizer()
    (folder / "tok").mkdir()
    tokenizer.save(str(folder / "tok" / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    wrapped = tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>"
    )
    shape: dict[str, Any] = {
        "vocab_size": size, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": 0,
        "max_position_embeddings": 512,
    }  # fmt: skip
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        config = tf.LlamaConfig(**shape, num_key_value_heads=2, bos_token_id=0)
        tf.LlamaForCausalLM(config).save_pretrained(folder / name)
        wrapped.save_pretrained(folder / name)
    torch.manual_seed(2)
    tf.BertForSequenceClassification(tf.BertConfig(**shape)).save_pretrained(folder / "classifier")
    wrapped.save_pretrained(folder / "classifier")
    shutil.copytree(folder / "one", folder / "chat")
    wrapped.chat_template = CHAT
    wrapped.save_pretrained(folder / "chat")
    words = ["street", "house", "rain", "garden", "half", "carry", "where", "theater"]
    items = [
        {"id": f"q{i}", "query": f"which word starts with '{words[i % 8][: 1 + i % 2]}'? Answer:",
         "choices": [f" {words[i % 8]}", f" {words[(i + 3) % 8]}"], "label": 0}
        for i in range(8)
    ]  # fmt: skip
    blimp = [{"id": "b1", "query": "", "choices": ["The rain is wet.", "The rain wet is."],
              "label": 0}]  # fmt: skip
    pairs = [{"prompt": f"say house number {i}:", "answer": f" {i}"} for i in range(8)]
    write_lines(folder / "items.jsonl", items)
    write_lines(folder / "sentences.jsonl", blimp)
    write_lines(folder / "prompts.jsonl", PROMPTS)
    write_lines(folder / "pairs.jsonl", pairs)
    texts = [f"{text}{i} {text[::-1]}" for i in range(12) for text in SENTENCES]
    write_lines(folder / "texts.jsonl", [{"text": text, "n": i} for i, text in enumerate(texts)])
    (folder / "texts.txt").write_text("\n".join(ENGLISH * 8) + "\n")
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    random = np.random.default_rng(0)
    ids = [tokenizer.encode(text).ids for text in texts]
    for row in ids[::2]:
        row[int(random.integers(0, len(row)))] = int(random.integers(2, size))
    write_lines(folder / "ids.jsonl", [{"ids": row} for row in ids])
    turns = [
        {"role": "user" if j % 2 == 0 else "assistant", "ids": row} for j, row in enumerate(ids[:8])
    ]
    write_lines(folder / "turns.jsonl", [{"conversation": turns[:4]}, {"conversation": turns[4:]}])
    (folder / "judges.py").write_text(
        "def length(prompt, answer):\n    return len(answer)\n"
        "def short(rows):\n    return -rows.lengths\n"
    )
    (folder / "study.yaml").write_text(STUDY)


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def in_child(action: Callable[[], Any], output: Path) -> tuple[int, str, str]:
    """Run an action in a forked process; its exit code, standard output and standard error."""
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = output.with_suffix(".out"), output.with_suffix(".err")
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for path, descriptor in ((out, 1), (err, 2)):
                opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(opened, descriptor)
            action()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code, out.read_text(errors="replace"), err.read_text(errors="replace")


class Shell:
    """Runs `python -m robustok` in a folder, each time in a fresh fork of a warm process."""

    def __init__(self, folder: Path) -> None:
        import torch
        import transformers
        import typer  # noqa: F401
        from transformers.models.bert import modeling_bert  # noqa: F401
        from transformers.models.llama import modeling_llama  # noqa: F401

        import robustok.evaluation
        import robustok.scoring  # noqa: F401

        torch.set_num_threads(1)
        _ = transformers.AutoModelForCausalLM, transformers.AutoTokenizer
        self.folder = folder
        self.record = Recorder(
            {str(folder.resolve()): "<FOLDER>", str(folder): "<FOLDER>", str(DATA): "<DATA>"}
        )
        code, _, err = in_child(lambda: make_files(folder), folder.with_name("files"))
        if code:
            raise SystemExit(f"the toy files could not be made:\n{err}")

    def run(self, args: Sequence[str], stdin: str | None = None) -> tuple[int, str, str]:
        def command() -> None:
            os.chdir(self.folder)
            sys.path.insert(0, str(self.folder))
            if stdin is not None:
                (self.folder / "stdin").write_text(stdin)
                os.dup2(os.open(self.folder / "stdin", os.O_RDONLY), 0)
            sys.argv = ["robustok", *args]
            runpy.run_module("robustok", run_name="__main__", alter_sys=True)

        return in_child(command, self.folder.with_name("command"))

    def works(
        self, name: str, *args: str, files: Sequence[str] = (), stdin: str | None = None
    ) -> None:
        """Record exit code, output and files of a command; JSON lines as JSON."""
        began = os.times()
        code, out, err = self.run(args, stdin)
        result: dict[str, Any] = {"code": code, "output": parsed(out)}
        if code not in (0, 1):
            result["error"] = err[-2000:]
            print(f"  {name}: exit code {code}: {err.strip()[-300:]}", file=sys.stderr)
        self.record.add(name, result)
        for pattern in files:
            paths = sorted(p for p in self.folder.glob(pattern) if p.is_file())
            if not paths:
                self.record.add(f"{name}/{pattern}", "missing")
            for path in paths:
                self.record.add(f"{name}/{path.relative_to(self.folder)}", contents(path))
        ended = os.times()
        used = sum(ended[:4]) - sum(began[:4])
        if used > 4:
            print(f"  {name}: {used:.1f} s of processor time", file=sys.stderr)

    def fails(self, *args: str) -> None:
        code, out, err = self.run(args)
        lines = err.strip().splitlines()
        name = "error: " + " ".join(args)
        self.record.add(f"{name}/exit", {"code": code, "output": out, "lines": len(lines)})
        self.record.add(name, err.strip(), "message")


def parsed(text: str) -> Any:
    """Lines of JSON as JSON; other text without durations."""
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError:
        pass
    try:
        return json.loads(text)
    except ValueError:
        return DURATION.sub("<DURATION>", text).splitlines()


def contents(path: Path) -> Any:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        return {"columns": table.column_names, "rows": table.to_pylist()}
    data = path.read_bytes()
    try:
        return parsed(data.decode())
    except UnicodeDecodeError:
        return {"sha256": sha256(data), "bytes": len(data)}


# --- part: commands ---------------------------------------------------------------------------

SEED = ("--seed", "0")
TOK = ("-t", "tok/tokenizer.json")
TEXT = "which word starts with street?"
RECIPE = ("--steps", "4", "--batch-size", "2", "--learning-rate", "1e-3", "--json")
ITEMS = ("--items", "items.jsonl")


def record_commands(record: Recorder, folder: Path) -> None:
    shell = Shell(folder)
    _plain_commands(shell)
    _analyses(shell)
    _corpora(shell)
    _models(shell)
    _mistakes(shell)
    record.entries |= shell.record.entries


def _plain_commands(shell: Shell) -> None:
    works = shell.works
    for spec in ("canonical", "uniform", "uniform-k(alpha=1)", "mix(0.5 canonical, 0.5 uniform)"):
        args = ("sample", TEXT, *TOK, "-s", spec, *SEED)
        works(f"sample {spec}", *args, "-n", "3", "--json")
    works("sample text", "sample", TEXT, *TOK, "-s", "stochastok(alpha=1)", *SEED, "-n", "3")
    works("sample -", "sample", "-", *TOK, "-s", "uniform", *SEED, "--json", stdin="a b\nhouse\n")
    works("count", "count", TEXT, *TOK, "--json")
    works("count text", "count", TEXT, *TOK, "--by", "distance", "--max", "4")
    for by in ("distance", "segments"):
        works(f"count {by}", "count", TEXT, *TOK, "--by", by, "--max", "9", "--json")
    works("inspect", "inspect", "street house", *TOK, "--html", "page.html", "--samples", "500")
    canonical = shell.run(("sample", TEXT, *TOK, "-s", "canonical", *SEED, "--json"))[1]
    drawn = shell.run(("sample", TEXT, *TOK, "-s", "uniform", *SEED, "--json"))[1]
    for name, output in (("canonical", canonical), ("drawn", drawn)):
        ids = json.dumps(_ids_in(json.loads(output.splitlines()[0])))
        for mode in ("report", "strict", "repair"):
            works(f"guard {name} {mode} text", "guard", ids, *TOK, "--mode", mode)
            works(f"guard {name} {mode}", "guard", ids, *TOK, "--mode", mode, "--json")
    works("guard special", "guard", "[0, 40, 50, 9999]", *TOK, "--json")
    works("guard allowed", "guard", "[0, 40, 50]", *TOK, "--json", "--allow-special")
    works("guard -", "guard", "-", *TOK, "--json", stdin="1,2,3\nword\n[40, 41]\n")
    works("audit", "audit", "ids.jsonl", *TOK, "--json")
    works("audit text", "audit", "ids.jsonl", *TOK, "--top", "3")
    works("audit conversations", "audit", "turns.jsonl", *TOK, "--json")
    for kind in ("langgame", "cute"):
        args = ("data", kind, *SEED, "-o", kind, "--words", "400", "--train", "40", "--test", "10")
        works(f"data {kind}", *args, "--json", files=(f"{kind}/*.jsonl", f"{kind}/README.md"))


def _ids_in(row: Any) -> list[int]:
    """The first list of integers in a row of `sample --json`."""
    if isinstance(row, list):
        if row and all(isinstance(i, int) for i in row):
            return row
        return next((ids for entry in row if (ids := _ids_in(entry))), [])
    if isinstance(row, dict):
        return _ids_in(list(row.values()))
    return []


def _analyses(shell: Shell) -> None:
    common = (*TOK, *SEED, "--json")
    shell.works(
        "analyze split-counts", "analyze", "split-counts", *common, "--text", TEXT, "-n", "2000",
        "--out", "counts", files=("counts/*.csv",),
    )  # fmt: skip
    shell.works(
        "analyze segmentations", "analyze", "segmentations", *common, "--text", TEXT, "-n", "2000",
        "--out", "segmentations", files=("segmentations/*.csv",),
    )  # fmt: skip
    shell.works("analyze dropout", "analyze", "dropout", *common, "--text", TEXT, "-n", "2000")
    shell.works(
        "analyze bias", "analyze", "bias", *common, "--words-file", "words.txt", "-n", "300",
        "--out", "bias", files=("bias/*.csv",),
    )  # fmt: skip
    shell.works(
        "analyze growth", "analyze", "growth", *common, "--texts", "texts.txt", "--alpha", "0.5",
        "--alpha", "2", "--limit", "6",
    )  # fmt: skip


def _corpora(shell: Shell) -> None:
    scheme = ("-s", "stochastok(alpha=0.5)", *SEED, "--workers", "1", "--json", *TOK)
    receipt = "out-{0}/__run__/receipt.json"
    shell.works(
        "corpus parquet", "corpus", "texts.jsonl", "out-parquet", *scheme, "-n", "2",
        "--keep-columns", "n", files=(receipt.format("parquet"), "out-parquet/data/*.parquet"),
    )  # fmt: skip
    shell.works("corpus again", "corpus", "texts.jsonl", "out-parquet", *scheme, "-n", "2",
                "--keep-columns", "n")  # fmt: skip
    for kind in ("packed",):
        shell.works(
            f"corpus {kind}", "corpus", "texts.txt", f"out-{kind}", *scheme, "--format", kind,
            "--end", "<|end|>", *(("--block-size", "64") if kind == "packed" else ()),
            files=(receipt.format(kind), f"out-{kind}/data/*"),
        )  # fmt: skip


def _models(shell: Shell) -> None:
    works = shell.works
    given = ("one", *ITEMS, *SEED, "--json")
    works("evaluate", "evaluate", *given, "-n", "3", "-o", "evaluated.jsonl", "--table", "t.md",
          files=("evaluated.jsonl", "t.md"))  # fmt: skip
    works("evaluate schemes", "evaluate", *given, "-s", "uniform-k(alpha=1)", "-s", "characters",
          "--start-token", "<|end|>", "--limit", "4")  # fmt: skip
    works("evaluate sentences", "evaluate", "one", "--items", "sentences.jsonl", *SEED, "--json")
    works("icl", "icl", *given, "-k", "2", "-n", "2", "--example-scheme", "uniform", "--attack",
          "--limit", "4")  # fmt: skip
    works("perplexity", "perplexity", "one", "--texts", "texts.txt", *SEED, "--json", "--limit",
          "4", "-n", "2")  # fmt: skip
    works("perplexity marginal", "perplexity", "one", "--texts", "texts.txt", *SEED, "--json",
          "--limit", "2", "--marginal", "-n", "16")  # fmt: skip
    works("certify", "certify", "one", *ITEMS, *SEED, "--json", "--limit", "3", "--distance", "2",
          "--distance", "4", "--enumerate", "200", "-n", "40", "-o", "certified",
          files=("certified/*.csv", "certified/*.jsonl"))  # fmt: skip
    works("certify text", "certify", "one", "--text", "street", "--option", " a", "--option", " b",
          *SEED, "--distance", "all", "--json")  # fmt: skip
    works("certify smoothed", "certify", "one", *ITEMS, *SEED, "--json", "--limit", "3",
          "--smoothed", "uniform", "-n", "20")  # fmt: skip
    works("embeddings", "embeddings", "one", "other=two", "--words-file", "words.txt", "-n", "6",
          *SEED, "--sentence", "the {word} was", "--json")  # fmt: skip
    works("bound", "bound", "one", "two", "--json")
    works("bound items", "bound", "one", *ITEMS, "--limit", "3", "-n", "3", *SEED, "--json")
    works("pretrain", "pretrain", "texts.txt", *TOK, "-s", "uniform", *SEED, "--out", "pretrained",
          "--held-out", "texts.txt", "--shape", "quick", "--scale", "0.25",
          "--end", "<|end|>", *RECIPE)  # fmt: skip
    works("finetune", "finetune", "one", *ITEMS, "-s", "uniform", *SEED, "--out", "tuned", *RECIPE)
    works("finetune schedule", "finetune", "one", "--items", "pairs.jsonl", *SEED, "--out",
          "tuned-lora", "-s", "stochastok(alpha=0->2)", "--lora", *RECIPE)  # fmt: skip
    works("finetune packed", "finetune", "one", *ITEMS, "-s", "uniform-k(alpha=1)", *SEED, "--out",
          "tuned-packed", "--pack", "128", "--preset", "paper-finetune", "--warmup-steps", "0",
          *RECIPE)  # fmt: skip
    for name in ("tuned", "tuned-packed", "pretrained"):
        works(f"evaluate {name}", "evaluate", name, *ITEMS, *SEED, "--json", "-n", "2", "-o",
              f"evaluated-{name}.jsonl", files=(f"evaluated-{name}.jsonl",))  # fmt: skip
    works("study list", "study", "list", "--json")
    works("study plan", "study", "plan", "study.yaml", "--out", "runs", "--json")


def _mistakes(shell: Shell) -> None:
    sample = ("sample", TEXT, *TOK, *SEED, "-s")
    attack = ("attack", "one", *SEED)
    tune = ("finetune", "one", *ITEMS, *SEED, "--out", "wrong", "-s", "uniform")
    for args in (
        (*sample, "unifrom"),
        (*sample, "stochastok(alpha=-1)"),
        (*sample, "stochastok(beta=1)"),
        (*sample, "uniform-k"),
        (*sample, "mix(0.5 canonical"),
        (*sample, "unigram"),
        (*sample, "uniform", "--draws", "0"),
        ("sample", TEXT, "-t", "missing.json", "-s", "uniform", *SEED),
        ("sample", TEXT, *TOK, "-s", "uniform"),
        ("sampel", TEXT),
        ("count", TEXT, *TOK, "--by", "length"),
        ("guard", "word", *TOK),
        ("audit", "missing.jsonl", *TOK),
        ("data", "langame", *SEED, "-o", "x"),
        ("evaluate", "missing/model", *ITEMS, *SEED),
        ("evaluate", "one", "--items", "missing.jsonl", *SEED),
        ("evaluate", "one", "--items", "texts.txt", *SEED),
        ("evaluate", "one", *ITEMS, *SEED, "--overflow", "cut"),
        ("evaluate", "one", *ITEMS, *SEED, "-o", "rows.csv"),
        ("icl", "one", *ITEMS, *SEED, "-k", "99"),
        (*attack, *ITEMS, "--objective", "loss"),
        (*attack, *ITEMS, "--search", "lucky"),
        (*attack, "--text", "a", "--objective", "target"),
        (*attack, "--text", "a", "--chat", "--option", "b", "--option", "c"),
        ("attack", "one", *ITEMS),
        ("certify", "one", *ITEMS, *SEED, "--distance", "x"),
        (*tune, "--batch-size", "2"),
        (*tune, "--preset", "paper-fintune"),
        ("corpus", "missing", "out", *TOK, *SEED, "-s", "uniform"),
        ("corpus", "texts.jsonl", "o", *TOK, *SEED, "-s", "uniform", "--format", "packed"),
        ("study", "run", "quik"),
        ("study", "plan", "items.jsonl"),
    ):
        shell.fails(*args)


# --- part: attack -----------------------------------------------------------------------------


def record_attack(record: Recorder, folder: Path) -> None:
    shell = Shell(folder)
    code, out, err = in_child(lambda: _library(folder), folder.with_name("library"))
    if code:
        record.add("library/failure", err[-2000:])
    for line in out.splitlines():
        name, value = json.loads(line)
        shell.record.add(name, value)
    _question_attacks(shell)
    _prompt_attacks(shell)
    record.entries |= shell.record.entries


def _library(folder: Path) -> None:
    """Print records of `attack` and `score`, a JSON line each."""
    import transformers as tf

    import robustok as rt
    from robustok.scoring import score

    try:
        from robustok.attack import attack  # pyright: ignore
    except ImportError:
        from robustok.evaluation import attack  # pyright: ignore

    model: Any = tf.AutoModelForCausalLM.from_pretrained(folder / "one").eval()
    vocab = rt.Vocabulary.load(str(folder / "one"))
    rows = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    settings: list[dict[str, Any]] = [
        {}, {"objective": "log-probability"}, {"distances": (2, 4), "steps": 2},
        {"start": "uniform", "steps": 3}, {"start": "characters", "distances": (1, 2), "steps": 3},
        {"start": "uniform-k(alpha=1)", "objective": "log-probability", "steps": 2},
    ]  # fmt: skip
    for number_, changes in enumerate(settings):
        for row in rows[: 2 if changes else 5]:
            result = attack(
                model, vocab, row["query"], row["choices"], row["label"], seed=number_, **changes
            )
            value = [list(map(int, result.ids)), list(map(float, result.margins)), result.success]
            print(json.dumps([f"library/attack {changes} {row['id']}", value], default=bool))
    for name in ("gpt2", "llama"):
        if name == "gpt2":
            import torch

            torch.manual_seed(0)
            config = tf.GPT2Config(
                vocab_size=vocab.size, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3
            )
            model = tf.GPT2LMHeadModel(config).eval()
        else:
            model = tf.AutoModelForCausalLM.from_pretrained(folder / "two").eval()
        drawn = rt.sampler("uniform", vocab).sample_batch(
            [row["query"] for row in rows], seed=0, draws=4
        )
        options = [vocab.encode(text) for text in (" street", " house", " the garden")]
        for prefix in (None, vocab.encode("Answer the question: ")):
            result = score(model, drawn, options, prefix)
            value = {
                "log_probs": np.asarray(result.log_probs).round(9).tolist(),
                "tokens": [int(result.tokens_computed), int(result.tokens_naive)],
            }
            print(json.dumps([f"library/score {name} {'prefix' if prefix is not None else ''}",
                              value]))  # fmt: skip


def _question_attacks(shell: Shell) -> None:
    given = ("attack", "one", *ITEMS, *SEED, "--json")
    runs: dict[str, tuple[str, ...]] = {
        "default": ("--limit", "6"),
        "log-probability": ("--objective", "log-probability", "--limit", "4", "--steps", "3"),
        "beam": ("--beam", "3", "--max-neighbors", "12", "--steps", "3", "--distance", "2",
                 "--distance", "4"),
        "restarts": ("--restarts", "3", "--max-scored", "150", "--max-neighbors", "20"),
        "random": ("--search", "random", "--max-scored", "60"),
        "uniform start": ("--start", "uniform", "--steps", "2", "--start-token", "<|end|>"),
        "stop": ("--stop-when-wrong", "--control", "--limit", "4", "--curve", "curve.png"),
    }  # fmt: skip
    for name, options in runs.items():
        file = f"attack-{name.replace(' ', '-')}.jsonl"
        shell.works(f"questions {name}", *given, *options, "-o", file, files=(file,))
    shell.works("questions resumed", *given, *runs["default"], "-o", "attack-default.jsonl")
    shell.works("question", "attack", "one", "--text", TEXT, "--option", " street", "--option",
                " house", *SEED, "--json")  # fmt: skip
    shell.works("question chat", "attack", "chat", "--text", TEXT, "--option", " street",
                "--option", " house", "--system", "be brief", "--chat", *SEED, "--json",
                "--steps", "2")  # fmt: skip
    shell.works("question text", "attack", "one", "--text", TEXT, "--option", " street",
                "--option", " house", *SEED, "--steps", "2")  # fmt: skip


def _prompt_attacks(shell: Shell) -> None:
    given = ("--prompts", "prompts.jsonl", *SEED, "--json")
    verdict = ("--unwanted", " up", "--wanted", " rain")
    runs: dict[str, tuple[str, ...]] = {
        "target": ("one", "--objective", "target"),
        "target, other model": ("one", "--objective", "target", "--steps", "2", "--transfer",
                                "two"),
        "refusal": ("one", "--objective", "refusal", *verdict, "--steps", "3"),
        "guard": ("one", "--objective", "guard", *verdict, "--steps", "3"),
        "margin": ("one", "--objective", "margin", "--steps", "3", "--beam", "2"),
        "function": ("one", "--objective", "judges:short", "--start", "characters",
                     "--distance", "1"),
        "perplexity": ("one", "--objective", "target", "--perplexity-quantile", "0.9",
                       "--steps", "2"),
        "annealing": ("one", "--objective", "target", "--search", "annealing", "--max-scored",
                      "40"),
        "random": ("one", "--objective", "target", "--search", "random", "--max-scored", "40"),
        "restarts": ("one", "--objective", "margin", "--restarts", "2", "--max-scored", "90",
                     "--max-neighbors", "20"),
        "classifier": ("classifier", "--objective", "classifier", "--flagged", "LABEL_1",
                       "--steps", "3"),
        "chat": ("chat", "--objective", "target", "--chat", "--system", "be brief", "--steps",
                 "2"),
        "suite": ("one", "--objective", "margin", "--suite", "standard", "--max-scored", "40"),
        "suite of questions": ("one", "--suite", "standard", "--max-scored", "30"),
        "jointly": ("one", "--objective", "target", "--jointly", "--steps", "2"),
        "answers": ("one", "--objective", "target", "--steps", "1", "--generate", "answers.jsonl",
                    "--judge", "judges:length", "--max-new-tokens", "4"),
    }  # fmt: skip
    for name, options in runs.items():
        shell.works(f"prompts {name}", "attack", *options, *given)
    shell.works(
        "prompts file", "attack", "one", "--objective", "target", "--steps", "2", *given, "-o",
        "attacks.jsonl", files=("attacks.jsonl",),
    )  # fmt: skip
    shell.works("replay", "attack", "two", "--replay", "attacks.jsonl", "--json")
    shell.works("prompts text", "attack", "one", "--text", TEXT, "--objective", "target",
                "--target", " street", *SEED, "--steps", "2")  # fmt: skip


# --- part: study ------------------------------------------------------------------------------

STUDY = """\
name: quick
title: "Does stochastic fine-tuning make a small model robust?"
about: A reduced copy of the study quick.
seed: 0
threads: 1
task: {kind: langgame, format: short, words: 60, train: 400, test: 40}
tokenizer: {size: 400}
model: {layers: 1, width: 32, heads: 2, kv_heads: 2, feed_forward: 64, max_length: 256}
pretrain: {schemes: [canonical], steps: 40, batch_size: 16, learning_rate: 1.0e-2, warmup_steps: 2}
finetune:
  schemes: [canonical, stochastok(alpha=1.5), stochastok-uniform(alpha=1.5), uniform-k(alpha=1)]
  steps: 30
  batch_size: 16
  learning_rate: 1.0e-2
  warmup_steps: 2
evaluate:
  eval_schemes: [canonical, stochastok(alpha=0.1), stochastok(alpha=1), uniform]
  items: 40
  draws: 3
attacks:
  - {items: 16, distances: [2], start: canonical, steps: 3}
  - {items: 4, suite: standard, max_scored: 12}
examples:
  texts: ["Which word starts with 'm': one, two, me, which? Answer:"]
  draws: 3
"""


def record_study(record: Recorder, folder: Path) -> None:
    shell = Shell(folder)
    args = ("study", "run", "study.yaml", "--out", "run", "--jobs", "1")
    code, _, err = shell.run(args)
    shell.record.add("run", {"code": code, "error": err[-2000:] if code else ""})
    rows = shell.folder / "run" / "results.jsonl"
    lines = rows.read_text().splitlines() if rows.exists() else []
    shell.record.add("number of rows", len(lines))
    for i, line in enumerate(lines):
        row = json.loads(line)
        keys = {name: row.pop(name, None) for name in ("cell", "configuration")}
        shell.record.add(f"row {i}", row)
        shell.record.add(f"row {i}, key fields", keys)
    code, _, err = shell.run(args)
    shell.record.add("run again", {"code": code, "error": err[-2000:] if code else ""})
    again = rows.read_text().splitlines() if rows.exists() else []
    shell.record.add("rows after the second run are the same", again == lines)
    shell.works("plan", "study", "plan", "study.yaml", "--out", "run", "--json")
    items = [path for path in (shell.folder / "run" / "items").rglob("*") if path.is_file()]
    shell.record.add("items", sorted((contents(path) for path in items), key=str))
    report = shell.folder / "run" / "report.md"
    text = report.read_text().splitlines() if report.exists() else []
    text = [re.sub(r"\| [\d.]+ \|$", "| <SECONDS> |", line) for line in text]
    shell.record.add("report.md", text, "message")
    shell.record.add("files", sorted(p.name for p in (shell.folder / "run").iterdir()), "message")
    record.entries |= shell.record.entries


PARTS: dict[str, Callable[[Recorder, Path], None]] = {
    "draws": record_draws,
    "guard": record_guard,
    "commands": record_commands,
    "attack": record_attack,
    "study": record_study,
}


# --- record and compare -----------------------------------------------------------------------


def measure(parts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The entries of the parts by name, each part in a process of its own."""
    entries: dict[str, dict[str, Any]] = {}
    for part in parts:
        began = os.times()
        with tempfile.TemporaryDirectory(prefix="freeze-") as name:
            folder = Path(name).resolve() / "files"
            folder.mkdir()
            result = Path(name) / "entries.json"
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    record = Recorder()
                    PARTS[part](record, folder)
                    result.write_text(json.dumps(record.entries))
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            _, status = os.waitpid(pid, 0)
            if status:
                raise SystemExit(f"the part {part} could not be recorded")
            measured = json.loads(result.read_text())
        entries |= {f"{part}/{name}": entry for name, entry in measured.items()}
        ended = os.times()
        used = ended.children_user + ended.children_system
        used -= began.children_user + began.children_system
        print(f"{part}: {len(measured)} entries, {used:.0f} s of processor time", flush=True)
    return entries


def status_of(old: dict[str, Any], new: dict[str, Any]) -> str:
    if old["digest"] == new["digest"]:
        return "equal"
    if old["kind"] == new["kind"] == "message":
        return "message changed"
    if "value" in old and "value" in new:
        before, after = normalized(old["value"]), normalized(new["value"])
        if before == after:
            return "equal"
        if close(before, after):
            return "close"
    return "different"


def close(a: Any, b: Any) -> bool:
    """Whether two values differ in nothing but the last digits of numbers."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-12)
    return type(a) is type(b) and a == b


def difference(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    if "value" not in old or "value" not in new:
        return [f"    {old['digest'][:16]} -> {new['digest'][:16]}"]
    before, after = (
        json.dumps(normalized(e["value"]), indent=1, ensure_ascii=False, sort_keys=True)
        for e in (old, new)
    )
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    changed = [line for line in lines if not line.startswith(("---", "+++"))]
    shown = [f"    {line[:160]}" for line in changed[:16]]
    return shown + ([f"    ... {len(changed) - 16} more lines"] if len(changed) > 16 else [])


def compare(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> int:
    """Print the differences and a table of counts; 1 if a value is different, new or gone."""
    counts: dict[str, dict[str, int]] = {}
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            status = "gone"
        elif name not in old:
            status = "new"
        else:
            status = status_of(old[name], new[name])
        part = counts.setdefault(name.partition("/")[0], {})
        part[status] = part.get(status, 0) + 1
        if status != "equal":
            print(f"{status}: {name}")
        if status in ("different", "close", "message changed"):
            print("\n".join(difference(old[name], new[name])))
    states = ("equal", "close", "message changed", "different", "new", "gone")
    print(f"\n{'part':<10}" + "".join(f"{state:>17}" for state in states))
    for part, row in counts.items():
        print(f"{part:<10}" + "".join(f"{row.get(state, 0):>17}" for state in states))
    return int(any(row.get(s) for row in counts.values() for s in ("different", "new", "gone")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", choices=PARTS, action="append", help="may be given twice")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ |= {
        "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_VERBOSITY": "error", "COLUMNS": "100", "NO_COLOR": "1", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    if "PYTHONPATH" in os.environ:  # commands run in other folders
        paths = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in paths)
        sys.path[:] = [str(Path(path).resolve()) if path else path for path in sys.path]
    import importlib.util

    spec = importlib.util.find_spec("robustok")
    print(f"robustok: {spec.origin if spec else 'missing'}", flush=True)
    parts = given.only or list(PARTS)
    earlier = json.loads(given.file.read_text()) if given.file.exists() else {}
    if given.action == "compare":
        if not earlier:
            raise SystemExit(f"{given.file} is missing or empty: record first")
        earlier = {n: e for n, e in earlier.items() if n.partition("/")[0] in parts}
        return compare(earlier, measure(parts))
    for part in parts:  # each is written when it is done
        measured = measure([part])
        earlier = json.loads(given.file.read_text()) if given.file.exists() else {}
        kept = {n: e for n, e in earlier.items() if n.partition("/")[0] != part}
        given.file.write_text(json.dumps(kept | measured, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
