import itertools
import json

import numpy as np
import pytest
from tests.oracles.data import real
from tests.training.conftest import architecture, stop_at
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import robustok as rt
from robustok.errors import RobustokError
from robustok.models import Shape, small_model, train_tokenizer
from robustok.samplers import sampler
from robustok.tasks import frequent_words
from robustok.tokenizer.vocabulary import end_of_text
from robustok.training import pretrain
from robustok.training.rows import PackedStream

WORDS = frequent_words(60)
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, RNG.integers(1, 60))) for _ in range(120)]
VOCAB = rt.Vocabulary.load(train_tokenizer(TEXTS, 350))
DOCUMENTS = VOCAB.encode_batch(TEXTS)
CANONICAL, UNIFORM = sampler("canonical", VOCAB), sampler("uniform", VOCAB)
BLOCK_SIZE = 32
PLAN = {"steps": 30, "batch_size": 8, "learning_rate": 1e-2, "save_every": 10}


def stream(draw=UNIFORM, **options):
    return PackedStream(DOCUMENTS, draw, seed=0, block_size=BLOCK_SIZE, end=0, **options)


def first(count, draw=UNIFORM):
    return [row["input_ids"] for row in itertools.islice(stream(draw), count)]


def tiny(max_length=BLOCK_SIZE):
    return small_model(VOCAB.size, Shape(1, 32, 2, 1, 64, max_length), seed=0)


def rounds(draw):
    """The documents of the first two rounds through the text, as bytes."""
    joined = np.concatenate(first(900, draw))
    texts = [VOCAB.decode_bytes(p) for p in np.split(joined, np.flatnonzero(joined == 0))]
    texts = [t.replace(b"<|endoftext|>", b"").decode() for t in texts]
    return texts[: len(TEXTS)], texts[len(TEXTS) : 2 * len(TEXTS)], joined


@pytest.mark.parametrize("draw", [CANONICAL, UNIFORM])
def test_each_round_holds_every_document_once_in_a_new_order(draw):
    one, two, _ = rounds(draw)
    assert sorted(one) == sorted(two) == sorted(TEXTS)
    assert one != two


def test_a_seed_repeats_and_a_round_draws_anew():
    assert all(np.array_equal(a, b) for a, b in zip(first(50), first(50), strict=True))
    one, two, joined = rounds(UNIFORM)
    rows = np.split(joined, np.flatnonzero(joined == 0))
    longest = max(TEXTS, key=len)
    again = rows[one.index(longest)], rows[len(TEXTS) + two.index(longest)]
    assert not np.array_equal(again[0][1:], again[1][1:])


def test_it_learns(tmp_path):
    done = pretrain(tiny(), VOCAB, TEXTS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN)
    assert done.losses[-1][1] < done.losses[0][1] - 0.5


def test_a_stopped_run_goes_on_with_the_same_losses(tmp_path):
    def run(out, **options):
        return pretrain(tiny(), VOCAB, TEXTS, sampler=UNIFORM, seed=0, out=out, **PLAN, **options)

    straight = run(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", progress=stop_at(17))
    resumed = run(tmp_path / "b")
    assert resumed.losses == straight.losses
    assert run(tmp_path / "b") == resumed


def test_an_architecture_that_predicts_each_id_from_itself_is_refused(tmp_path):
    with pytest.raises(RobustokError, match=r"loss of a BartForCausalLM .* not that of each"):
        pretrain(architecture("bart"), VOCAB, TEXTS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN)
    assert not list(tmp_path.iterdir())


def test_no_text_is_one_line(tmp_path):
    for texts in ([], [""]):
        with pytest.raises(RobustokError, match="no text to train on"):
            pretrain(tiny(), VOCAB, texts, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN)


def named(token):
    """A byte-level vocabulary in which id 0 is an ordinary token, as in GPT-2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([token])
    return rt.Vocabulary.load(tokenizer)


def begun(vocab, out, **options):
    """A model after one step of pre-training."""
    model = small_model(vocab.size, Shape(1, 16, 2, 1, 16, 16), seed=0)
    pretrain(
        model, vocab, TEXTS, sampler=sampler("canonical", vocab), seed=0, out=out,
        steps=1, batch_size=1, learning_rate=1e-3, **options,
    )  # fmt: skip
    return model


@pytest.mark.parametrize("token", ["<|endoftext|>", "<|end_of_text|>", "</s>"])
def test_documents_end_with_the_tokenizers_own_end_of_text(tmp_path, monkeypatch, token):
    vocab = named(token)
    end = vocab.size - 1
    assert end_of_text(vocab) == end
    assert vocab.tokens[0] == b"!"
    seen = []
    real = PackedStream.__init__

    def spy(self, *args, **options):
        seen.append(options["end"])
        real(self, *args, **options)

    monkeypatch.setattr(PackedStream, "__init__", spy)
    begun(vocab, tmp_path)
    assert seen == [end]
    saved = json.loads((tmp_path / "config.json").read_text())
    assert {saved[f"{name}_token_id"] for name in ("bos", "eos", "pad")} == {end}
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation["eos_token_id"] == end


def test_a_tokenizer_without_an_end_of_text_needs_one_named(tmp_path):
    vocab = named("<|what|>")
    with pytest.raises(RobustokError, match=r"no end-of-text token is known.*<\|what\|>"):
        begun(vocab, tmp_path / "a")
    model = begun(vocab, tmp_path / "b", end="<|what|>")
    assert model.config.eos_token_id == vocab.size - 1


@pytest.mark.parametrize(
    ("name", "expected"), [("gpt2", 50256), ("llama3", 128001), ("qwen3", 151643), ("llama2", 2)]
)
def test_the_end_of_text_of_real_tokenizers(name, expected):
    assert end_of_text(real(name)) == expected


def test_other_borders_of_documents_are_another_training(tmp_path):
    run = {"sampler": CANONICAL, "seed": 0, "out": tmp_path, **PLAN, "steps": 1}
    pretrain(tiny(), VOCAB, DOCUMENTS, **run)
    joined = rt.Ragged.from_rows([DOCUMENTS.values])
    with pytest.raises(RobustokError, match="texts"):
        pretrain(tiny(), VOCAB, joined, **run)
