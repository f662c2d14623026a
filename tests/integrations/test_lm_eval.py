"""lm-eval's own numbers at scheme=canonical, and what a drawn context must keep."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.guard.tokenizers_of import metaspace_tokenizer
from tests.oracles.models import tiny_model
from tests.oracles.served import ServedStandIn, serving
from transformers import PreTrainedTokenizerFast

from robustok import Vocabulary
from robustok.cli.app import run
from robustok.errors import RobustokError
from robustok.models import add_lora, load_model, save_tokenizer, train_tokenizer
from robustok.tasks import frequent_words, langgame, write_items

pytest.importorskip("lm_eval")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lm_eval
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    from robustok.integrations.lm_eval import RobustokLM, ServedLM, compared, evaluate_draws, merged

pytestmark = pytest.mark.filterwarnings("ignore")  # lm-eval's own, of many kinds

ITEMS = langgame(frequent_words(40), 12, seed=0, split="test", format="short")
SOURCE = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
TASK = (
    SOURCE
    + """
task: letters
fewshot_split: test
output_type: multiple_choice
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
target_delimiter: ""
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""
)
MODELS = ("llama", "gpt2", "qwen3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lm-eval")
    write_items(path / "items.jsonl", ITEMS)
    (path / "letters.yaml").write_text(TASK.format(file=path / "items.jsonl"))
    train_tokenizer([i.question + i.answer for i in ITEMS], 400).save(str(path / "tokenizer.json"))
    for name in MODELS:
        tiny_model(name, 400).save_pretrained(path / name)
        save_tokenizer(path / "tokenizer.json", path / name)
    return path


@pytest.fixture
def own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command without the thousands of tasks of lm-eval, whose files take long to read."""

    class Own(TaskManager):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "include_defaults": False})

    monkeypatch.setattr("lm_eval.tasks.TaskManager", Own)


def evaluated(
    folder: Path, model: str, args: dict[str, Any], tasks: list[str] | None = None, **options: Any
) -> dict[str, Any]:
    result = evaluate_draws(
        lm_eval.simple_evaluate,
        model,
        args,
        tasks=tasks or ["letters"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        device="cpu",
        bootstrap_iters=0,
        loaded={},
        **options,
    )
    assert result is not None
    return result


def answers(result: dict[str, Any]) -> list[Any]:
    samples = sorted(result["samples"]["letters"], key=lambda s: (s.get("draw", 0), s["doc_id"]))
    return [sample["filtered_resps"] for sample in samples]


@pytest.mark.parametrize("name", MODELS)
def test_canonical_is_lm_evals_own_hf_exactly(folder: Path, name: str) -> None:
    args = {"pretrained": str(folder / name), "dtype": "float32"}
    theirs = evaluated(folder, "hf", args, num_fewshot=2)
    ours = evaluated(folder, "robustok", args | {"scheme": "canonical"}, num_fewshot=2)
    assert answers(ours) == answers(theirs)
    assert ours["results"]["letters"]["acc,none"] == theirs["results"]["letters"]["acc,none"]


def test_draws_are_averaged_with_their_spread(folder: Path) -> None:
    args = {"pretrained": str(folder / "llama"), "dtype": "float32", "scheme": "uniform"}
    result = evaluated(folder, "robustok", args | {"draws": 3, "seed": 1})
    row, samples = result["results"]["letters"], result["samples"]["letters"]
    assert len(samples) == 3 * len(ITEMS)
    by_draw = [[s["acc"] for s in samples if s["draw"] == d] for d in range(3)]
    means = [np.mean(each) for each in by_draw]
    assert row["acc,none"] == pytest.approx(np.mean(means))
    assert row["acc_spread,none"] == pytest.approx(np.std(means, ddof=1))
    documents = np.mean(by_draw, axis=0)
    assert row["acc_stderr,none"] == pytest.approx(documents.std(ddof=1) / len(ITEMS) ** 0.5)
    third = evaluated(folder, "robustok", args | {"draw": 2, "seed": 1})
    assert {sample["draw"] for sample in third["samples"]["letters"]} == {2}
    assert answers(third) == answers(result)[2 * len(ITEMS) :]


def load(name: str, **args: Any) -> Any:
    build: Any = RobustokLM
    return build(pretrained=name, dtype="float32", device="cpu", **args)


def model(folder: Path, **args: Any) -> Any:
    return load(str(folder / "llama"), **args)


def request(context: str, continuation: str) -> Any:
    return Instance("loglikelihood", {}, (context, continuation), 0)


def test_a_drawn_context_spells_the_same_and_the_continuation_stays(folder: Path) -> None:
    lm = model(folder, scheme="uniform", seed=0)
    text, end = "<|endoftext|>which word starts with 's'?", " street"
    drawn = set()
    for lm.draw in range(8):
        drawn.add(tuple(lm._drawn_pair(text, end)[0]))
    assert len(drawn) == 8
    for ids in drawn:
        assert ids[0] == 0  # the special token is still one token
        assert lm.vocab.decode_bytes(np.array(ids[1:])) == text[13:].encode()
    assert lm._drawn_pair(text, end)[1] == lm.vocab.encode(end).tolist()
    # One context is drawn once, whatever follows, and the same for every model.
    assert lm._drawn_pair(text, " up")[0] == lm._drawn_pair(text, end)[0]
    assert lm._drawn_pair("", "which word")[0] == [0]
    # 'whi' + 'ch' are one token together: by length, lm-eval would score half of nothing.
    assert len(lm.tok_encode("which")) < len(lm.tok_encode("whi")) + len(lm.tok_encode("ch"))
    before, after = lm._drawn_pair("whi", "ch")
    assert lm.vocab.decode_bytes(np.array(before)) == b"whi"
    assert lm.vocab.decode_bytes(np.array(after)) == b"ch"
    assert lm._drawn_pair("which ", "word")[1] == lm._drawn_pair("which", " word")[1]


def test_a_response_cache_is_never_read_for_another_draw(folder: Path, tmp_path: Path) -> None:
    args = {"pretrained": str(folder / "llama"), "dtype": "float32", "scheme": "uniform"}
    plain = evaluated(folder, "robustok", args | {"draws": 2})
    cache = str(tmp_path / "cache")
    for _ in range(2):
        kept = evaluated(folder, "robustok", args | {"draws": 2}, use_cache=cache)
        assert [[round(a[0], 4) for a in each] for each in answers(kept)] == [
            [round(a[0], 4) for a in each] for each in answers(plain)
        ]
    from lm_eval.api.model import CachingLM

    CachingLM(model(folder, scheme="uniform", draw=0), str(tmp_path / "one.db"))
    with pytest.raises(RobustokError, match="give --use_cache another path"):
        CachingLM(model(folder, scheme="uniform", draw=1), str(tmp_path / "one.db"))


def generations(texts: list[str], tokens: int) -> list[Any]:
    options = {"max_gen_toks": tokens, "until": ["\n\n\n"], "do_sample": False}
    return [Instance("generate_until", {}, (text, options), i) for i, text in enumerate(texts)]


def test_generation_goes_on_from_the_drawn_context(folder: Path) -> None:
    texts = [item.question for item in ITEMS[:5]] + ["up"]
    lm = model(folder, scheme="uniform", seed=3, draw=2, batch_size=4)  # of unequal lengths
    written = lm.generate_until(generations(texts, 8), disable_tqdm=True)
    for text, generated in zip(texts, written, strict=True):
        ids = lm._draw(lm.tok_encode(text), text)
        assert lm.vocab.decode_bytes(np.array(ids, np.int32)) == text.encode()
        context = torch.tensor([ids])
        with torch.no_grad():
            out = lm.model.generate(
                context, attention_mask=torch.ones_like(context), max_new_tokens=8, do_sample=False
            )
        wanted = lm.tok_decode(out[0, len(ids) :].tolist()).split("\n\n\n")[0]
        assert generated == wanted
    # The drawn contexts are other sequences, and a model with random weights reads them otherwise.
    assert written != model(folder, batch_size=4).generate_until(generations(texts, 8))
    cut, mask = lm.tok_batch_encode(texts, left_truncate_len=5)
    assert cut.shape == mask.shape == (6, 5)
    assert mask.sum(1).tolist()[:5] == [5] * 5


def test_a_generation_whose_context_is_cut_is_warned_of(folder: Path, caplog: Any) -> None:
    lm, text = model(folder, scheme="uniform", seed=3), ITEMS[0].question
    size = len(lm._draw(lm.tok_encode(text), text))
    with caplog.at_level("WARNING"):
        lm.tok_batch_encode([text, "up"], left_truncate_len=size)
        assert not caplog.records
        lm.tok_batch_encode([text, "up"], left_truncate_len=size - 1)
    (record,) = caplog.records
    assert f"contexts of up to {size} tokens are cut to their last {size - 1}" in record.message


def test_a_context_without_tokens_is_drawn_beside_others(folder: Path) -> None:
    lm = model(folder, scheme="uniform", seed=3)
    ids, mask = lm.tok_batch_encode(["", "up"])
    drawn = lm._draw(lm.tok_encode("up"), "up")
    assert (ids.dtype, ids[1].tolist(), mask[0].sum()) == (torch.int64, drawn, 0)
    assert lm.tok_batch_encode([""])[0].dtype == torch.int64


WRITTEN = (
    SOURCE
    + """
task: written
output_type: generate_until
doc_to_target: "{{{{choices[label]}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 4, do_sample: false}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
filter_list:
  - name: all
    filter: [{{function: take_first}}]
  - name: right
    filter: [{{function: regex, regex_pattern: "(zzzz)", fallback: none}}, {{function: take_first}}]
"""
)


def test_tasks_that_generate_are_averaged_over_draws(folder: Path) -> None:
    (folder / "written.yaml").write_text(WRITTEN.format(file=folder / "items.jsonl"))
    args = {"pretrained": str(folder / "llama"), "dtype": "float32", "scheme": "uniform"}
    result = evaluated(folder, "robustok", args | {"draws": 3}, tasks=["written"])
    samples = result["samples"]["written"]
    assert len(samples) == 3 * 2 * len(ITEMS)
    texts = [[s["resps"][0][0] for s in samples if s["draw"] == d] for d in range(3)]
    assert texts[0] != texts[1] != texts[2]
    row = result["results"]["written"]
    for name in ("all", "right"):
        assert {f"exact_match,{name}", f"exact_match_spread,{name}"} <= row.keys()


def test_errors_are_those_of_their_own_filter() -> None:
    def run(values: dict[str, list[float]]) -> dict[str, Any]:
        samples = [
            {"doc_id": i, "filter": name, "exact_match": value}
            for name, each in values.items()
            for i, value in enumerate(each)
        ]
        row = {f"exact_match,{name}": float(np.mean(each)) for name, each in values.items()}
        row |= {f"exact_match_stderr,{name}": 0.5 for name in values}
        return {"results": {"t": row}, "samples": {"t": samples}}

    strict, free = [[0.0, 0, 1, 0], [0.0, 1, 1, 0]], [[1.0, 1, 1, 1], [1.0, 1, 1, 1]]
    runs = [run({"strict": strict[d], "free": free[d]}) for d in range(2)]
    row = merged(runs, [0, 1])["results"]["t"]
    assert row["exact_match_stderr,free"] == 0
    wanted = np.mean(strict, axis=0).std(ddof=1) / 2
    assert row["exact_match_stderr,strict"] == pytest.approx(wanted)


def test_the_error_of_a_perplexity_is_not_that_of_log_likelihoods() -> None:
    """A sample has the log-likelihood of its document there; accuracies of the task are means."""
    runs = []
    for draw, (perplexity, error) in enumerate([(17.1, 3.3), (22.2, 4.3)]):
        row = {"perplexity,none": perplexity, "perplexity_stderr,none": error}
        row |= {"acc,none": 0.5, "acc_stderr,none": 0.3}
        samples = [{"doc_id": i, "perplexity": -3.0 - i, "acc": (i + draw) % 2} for i in range(4)]
        runs.append({"results": {"lambada": row}, "samples": {"lambada": samples}})
    row = merged(runs, [0, 1])["results"]["lambada"]
    assert row["perplexity_stderr,none"] == pytest.approx(3.8)
    assert row["acc_stderr,none"] == 0  # each document is right in half of the draws
    assert [line[1] for line in compared(*runs)] == ["acc"]


@pytest.mark.parametrize("weighted", [True, False])
def test_the_error_of_a_group_is_pooled_from_its_tasks(folder: Path, weighted: bool) -> None:
    group = folder / f"group-{weighted}"
    group.mkdir()
    sizes = {"few": 5, "many": 12}
    for name, size in sizes.items():
        write_items(group / f"{name}.jsonl", ITEMS[:size])
        text = TASK.format(file=group / f"{name}.jsonl").replace("task: letters", f"task: {name}")
        (group / f"{name}.yaml").write_text(text)
    (group / "inner.yaml").write_text("group: inner\ntask: [many]\n")
    metric = f"{{metric: acc, weight_by_size: {str(weighted).lower()}}}"
    (group / "all.yaml").write_text(
        f"group: all\ntask: [few, inner]\naggregate_metric_list: [{metric}]\n"
    )
    args = {"pretrained": str(folder / "llama"), "dtype": "float32", "scheme": "uniform"}
    result = evaluated(group, "robustok", args | {"draws": 3}, tasks=["all"])
    deviations, errors = [], []
    for name in sizes:
        samples = result["samples"][name]
        by_draw = [[s["acc"] for s in samples if s["draw"] == d] for d in range(3)]
        documents = np.mean(by_draw, axis=0)
        deviations += [*(documents - documents.mean())]
        errors.append(documents.std(ddof=1) / len(documents) ** 0.5)
        assert result["results"][name]["acc_stderr,none"] == pytest.approx(errors[-1])
    wanted = np.hypot(*errors) / 2
    if weighted:
        wanted = np.sqrt(np.square(deviations).sum() / (17 - 2) / 17)
    for part in ("results", "groups"):
        assert result[part]["all"]["acc_stderr,none"] == pytest.approx(wanted)


def test_a_whole_text_is_drawn(folder: Path) -> None:
    text = "which word starts with s? " * 8
    requests = [Instance("loglikelihood_rolling", {}, (text,), 0)]
    canonical = model(folder).loglikelihood_rolling(requests)
    (drawn,) = model(folder, scheme="uniform").loglikelihood_rolling(requests)
    assert drawn < canonical[0] < 0


@pytest.mark.parametrize("scheme", ["canonical", "uniform"])
def test_a_log_likelihood_that_is_no_number_ends_the_run(folder: Path, scheme: str) -> None:
    broken = model(folder, scheme=scheme, seed=0)
    asked = [request("which word", " a"), request("which word starts", " b")]
    assert len(broken.loglikelihood(asked)) == 2
    with torch.no_grad():
        broken.model.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(
        RobustokError, match=r"the request 'which word.* [ab]': the model's log-likelihood"
    ):
        broken.loglikelihood(asked)


@pytest.mark.usefixtures("own_tasks")
def test_the_command_is_lm_evals_own(folder: Path, tmp_path: Path, capsys: Any) -> None:
    args = f"pretrained={folder / 'llama'},scheme=uniform,draws=2,seed=0,dtype=float32"
    out = tmp_path / "out"
    more = ["--tasks", "letters", "--include_path", str(folder), "--device", "cpu"]
    assert run(["lm-eval", "--model_args", args, *more, "--output_path", str(out)]) == 0
    (file,) = out.rglob("results_*.json")
    assert file.parent.name.endswith("llama")  # the name of the model
    record = json.loads(file.read_text())
    assert record["config"]["model_args"]["pretrained"] == str(folder / "llama")
    assert record["config"]["model_args"]["scheme"] == "uniform"
    results = record["results"]["letters"]
    assert {"acc,none", "acc_stderr,none", "acc_spread,none"} <= results.keys()
    capsys.readouterr()
    assert run(["lm-eval", "--tasks", "letters", "--include_path", str(folder)]) == 2
    assert "--model_args pretrained=MODEL" in capsys.readouterr().err


@pytest.mark.usefixtures("own_tasks")
def test_several_schemes_are_compared_with_the_first(
    folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls: Any = RobustokLM
    loads, load = [], cls._create_model

    def counted(*args: Any, **options: Any) -> None:
        loads.append(1)
        load(*args, **options)

    monkeypatch.setattr(cls, "_create_model", counted)
    args = f"pretrained={folder / 'llama'},draws=3,seed=0,dtype=float32"
    more = ["--tasks", "letters", "--include_path", str(folder), "--device", "cpu"]
    schemes = ("canonical", "uniform", "characters")
    asked = [part for scheme in schemes for part in ("--scheme", scheme)]
    more += ["--output_path", str(tmp_path)]
    assert run(["lm-eval", *asked, "--model_args", args, *more]) == 0
    assert len(loads) == 1  # for all schemes
    (file,) = tmp_path.rglob("comparison_*.json")
    written = json.loads(file.read_text())
    assert [(row["scheme"], row["reference"]) for row in written] == [
        (scheme, "canonical") for scheme in schemes[1:]
    ]
    assert len([*file.parent.glob("results_*.json")]) == len(schemes)
    printed = capsys.readouterr().out
    head, *lines = printed.splitlines()[-3:]
    assert head.split()[:4] == ["scheme", "task", "metric", "canonical"]
    base = {"pretrained": str(folder / "llama"), "dtype": "float32", "draws": 3, "seed": 0}
    accuracy = {
        scheme: evaluated(folder, "robustok", base | {"scheme": scheme})["results"]["letters"][
            "acc,none"
        ]
        for scheme in schemes
    }
    for line, scheme, row in zip(lines, schemes[1:], written, strict=True):
        assert row["after"] == pytest.approx(accuracy[scheme])
        assert row["low"] <= row["mean"] <= row["high"] and row["n"] == len(ITEMS)
        name, task, metric, before, after, change, *_ = line.split()
        assert (name, task, metric) == (scheme, "letters", "acc")
        assert float(before) == pytest.approx(accuracy["canonical"], abs=6e-4)
        assert float(after) == pytest.approx(accuracy[scheme], abs=6e-4)
        assert float(change) == pytest.approx(accuracy[scheme] - accuracy["canonical"], abs=6e-4)


def test_a_folder_of_lora_weights_answers_as_its_merged_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    light = add_lora(load_model("llama"), seed=0)
    for name, weight in light.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight.data, std=0.3)
    for name in ("lora", "bare"):  # without a tokenizer it is that of the base
        light.save_pretrained(str(tmp_path / name))
    save_tokenizer(folder / "tokenizer.json", tmp_path / "lora")
    monkeypatch.chdir(tmp_path)  # the base model's path was relative to another folder
    load_model("lora").save_pretrained("whole")
    save_tokenizer(folder / "tokenizer.json", "whole")
    requests = [request("which word", " up"), request("which word", " street")]
    by_folder = {}
    for name in ("lora", "bare", "whole", str(folder / "llama")):
        lm = load(name, scheme="uniform")
        by_folder[name] = [answer for answer, _ in lm.loglikelihood(requests)]
    assert by_folder["bare"] == by_folder["lora"]
    assert by_folder["lora"] == pytest.approx(by_folder["whole"], abs=1e-4)
    assert by_folder["lora"] != pytest.approx(by_folder[str(folder / "llama")], abs=1e-2)


def test_a_chat_template_is_drawn_around_and_its_special_tokens_stay(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    chat = tmp_path / "chat"
    shutil.copytree(folder / "llama", chat)
    template = (
        "{% for m in messages %}<|endoftext|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|endoftext|>assistant:{% endif %}"
    )
    (chat / "chat_template.jinja").write_text(template)
    seen: list[list[int]] = []
    once: Any = RobustokLM._draw  # type: ignore[attr-defined]

    def watched(self: Any, ids: Any, text: str) -> list[int]:
        seen.append(once(self, ids, text))
        return seen[-1]

    monkeypatch.setattr(RobustokLM, "_draw", watched)
    args = {"pretrained": str(chat), "dtype": "float32", "scheme": "uniform"}
    result = evaluated(folder, "robustok", args, apply_chat_template=True, num_fewshot=1)
    assert 0 <= result["results"]["letters"]["acc,none"] <= 1
    # One turn of the user's question and answer, the question asked, and the assistant's opening.
    assert {row.count(0) for row in seen} == {4}
    assert len({tuple(row) for row in seen}) > len(ITEMS) / 2


def test_an_error_of_lm_eval_is_one_line(folder: Path, capsys: Any) -> None:
    arguments = ["--model_args", f"pretrained={folder}", "--tasks", "nosuchtask"]
    assert run(["lm-eval", *arguments]) == 2
    line = "robustok: lm-eval: Tasks not found: nosuchtask; `robustok lm-eval ls tasks` lists them"
    assert capsys.readouterr().err.splitlines()[-1] == line


def test_wrong_arguments_are_one_line(folder: Path) -> None:
    with pytest.raises(RobustokError, match="unknown model argument 'shceme': did you mean scheme"):
        model(folder, shceme="uniform")
    several = model(folder, scheme="uniform", draws=2)
    for ask, requests in (
        (several.generate_until, generations(["up"], 2)),
        (several.loglikelihood, [request("which word", " up")]),
        (several.loglikelihood_rolling, [Instance("loglikelihood_rolling", {}, ("up",), 0)]),
    ):
        with pytest.raises(RobustokError, match="draw by draw"):
            ask(requests)


def test_a_choice_without_its_context_stays_and_a_sentence_is_drawn(folder: Path) -> None:
    lm = model(folder, scheme="stochastok(alpha=3)", seed=0)
    seen: list[Any] = []
    lm._loglikelihood_tokens = lambda requests, **_: seen.extend(requests)  # type: ignore[method-assign]

    def of(context: str, text: str, document: int) -> Any:
        return Instance("loglikelihood", {}, (context, text), 0, ("task", document, 1))

    choice = "and the wonderful revolution"
    lm.loglikelihood([of("Which?", choice, 0), of("", choice, 0), of("", choice, 1)])
    canonical = lm.vocab.encode(choice).tolist()
    assert seen[0][2] == seen[1][2] == canonical
    assert seen[2][2] != canonical
    assert lm.vocab.decode(seen[2][2]) == choice


def test_canonical_scores_a_continuation_that_begins_inside_a_token(folder: Path) -> None:
    vocab = model(folder).vocab
    token = max((t for t in vocab.tokens if t.isalpha()), key=len).decode()
    requests = [request(token[:-2], token[-2:]), request("of " + token[:1], token[1:] + "s.")]
    lms = [model(folder, scheme=scheme, seed=0) for scheme in ("canonical", "stochastok(alpha=0)")]
    canonical, drawn = (lm.loglikelihood(requests, disable_tqdm=True) for lm in lms)
    assert canonical == drawn
    for one, (log_prob, _) in zip(requests, canonical, strict=True):
        before, after = (vocab.encode(text).tolist() for text in one.args)
        log_probs = torch.log_softmax(lms[0].model(torch.tensor([before + after])).logits[0], -1)
        rows = range(len(before) - 1, len(before) + len(after) - 1)
        right = sum(float(log_probs[i, j]) for i, j in zip(rows, after, strict=True))
        assert log_prob == pytest.approx(right, abs=1e-4)


def test_canonical_is_hf_where_the_ids_of_a_continuation_spell_another_text(tmp_path: Path) -> None:
    tokenizer = metaspace_tokenizer(prefix=True)  # puts a space after a special token, as Llama 2
    small = tiny_model("llama", tokenizer.get_vocab_size())
    small.save_pretrained(tmp_path)
    roles: Any = {"bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(tmp_path)
    requests = [request("the rest</s>", " there"), request("the ", "rest")]
    ours = load(str(tmp_path)).loglikelihood(requests, disable_tqdm=True)
    build: Any = HFLM
    theirs = build(str(tmp_path), dtype="float32", device="cpu")
    assert ours == theirs.loglikelihood(requests, disable_tqdm=True)


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """The address of the stand-in of a server, with the model `llama`."""
    local: Any = load_model(folder / "llama", dtype="float32")
    with serving(ServedStandIn(local, Vocabulary.load(folder / "llama"))) as address:
        yield address


@pytest.mark.parametrize("scheme", ["canonical", "uniform"])
def test_a_model_behind_a_server_answers_as_in_this_process(
    folder: Path, url: str, scheme: str
) -> None:
    drawing = {"scheme": scheme, "draws": 2, "seed": 1}
    here = evaluated(folder, "robustok", {"pretrained": str(folder / "llama")} | drawing)
    served = {"pretrained": url, "tokenizer": str(folder / "llama")} | drawing
    there = evaluated(folder, "robustok", served)
    assert there["results"]["letters"]["acc,none"] == here["results"]["letters"]["acc,none"]
    for mine, theirs in zip(answers(here), answers(there), strict=True):
        for (log_prob, is_greedy), (other, is_greedy_there) in zip(mine, theirs, strict=True):
            assert other == pytest.approx(log_prob, abs=1e-4)
            assert is_greedy == is_greedy_there


@pytest.mark.parametrize("scheme", ["canonical", "uniform"])
def test_texts_and_generations_of_a_server_are_those_of_this_process(
    folder: Path, url: str, scheme: str
) -> None:
    local = model(folder, scheme=scheme, seed=0, max_length=64)
    build: Any = ServedLM
    served = build(url, tokenizer=str(folder / "llama"), scheme=scheme, seed=0)
    served.max_length = 64
    long = "which word starts with 's'? " * 20
    texts = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in ("which", long)]
    assert len(list(served._windows(long))) > 1
    here, there = (lm.loglikelihood_rolling(texts, disable_tqdm=True) for lm in (local, served))
    assert there == pytest.approx(here, abs=1e-3)
    settings = {"until": ["\n\n"], "max_gen_toks": 5, "do_sample": False}
    asked = [Instance("generate_until", {}, (text, settings), 0) for text in ("which word", long)]
    here, there = (lm.generate_until(asked, disable_tqdm=True) for lm in (local, served))
    assert there == here
    # A special token that ends a text is not in the text of a server.
    until, sent = ["up", "<|endoftext|>"], []
    served.served.texts = lambda prompts, progress: [sent.append(one[2]) or "" for one in prompts]
    served.generate_until(
        [Instance("generate_until", {}, ("a", {"until": until, "max_tokens": 5}), 0)]
    )
    assert (sent[0]["stop"], sent[0]["stop_token_ids"]) == (until, [0])
    with pytest.raises(RobustokError, match="lower max_gen_toks"):
        served.generate_until([Instance("generate_until", {}, ("a", {"max_tokens": 10**6}), 0)])
    with pytest.raises(RobustokError, match="several beams"):
        served.generate_until([Instance("generate_until", {}, ("a", {"num_beams": 4}), 0)])


def test_what_is_wrong_with_a_served_model_is_one_line(folder: Path, url: str) -> None:
    build: Any = ServedLM
    for more, line in (
        ({}, "add tokenizer=FOLDER"),
        ({"tokenizer": str(folder / "llama"), "dtype": "float32"}, "has no argument 'dtype'"),
        ({"tokenizer": "demo"}, "the server's tokenizer gives"),
    ):
        with pytest.raises(RobustokError, match=line):
            build(url, **more)
    with pytest.raises(RobustokError, match="to `robustok lm-eval`"):
        load(url)
