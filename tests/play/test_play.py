"""The playground: its answers, its limits, and the page in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.play.conftest import MODEL, OPTIONS, SHAPE, TEXT, VOCAB, client, serving

import robustok as rt
from robustok import attack as package
from robustok.errors import RobustokError
from robustok.models import small_model, train_tokenizer
from robustok.play import application, server
from robustok.play.server import LONGEST, SAMPLES, attack_steps, picture, probabilities
from robustok.samplers import BUILT_IN
from robustok.scoring import score


def test_a_picture_is_what_the_library_says() -> None:
    result = picture(VOCAB, "starts with", "uniform", seed=0)
    lattice = VOCAB.lattice("starts with")
    assert result["count"] == f"{lattice.count():,}"
    assert "".join(result["rows"][0]).replace("·", " ") == "starts with"
    exact = lattice.counts(by="distance")
    assert sum(share for _, share, _ in result["bars"]) == pytest.approx(1, abs=0.02)
    for at, share, drawn in result["bars"]:
        assert share == pytest.approx(exact[at] / lattice.count())
        # Draws of `uniform` follow the exact shares: within 5 standard errors.
        assert abs(drawn - share) < 5 * np.sqrt(share * (1 - share) / SAMPLES) + 1e-9
    canonical = picture(VOCAB, "starts with", "canonical", seed=0)
    assert [bar[0] for bar in canonical["bars"] if bar[2]] == [0]


def test_probabilities_are_shares_of_the_options() -> None:
    result = probabilities(MODEL, VOCAB, TEXT, OPTIONS, "canonical", seed=0)
    logs = score(MODEL, [VOCAB.encode(TEXT)], [VOCAB.encode(o) for o in OPTIONS]).log_probs[0]
    wanted = np.exp(logs) / np.exp(logs).sum()
    assert result["shares"][0] == pytest.approx(wanted.tolist(), abs=1e-4)


def test_an_attack_has_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = [], package.attack
    monkeypatch.setattr(package, "attack", lambda *a, **k: calls.append(a) or run(*a, **k))
    steps = attack_steps(MODEL, VOCAB, TEXT, OPTIONS)
    assert len(steps) > 1 == len(calls)
    assert "".join(steps[0]["tokens"]).replace("·", " ") == TEXT
    assert len({tuple(step["tokens"]) for step in steps}) == len(steps)
    assert not any(step["won"] for step in steps[:-1])


def test_an_attack_stops_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    counted = MODEL.register_forward_pre_hook(lambda *_: passes.append(1))
    monkeypatch.setattr(server, "MODEL_SECONDS", -1.0)
    with pytest.raises(RobustokError, match="takes more than"):
        attack_steps(MODEL, VOCAB, TEXT, OPTIONS)
    assert len(passes) <= 1
    monkeypatch.undo()
    assert attack_steps(MODEL, VOCAB, TEXT, OPTIONS)
    counted.remove()


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("draw", {"text": ""}, "type a text"),
        ("draw", {"text": "a" * (LONGEST + 1)}, f"at most {LONGEST} characters"),
        ("draw", {"text": "a", "scheme": "unifrom"}, "did you mean 'uniform'"),
        ("draw", {"text": "a", "tokenizer": "other"}, "no tokenizer 'other'"),
        ("draw", {"text": "a", "seed": -1}, "a seed is"),
        ("draw", ["a"], "JSON object"),
        ("score", {"text": "a", "options": ["b"]}, "give 2 to 8 options"),
        ("attack", {"text": "a", "options": "b"}, "a line each"),
    ],
)
def test_what_is_wrong_is_one_line(path: str, body: Any, message: str) -> None:
    with client(models={"tiny": MODEL}) as asking:
        answer = asking.post(f"/api/{path}", json=body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_question_too_long_is_not_read_to_its_end(chunked: bool) -> None:
    whole = b'{"text": "' + b"a" * 30_000 + b'"}'
    with client() as asking:
        kind = {"Content-Type": "application/json"}
        answer = asking.post("/api/draw", content=iter([whole]) if chunked else whole, headers=kind)
    assert (answer.status_code, answer.json()["error"]) == (400, "the question is too long")


def test_the_page_knows_its_models_and_asks_none_without_one() -> None:
    with client(models={"tiny": MODEL}) as asking:
        assert asking.get("/api/about").json()["models"] == ["tiny"]
    with client() as asking:
        assert asking.get("/api/about").json()["models"] == []
        assert asking.post("/api/score", json={}).status_code == 404


def test_each_of_two_models_answers_with_its_own_tokenizer() -> None:
    other = train_tokenizer([TEXT], 270)
    vocabularies = {"tiny": VOCAB, "other": rt.Vocabulary.load(other), "alone": VOCAB}
    models = {"tiny": MODEL, "other": small_model(vocabularies["other"].size, SHAPE, seed=2)}
    question = {"text": TEXT, "options": OPTIONS, "scheme": "canonical"}
    with TestClient(application(vocabularies, models), base_url="http://127.0.0.1") as asking:
        for name, model in models.items():
            answer = asking.post("/api/score", json=question | {"tokenizer": name}).json()
            vocab = vocabularies[name]
            assert answer == probabilities(model, vocab, TEXT, OPTIONS, "canonical", seed=0)
        refused = asking.post("/api/score", json=question | {"tokenizer": "alone"})
    assert (refused.status_code, refused.json()["error"]) == (400, "no model 'alone' here")


def test_the_page_offers_every_scheme_that_fits() -> None:
    with client() as asking:
        offered = asking.get("/api/about").json()["schemes"]
        names = [scheme["name"] for scheme in offered]
        assert names[0] == "stochastok"
        fitting = {scheme.name for scheme in BUILT_IN} - {"unigram"}  # a BPE has no scores
        assert fitting <= {*names} and "unigram" not in names  # other tests register schemes
        for scheme in (one for one in offered if one["name"] in fitting):
            questions = [{"text": "a word", "scheme": scheme["name"]}]
            if scheme["strength"]:
                ends = (scheme["least"], scheme["most"])
                questions += [questions[0] | {"strength": end} for end in ends]
            for question in questions:
                answer = asking.post("/api/draw", json=question)
                assert answer.status_code == 200, answer.json()


def test_what_the_page_shows_belongs_to_the_text_that_it_shows() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine: install it to run the script of the page")
    page = Path(server.__file__).with_name("page.html")
    script = Path(__file__).with_name("page_in_node.js")
    done = subprocess.run([node, script, page], capture_output=True, text=True, check=True)
    answered, changed, late, empty, first, second = json.loads(done.stdout)
    assert answered == ["7", 6, ""]  # two options of three elements each
    assert changed == ["7", 0, ""]  # no answer to the text before
    assert late == ["7", 0, ""]  # nor one that comes after the change
    assert empty == ["–", 0, "type a text"]
    assert first == ["7", 6, ""]
    assert second == ["7", 6, False]  # beside it, where two are compared


def test_the_page_draws_and_asks_in_a_real_browser(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine: install it to see the page in a browser")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--window-size=390,1500", f"--user-data-dir={tmp_path}"]  # fmt: skip
    with serving(MODEL) as port:
        seen = subprocess.run(
            [browser, *quiet, "--virtual-time-budget=20000", "--dump-dom",
             f"http://127.0.0.1:{port}/"],
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip
    assert 'data-drawna="stochastok(alpha=0.5)"' in seen
    assert 'data-askeda="yes"' in seen
    assert seen.count('class="row"') == 1 + 6 + 1
    assert f"{VOCAB.lattice(TEXT.replace('me?', 'me, which?')).count():,}" in seen
