"""Schemes of one's own: registered in a script, or found in an installed package."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.runtime import registry
from robustok.samplers.parameters import probability
from robustok.samplers.spec import SCHEMES

TOY = toy([bytes([b]) for b in b"abc "] + [b"ab", b"abc", b" a"], special=[b"<s>", b"</s>"])

MODULE = '''
"""A scheme in plain Python: spell tokens at random."""
import robustok as rt
from robustok.samplers.parameters import probability

class SpellDropout(rt.Sampler):
    name = "spell-dropout"
    example = "spell-dropout(p=0.5)"
    parameters = {"p": probability(0.1)}
    strength = "p"

    def draw(self, ids, random):
        spelled = []
        for n, i in enumerate(ids.tolist()):
            characters = rt.Characters(self.vocab).draw(ids[n : n + 1], random)
            spelled += characters if random.random() < self.p else [i]
        return spelled
'''
# What an installer leaves of the package, besides its module.
INSTALLED = {
    "METADATA": "Metadata-Version: 2.1\nName: spelled\nVersion: 1.0\n",
    "entry_points.txt": """
[robustok.schemes]
spell-dropout = spelled:SpellDropout
broken = spelled_but_missing:Nothing
""",
}
STUDY = """
name: own
title: A scheme of one's own
seed: 0
threads: 1
task: {kind: langgame, format: short, words: 30, train: 40, test: 4}
tokenizer: {size: 300}
model: {layers: 1, width: 8, heads: 1, kv_heads: 1, feed_forward: 16, max_length: 256}
pretrain: {schemes: [spell-dropout(p=0->1)], steps: 2, batch_size: 2, learning_rate: 1.0e-3}
evaluate: {eval_schemes: [canonical, spell-dropout( p=0.50 )], items: 2, draws: 2}
"""
# In one process: at_strength, the playground, the command line and the plan of a study.
SCRIPT = """
import io, json, sys
from contextlib import redirect_stdout
from starlette.testclient import TestClient
import robustok as rt
from robustok.cli import main
from robustok.models import train_tokenizer
from robustok.play import application

def command(*arguments):
    sys.argv = ["robustok", *arguments]
    with redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            assert not end.code, (arguments, end.code)
    return out.getvalue()

if __name__ == "__main__":
    texts = ["hello world", "the revolution"] * 4
    inner = train_tokenizer(texts, 300)
    inner.save("tokenizer.json")
    vocab = rt.Vocabulary.load(inner)
    solved = rt.at_strength("spell-dropout", vocab, texts * 50, length_ratio=2.0)
    drawn = solved.sample_batch(texts, seed=2, draws=50)
    ratio = rt.measure(vocab, vocab.encode_batch(texts), drawn).mean()["length_ratio"]
    assert 1.7 < ratio < 2.3, (solved, ratio)

    with TestClient(application({"tiny": vocab}), base_url="http://127.0.0.1") as client:
        question = {"text": "hello", "scheme": "spell-dropout", "strength": 1}
        answer = client.post("/api/draw", json=question)
        assert answer.json().get("rows", [None])[0] == list("hello"), answer.text

    options = ("--scheme", "spell-dropout(p=1)", "--seed", "0", "--tokenizer", "tokenizer.json")
    assert json.loads(command("sample", "hello", *options, "--json"))["tokens"] == [list("hello")]
    assert "spell-dropout" in command("sample", "--help")
    cells = command("study", "plan", "own.yaml", "--json").splitlines()
    trained = "spell-dropout(p=0->1)"
    assert f"evaluate {trained} on spell-dropout(p=0.5)" in json.loads(cells[-1])["label"]
"""


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered schemes are gone after the test."""
    fresh = {"_known": dict(SCHEMES), "_failures": {}, "_is_loaded": False}
    for name, value in fresh.items():
        monkeypatch.setattr(SCHEMES, name, value)


@pytest.mark.usefixtures("own_registry")
def test_a_registered_scheme_is_drawn_like_any_other() -> None:
    @rt.register
    class Split(rt.Sampler):
        name = "split"
        parameters = {"p": probability(0.5)}  # noqa: RUF012
        strength = "p"

        def draw(self, ids: np.ndarray, random: np.random.Generator) -> list[int]:
            finest = rt.Characters(self.vocab).draw(ids, random)
            return finest if random.random() < self.params["p"] else ids.tolist()

    assert rt.schemes()["split"] is Split
    sampler = rt.sampler("split(p=0.4)", TOY)
    texts = ["abc ab" * (1 + i % 3) for i in range(30)]
    rows = sampler.sample_batch(texts, seed=1, draws=3, keys=np.arange(30) + 5)
    lengths = {len(rows[i * 3 + d]) for i in range(0, 30, 3) for d in range(3)}
    assert lengths == {len(TOY.encode("abc ab")), len("abc ab")}  # both outcomes occur
    assert [TOY.decode_bytes(row) for row in rows] == [t.encode() for t in texts for _ in range(3)]
    assert np.array_equal(rows[3 * 7 + 0], sampler.sample(texts[7], seed=1, key=12))
    assert sampler.sample_batch(texts, seed=1, draws=3, keys=np.arange(30) + 5, epoch=1) != rows
    mixed = rt.sampler("mix(0.5 canonical, 0.5 split(p=1))", TOY)
    row = mixed.sample([7, *TOY.encode("abc ab"), 8], seed=2)
    assert row[0] == 7
    assert row[-1] == 8
    assert rt.Spec.parse("split(p=0->1)").at(0.5) == rt.Spec("split", {"p": 0.5})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0, 1], "ids of another text: b'ab', not b'abc'"),
        ([5, 7], "a special token"),
        ([99], "no ids of the tokenizer: id 99"),
        ("ab", "no ids of the tokenizer"),
    ],
)
@pytest.mark.usefixtures("own_registry")
def test_ids_of_another_text_are_refused(returned: object, message: str) -> None:
    class Wrong(rt.Sampler):
        name = "wrong"

        def draw(self, ids: np.ndarray, random: np.random.Generator) -> object:
            return returned

    with pytest.raises(rt.RobustokError, match=f"wrong: draw returned .*{message}"):
        rt.register(Wrong)(TOY).sample("abc", seed=0)


@pytest.mark.usefixtures("own_registry")
def test_what_is_no_scheme_is_not_registered() -> None:
    class Taken(rt.Sampler):
        name = "uniform"
        draw = rt.Characters.draw

    class Empty(rt.Sampler):
        name = "empty"

    class Nameless(rt.Sampler):
        draw = rt.Characters.draw

    class Overridden(rt.Uniform):
        name = "overridden"
        draw = rt.Characters.draw

    for scheme, message in (
        (Taken, "already registered"), (Empty, "needs a method draw"),
        (Nameless, "name must be a word"), (Overridden, "does not call draw"),
        (int, "subclass of robustok.Sampler"),
    ):  # fmt: skip
        with pytest.raises(rt.RobustokError, match=message):
            rt.register(scheme)  # type: ignore[type-var]


@pytest.mark.usefixtures("own_registry")
def test_a_broken_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("no module\nnamed numbers")

    entry = SimpleNamespace(
        name="roman", value="roman:Roman", load=load, dist=SimpleNamespace(name="romans")
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    message = "the scheme 'roman' of the package romans cannot be loaded: ImportError: no module"
    with pytest.raises(rt.RobustokError, match=message) as error:
        rt.sampler("roman(p=1)", TOY)
    assert "\n" not in str(error.value)
    assert rt.sampler("uniform", TOY)
    with pytest.warns(UserWarning, match=message):
        assert "roman" not in rt.schemes()


def test_an_installed_package_adds_its_scheme_everywhere(tmp_path: Path) -> None:
    for package in ("pydantic", "starlette", "click"):
        pytest.importorskip(package)
    target = tmp_path / "target"
    (target / "spelled-1.0.dist-info").mkdir(parents=True)
    (target / "spelled.py").write_text(MODULE)
    for file, text in INSTALLED.items():
        (target / "spelled-1.0.dist-info" / file).write_text(text)
    (tmp_path / "own.yaml").write_text(STUDY)
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = [str(target), *filter(None, sys.path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, text=True, check=False,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
