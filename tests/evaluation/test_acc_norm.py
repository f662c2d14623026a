"""acc and acc_norm equal lm-eval's, canonical and drawn, on benchmarks where they are at hand."""

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.oracles.data import data_path
from transformers import GPT2Config, GPT2LMHeadModel

import robustok as rt
from robustok.evaluation import evaluate
from robustok.models import save_tokenizer, train_tokenizer
from robustok.tasks import Item, benchmark_files, read_items, write_items

pytest.importorskip("lm_eval")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lm_eval
    from lm_eval.tasks import TaskManager

    from robustok.integrations.lm_eval import RobustokLM

pytestmark = pytest.mark.filterwarnings("ignore")  # lm-eval's own, of many kinds

OPTIONS = ["no", "yes of course", "perhaps, if the word is long enough", "never at all"]
N = int(os.environ.get("ROBUSTOK_ITEMS", "2"))  # items of each benchmark
BENCHMARKS = (
    "arc_easy", "balanced_copa_mirrored", "blimp", "commonsense_qa", "copa", "cute", "hellaswag",
    "piqa", "social_iqa", "winogrande",
)  # fmt: skip


def lm_eval_accuracies(folder: Path, tasks: dict[str, list[Item]], scheme: str) -> dict[str, Any]:
    """acc and acc_norm of one draw, by lm-eval, which puts the space before an option itself."""
    metrics = [
        {"metric": name, "aggregation": "mean", "higher_is_better": True}
        for name in ("acc", "acc_norm")
    ]
    for name, items in tasks.items():
        spaced = all(choice.startswith(" ") for item in items for choice in item.choices)
        bare = [
            Item(i.key, i.question, tuple(c.removeprefix(" ") for c in i.choices), i.label)
            if spaced
            else i
            for i in items
        ]
        write_items(folder / f"{name}.jsonl", bare)
        task = {
            "task": name, "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(folder / f"{name}.jsonl")}},
            "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{question}}",
            "doc_to_choice": "{{choices}}", "doc_to_target": "label",
            "target_delimiter": " " if spaced else "", "metric_list": metrics,
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))
    build: Any = RobustokLM
    model = build(
        pretrained=str(folder), dtype="float32", device="cpu", scheme=scheme, seed=0, draw=0
    )
    harness: Any = lm_eval
    result = harness.simple_evaluate(
        model, tasks=list(tasks), bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
    )  # fmt: skip
    return {
        task: {name: result["results"][task][f"{name},none"] for name in ("acc", "acc_norm")}
        for task in tasks
    }


def random_model(folder: Path, tokenizer: Path, size: int) -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=size, n_embd=32, n_layer=2, n_head=2, n_positions=1024, bos_token_id=size - 1,
        eos_token_id=size - 1, initializer_range=0.3,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return model


def keyed(items: list[Item]) -> list[Item]:
    """Items whose key is their question, which lm-eval's draws depend on; no question twice."""
    keyed = {i.question: Item(i.question, i.question, i.choices, i.label) for i in items}
    return list(keyed.values())


def compared(folder: Path, model: Any, tasks: dict[str, list[Item]], scheme: str) -> None:
    vocab = rt.Vocabulary.load(folder / "tokenizer.json")
    theirs = lm_eval_accuracies(folder, tasks, scheme)
    for name, items in tasks.items():
        ours = evaluate(model, vocab, items, scheme, draws=1, seed=0)
        wanted = {"acc": ours.accuracy, "acc_norm": ours.acc_norm}
        assert theirs[name] == pytest.approx(wanted), name


@pytest.mark.parametrize("scheme", ["canonical", "uniform"])
def test_both_accuracies_are_lm_evals(tmp_path: Path, scheme: str) -> None:
    items = [
        Item("", f"which word number {i} starts with a? Answer:",
             tuple(f" {o}" for o in OPTIONS), i % 4)
        for i in range(24)
    ]  # fmt: skip
    texts = [item.question + choice for item in items for choice in item.choices]
    train_tokenizer(texts, 320).save(str(tmp_path / "trained.json"))
    model = random_model(tmp_path, tmp_path / "trained.json", 320)
    items = keyed(items)
    compared(tmp_path, model, {"items": items}, scheme)
    result = evaluate(model, rt.Vocabulary.load(tmp_path / "trained.json"), items, scheme, seed=0)
    assert result.acc_norm != result.accuracy
    assert result.acc_norm_low <= result.acc_norm <= result.acc_norm_high


def test_both_accuracies_are_lm_evals_on_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = data_path("tokenizers", "gpt2") / "tokenizer.json"
    model = random_model(tmp_path, tokenizer, 50257)
    files, tasks = benchmark_files(data_path("benchmarks")), {}
    for name in BENCHMARKS:
        items = read_items(files[name], limit=N)
        tasks[name] = keyed(items) if items[0].question else items
    # lm-eval's draws of a whole sentence depend on the sentence, not on the item's key.
    of_item: Any = Item.drawn_texts.fget
    own = property(lambda item: of_item(item) if item.question else {c: c for c in item.choices})
    monkeypatch.setattr(Item, "drawn_texts", own)
    compared(tmp_path, model, tasks, "uniform")
