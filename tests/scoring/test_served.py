"""A model behind a server is scored, evaluated and attacked as the same model in this process."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import items as items
from tests.attack.conftest import vocab as vocab
from tests.oracles.models import tiny_model
from tests.oracles.served import ServedStandIn, serving

from robustok import Ragged, RobustokError, Vocabulary, sampler
from robustok.attack import attack, greedy_answer
from robustok.cli.app import run
from robustok.evaluation import (
    embedding_distances,
    evaluate,
    lipschitz_bound,
    perplexity,
    solved_examples,
)
from robustok.models import ServedModel, load_model, open_model
from robustok.models.served import KEY_VARIABLE
from robustok.runtime.hub import own_tokenizer
from robustok.runtime.inputs import read_rows
from robustok.scoring import Request, score, score_many
from robustok.tasks import Item, write_items


@pytest.fixture(scope="module")
def local(vocab: Vocabulary) -> Any:
    return tiny_model("llama", vocab.size, seed=1)


@pytest.fixture
def stand_in(local: Any, vocab: Vocabulary) -> ServedStandIn:
    return ServedStandIn(local, vocab)


@pytest.fixture
def url(stand_in: ServedStandIn) -> Iterator[str]:
    with serving(stand_in) as address:
        yield address


@pytest.fixture
def served(url: str) -> ServedModel:
    return ServedModel(url, retries=3, batch=3)


def test_scores_of_options_of_several_tokens_are_those_of_the_local_model(
    local: Any, served: ServedModel, vocab: Vocabulary
) -> None:
    rows = sampler("uniform", vocab).sample_batch(
        ["hello world", "the revolution"], seed=0, draws=4
    )
    requests = [
        Request(rows[:4], [[5], [6, 7], [6, 8, 9]], prefix=[1, 2]),
        Request(rows[4:], [[3, 4], [3]]),
    ]
    here, there = score_many(local, requests), score_many(served, requests)
    for mine, theirs in zip(here, there, strict=True):
        np.testing.assert_allclose(theirs.log_probs, mine.log_probs, atol=1e-5)
        assert theirs.tokens_naive == mine.tokens_naive
        assert theirs.mode == "served"


def test_more_options_than_a_server_takes_ids_of(local: Any, served: ServedModel) -> None:
    request = Request(
        Ragged.from_rows([[5, 6], [7]]), [*([i] for i in range(1, 200)), range(1, 40)]
    )
    (here,), (there,) = score_many(local, [request]), score_many(served, [request])
    np.testing.assert_allclose(there.log_probs, here.log_probs, atol=1e-4)


def test_evaluation_few_shot_and_attack_are_those_of_the_local_model(
    local: Any, served: ServedModel, vocab: Vocabulary, items: list[Item]
) -> None:
    prefix = solved_examples(vocab, items[:2], "stochastok(alpha=1)", seed=0)
    for before in (None, prefix):
        here, there = (
            evaluate(model, vocab, items[2:], "uniform", draws=3, seed=0, prefix=before)
            for model in (local, served)
        )
        answers = [[(o.item.key, o.predictions) for o in one.outcomes] for one in (here, there)]
        assert answers[0] == answers[1]
        assert there.precision == "served"
    settings: dict[str, Any] = {"options": items[0].choices, "label": 0, "steps": 3, "seed": 0}
    mine, theirs = (attack(m, vocab, items[0].question, **settings) for m in (local, served))
    assert mine.ids.tolist() == theirs.ids.tolist()
    np.testing.assert_allclose(theirs.margins, mine.margins, atol=1e-6)


def test_perplexity_is_that_of_the_local_model(
    local: Any, served: ServedModel, vocab: Vocabulary
) -> None:
    long = "hello revolution " * local.config.max_position_embeddings  # read in chunks
    texts = ["hello world, hello revolution", "the world", long]
    here, there = (
        perplexity(model, vocab, texts, "uniform", draws=2, seed=0, start=0)
        for model in (local, served)
    )
    assert there.perplexity == pytest.approx(here.perplexity, rel=1e-5)
    with pytest.raises(RobustokError, match="give the start token"):
        perplexity(served, vocab, texts, "uniform", seed=0)


def test_an_answer_comes_from_the_server(
    local: Any, served: ServedModel, vocab: Vocabulary
) -> None:
    ids = vocab.encode("hello")
    here, there = (greedy_answer(m, vocab, ids, max_new_tokens=1) for m in (local, served))
    assert here == there


def test_a_busy_server_and_a_lost_connection_are_asked_again(
    stand_in: ServedStandIn, served: ServedModel, local: Any
) -> None:
    stand_in.failures = [503, 0, 429]
    values = score(served, [[5, 6]], [[1], [2]]).log_probs
    np.testing.assert_allclose(values, score(local, [[5, 6]], [[1], [2]]).log_probs, atol=1e-5)
    assert stand_in.n_completions == 4


def test_a_server_that_is_gone_is_one_line(stand_in: ServedStandIn, url: str) -> None:
    model = ServedModel(url, retries=1)
    stand_in.dies_after = 0
    with pytest.raises(RobustokError, match="start the server, and run the same command again"):
        score(model, [[5, 6]], [[1]])
    with pytest.raises(RobustokError, match="no answer from"):
        ServedModel("http://127.0.0.1:9/v1", retries=0)
    with pytest.raises(RobustokError, match=r"404: .*Not Found.*; give the address of vLLM's /v1"):
        ServedModel(url.removesuffix("/v1"))


def test_an_id_that_the_server_refuses_is_one_line(served: ServedModel) -> None:
    with pytest.raises(RobustokError, match="answered 400: Token id 70000 is out of vocabulary"):
        score(served, [[5, 70_000]], [[1]])


def test_another_tokenizer_than_the_servers_is_refused_before_the_first_score(
    stand_in: ServedStandIn, served: ServedModel, vocab: Vocabulary, items: list[Item]
) -> None:
    stand_in.vocab = Vocabulary.load("demo")
    with pytest.raises(RobustokError, match="the server's tokenizer gives"):
        evaluate(served, vocab, items, "canonical", seed=0)
    assert stand_in.n_completions == 0


def test_the_key_comes_from_the_environment(
    local: Any, vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(ServedStandIn(local, vocab, key="secret")) as url:
        with pytest.raises(RobustokError, match="several models"):
            ServedModel(url)
        model = ServedModel(f"{url}#adapter")
        assert model.max_length == local.config.max_position_embeddings
        with pytest.raises(RobustokError, match=f"401: Unauthorized; set {KEY_VARIABLE}"):
            score(model, [[5]], [[1]])
        monkeypatch.setenv(KEY_VARIABLE, "secret")
        assert score(model, [[5]], [[1]]).log_probs.shape == (1, 1)
        with pytest.raises(RobustokError, match="it has tiny, adapter"):
            ServedModel(f"{url}#other")


def test_what_needs_weights_says_so(served: ServedModel, url: str, vocab: Vocabulary) -> None:
    assert isinstance(open_model(url), ServedModel)
    with pytest.raises(RobustokError, match="behind a server"):
        embedding_distances(served, vocab, ["hello"], seed=0)
    with pytest.raises(RobustokError, match="behind a server"):
        lipschitz_bound(served)
    with pytest.raises(RobustokError, match="is behind a server, and this needs a model on"):
        load_model(url)


def test_a_probability_of_zero_and_a_missing_one(
    stand_in: ServedStandIn, served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = stand_in.choice

    def changed(value: float | None) -> Any:
        def choice(*arguments: Any) -> dict[str, Any]:
            answer = original(*arguments)
            answer["logprobs"]["top_logprobs"][0] |= {"token_id:1": value}
            return answer

        return choice

    monkeypatch.setattr(stand_in, "choice", changed(-9999.0))
    assert score(served, [[5]], [[1], [2]]).log_probs[0, 0] == -1e30
    monkeypatch.setattr(stand_in, "choice", changed(None))
    with pytest.raises(RobustokError, match="not a number"):
        score(served, [[5]], [[1], [2]])
    monkeypatch.setattr(
        stand_in, "choice", lambda *a: original(*a) | {"logprobs": {"top_logprobs": [{}]}}
    )
    with pytest.raises(RobustokError, match="logprob_token_ids"):
        score(served, [[5]], [[1], [2]])


def test_items_without_a_question_need_a_start_token(
    served: ServedModel, vocab: Vocabulary, items: list[Item]
) -> None:
    sentences = [replace(item, question="") for item in items]
    with pytest.raises(RobustokError, match="give the start token"):
        evaluate(served, vocab, sentences, "canonical", seed=0)


@pytest.fixture
def folder_and_server(
    stand_in: ServedStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ServedStandIn:
    """The model `local` of the working folder, the same behind the stand-in, and `i.jsonl`."""
    vocab = Vocabulary.load("demo")
    stand_in.model, stand_in.vocab = tiny_model("llama", vocab.size, seed=1), vocab
    stand_in.model.save_pretrained(tmp_path / "local")
    own = own_tokenizer("demo")
    assert own is not None
    shutil.copy(own, tmp_path / "local" / "tokenizer.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("urllib3.util.retry.Retry.sleep", lambda *_: None)
    items = [Item(f"q{n}", f"is {n} odd?", (" no", " yes"), n % 2) for n in range(40)]
    write_items("i.jsonl", items)
    return stand_in


def test_evaluate_asks_a_server_as_it_asks_a_folder(
    folder_and_server: ServedStandIn, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = "--items i.jsonl --limit 6 --draws 2 --json -s canonical -s uniform"
    common += " -s adversarial(steps=1)"
    rows = []
    for name in ("m=local", f"m={url}"):
        served = ["--tokenizer", "demo"] if "http" in name else []
        options = [*common.split(), *served, "--out", f"out{len(rows)}"]
        assert run(["evaluate", name, *options]) == 0
        printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        rows.append([row for row in printed if "accuracy" in row])
    for here, there in zip(*rows, strict=True):
        assert here["accuracy"] == there["accuracy"], here["eval_scheme"]
        assert (here["precision"], there["precision"]) == ("float32", "served")


def test_a_run_goes_on_after_its_server_was_killed_within_it(
    folder_and_server: ServedStandIn, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = folder_and_server
    command = ["evaluate", f"m={url}", "--tokenizer", "demo", "--items", "i.jsonl", "-s", "uniform"]
    command += ["-s", "adversarial(steps=1)", "--draws", "2"]
    assert run([*command, "--out", "unbroken"]) == 0
    whole = stand_in.n_completions
    for lost in (whole * 3 // 4, 20):  # within the attack, and within the first measurement
        out = f"stopped{lost}"
        stand_in.n_completions, stand_in.dies_after = 0, lost
        capsys.readouterr()
        assert run([*command, "--out", out]) == 2
        errors = capsys.readouterr().err.strip().splitlines()
        assert "start the server, and run the same command again" in errors[-1]
        assert not any("Traceback" in line for line in errors)
        stand_in.n_completions, stand_in.dies_after = 0, None
        assert run([*command, "--out", out]) == 0
        assert (stand_in.n_completions < whole) == (lost > 40)  # a finished one is not repeated
        assert measured(Path(out)) == measured(Path("unbroken"))


def measured(folder: Path) -> Any:
    """The rows of a run without its times, and its answers as bytes."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    for row in rows:
        del row["model"]["training_seconds"]
    return rows, {file.name: file.read_bytes() for file in (folder / "items").iterdir()}


def test_red_team_attacks_a_served_model_as_a_folder(
    folder_and_server: ServedStandIn, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for name, out in (("local", "here"), (url, "there")):
        options = ["--tokenizer", "demo", "--text", "hello world", "--target", " yes", "--json"]
        options += ["-s", "adversarial(steps=1)"]
        assert run(["red-team", name, "--objective", "target", *options, "--out", out]) == 0
        printed.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    (here,), (there,) = printed
    assert here["ids"] == there["ids"]
    assert there["score"] == pytest.approx(here["score"], abs=1e-4)
    options.remove("--json")
    assert run(["red-team", url, "--objective", "target", *options, "--out", "there"]) == 0
    assert capsys.readouterr().out.startswith(f"{url}: behind a server, seed 0\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--items", "i.jsonl"], "--tokenizer: a server does not give its tokenizer"),
        (["--texts", "t.txt", "--tokenizer", "demo"], "give the start token"),
    ],
)
def test_what_a_server_does_not_give_is_one_line(
    folder_and_server: ServedStandIn, url: str, arguments: list[str], message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    Path("t.txt").write_text("hello\n")
    assert run(["evaluate", url, *arguments]) == 2
    assert message in capsys.readouterr().err


CARD = """
name: card
title: A card
seed: 0
readme: true
model: {name: smollm2-135m}
task: {kind: langgame, words: 60, train: 8, test: 6, format: short}
corpus: {measured: 2}
evaluate: {eval_schemes: [canonical, uniform], items: 4, draws: 2, overflow: left}
perplexity: {eval_schemes: [canonical]}
"""


def test_a_served_model_gets_a_card(
    folder_and_server: ServedStandIn, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("card.yaml").write_text(CARD)
    command = ["study", "run", "card.yaml", "--model", f"{url}#tiny"]
    for more, line in (
        ([], "--tokenizer: a server does not give its tokenizer"),
        (["--tokenizer", "demo"], "perplexity needs: give the start token"),
    ):
        assert run([*command, *more]) == 2
        assert line in capsys.readouterr().err
    assert folder_and_server.n_completions == 0
    command += ["--tokenizer", "demo", "--start-token", "<|endoftext|>"]
    assert run(command) == 0
    page = Path("runs/card-tiny/README.md").read_text()
    assert "# tiny\n\nAsked behind a server." in page and "from_pretrained" not in page
    assert url not in page and "library_name" not in page
    rows = read_rows(Path("runs/card-tiny/results.jsonl"))
    assert {row["model"]["name"] for row in rows} == {"tiny"}
    assert {row["precision"] for row in rows} == {"served"}
