"""Prompts of solved examples and of chat templates: the tokenizer's own ids of the whole."""

import json
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, byte_level, metaspace, metaspace_tokenizer
from tests.oracles.data import data_path
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok import RobustokError
from robustok.evaluation import HEADER, after_prefix, chat_frame, evaluate, solved_examples
from robustok.models import train_tokenizer
from robustok.tasks import Item

FAMILIES = {
    "GPT-2": partial(byte_level, None),
    "Llama 3": partial(byte_level, LLAMA3),
    "Qwen 3": partial(byte_level, LLAMA3, nfc=True),
    "a space before a text": partial(byte_level, None, prefix=True),
    "Llama 2": partial(metaspace, prefix=True),
    "Gemma": partial(metaspace, prefix=False),
}
MARK = "\u0301"
TEXT = st.text(alphabet=f"theris o?!.,\n 12é{MARK}東", min_size=1, max_size=12)
PROMPTS = st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=4)


def prompt_of(items: list[Item]) -> str:
    solved = "".join(f"{item.question}{item.answer}\n\n" for item in items[:-1])
    return f"{HEADER}\n\n{solved}{items[-1].question}"


def placed(vocab: rt.Vocabulary, items: list[Item], scheme: str) -> tuple[np.ndarray, np.ndarray]:
    """The ids before the last question, and its canonical ids."""
    *solved, last = items
    prefix = partial(solved_examples, vocab, solved, scheme, seed=0)
    return after_prefix(vocab, lambda text: prefix(question=text), last.question)


@pytest.fixture(scope="module", params=[*FAMILIES])
def family(request: pytest.FixtureRequest) -> rt.Vocabulary:
    return FAMILIES[request.param]()


@settings(max_examples=40)
@given(prompt=PROMPTS)
def test_a_canonical_prompt_has_the_ids_of_the_whole(family, prompt) -> None:
    assume(not any(text.startswith(MARK) for texts in prompt for text in texts))
    items = [Item(f"k{i}", q, (a, "x"), 0) for i, (q, a) in enumerate(prompt)]
    right = family.encode(prompt_of(items)).tolist()
    assert np.concatenate(placed(family, items, "canonical")).tolist() == right


def test_a_mark_that_composes_with_the_text_before_it_is_encoded_alone() -> None:
    vocab = FAMILIES["Qwen 3"]()
    items = [Item("a", "i", (MARK, "x"), 0), Item("b", "1", ("1", "x"), 0)]
    ids = np.concatenate(placed(vocab, items, "canonical"))
    assert vocab.decode(ids) == prompt_of(items) != vocab.decode(vocab.encode(prompt_of(items)))


@settings(max_examples=40)
@given(prompt=PROMPTS)
def test_a_drawn_prompt_spells_the_whole_and_draws_questions_only(family, prompt) -> None:
    vocab = family
    items = [Item(f"k{i}", q, (a, "x"), 0) for i, (q, a) in enumerate(prompt)]
    before, ids = placed(vocab, items, "canonical")
    for scheme in ("uniform", "stochastok(alpha=1)", "bpe-dropout(p=0.5)", "characters"):
        drawn, same = placed(vocab, items, scheme)
        assert vocab.decode_bytes([*drawn, *same]) == vocab.decode_bytes([*before, *ids])
        assert same.tolist() == ids.tolist()
    for scheme in ("stochastok(alpha=0)", "bpe-dropout(p=0)"):
        assert placed(vocab, items, scheme)[0].tolist() == before.tolist()


@pytest.mark.parametrize("name", ["gpt2", "llama2", "mistral", "llama3", "qwen3", "internlm2"])
def test_published_tokenizers_agree_with_their_library(name: str) -> None:
    """The ids are those of the whole prompt, as lm-eval sends them, and not of its parts.

    A question after examples is no text of its own: Llama 2 has no space before it.
    """
    from tokenizers import Tokenizer

    lm_eval = pytest.importorskip("lm_eval.api.model")
    content = data_path("tokenizers", name.replace("mistral", "llama2"), "tokenizer.json")
    spec = json.loads(content.read_text())
    if name == "mistral":  # the space before a text is a pre-tokenizer's
        first = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
        spec |= {"normalizer": None, "pre_tokenizer": first}
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    vocab = rt.Vocabulary.load(tokenizer)

    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    harness = SimpleNamespace(backend="causal", tok_encode=encoded)
    for begin, end in (("Which", ""), ("\n\nWhich", "."), (" A", "?\n"), ("", " 1")):
        question = f"{begin} word is number 12? Answer:{end}"
        items = [Item(f"k{i}", question, (" one", "\n two"), i % 2) for i in range(3)]
        prompt, got = prompt_of(items), np.concatenate(placed(vocab, items, "canonical")).tolist()
        assert got == encoded(prompt)
        if not end[-1:].isspace():  # lm-eval would score it with the answer
            assert got == lm_eval.TemplateLM._encode_pair(harness, prompt, " one")[0]
        if begin == "Which":
            parts = [solved_examples(vocab, items[:2], seed=0), vocab.encode(question)]
            assert (np.concatenate(parts).tolist() == got) == (name not in ("llama2", "mistral"))


def test_evaluate_reads_the_ids_of_the_whole_prompt(model, vocab, items, monkeypatch) -> None:
    from robustok.evaluation import accuracy

    seen: list[list[int]] = []

    def scored(model: Any, requests: Any, **options: Any) -> Any:
        seen.extend([*r.prefix, *r.questions[0]] for r in requests)
        return score_many(model, requests, **options)

    score_many = accuracy.score_many
    monkeypatch.setattr(accuracy, "score_many", scored)
    prefix = partial(solved_examples, vocab, items[:2], seed=0)
    evaluate(
        model, vocab, items[2:], "canonical", seed=0, prefix=lambda text: prefix(question=text)
    )
    right = [vocab.encode(prompt_of([*items[:2], item])).tolist() for item in items[2:]]
    assert seen == right


TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def backend(items) -> Tokenizer:
    tokenizer = train_tokenizer([item.question for item in items], 330)
    tokenizer.add_special_tokens(["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"])
    return tokenizer


def chat(backend: Tokenizer, template: str | None) -> Any:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.chat_template = template
    return tokenizer


def test_the_frame_and_the_text_are_the_whole_prompt(backend) -> None:
    tokenizer = chat(backend, TEMPLATE)
    frame = chat_frame(tokenizer, system="Safe?")
    prompt = tokenizer.decode(frame.prefix) + "garden" + tokenizer.decode(frame.suffix)
    messages = [{"role": "system", "content": "Safe?"}, {"role": "user", "content": "garden"}]
    assert prompt == tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert frame.suffix[-1] == backend.token_to_id("<|assistant|>")


def test_special_tokens_are_text_where_the_tokenizer_splits_them(backend) -> None:
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=backend, split_special_tokens=True)
    tokenizer.chat_template = TEMPLATE
    vocab, frame = rt.Vocabulary.load(tokenizer), chat_frame(tokenizer)
    ids = [*frame.prefix, *vocab.encode("garden"), *frame.suffix]
    chat = [{"role": "user", "content": "garden"}]
    right = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert ids == right and vocab.special.isdisjoint(ids)


def test_an_encoder_that_puts_a_space_before_a_text_puts_no_second_one() -> None:
    tokenizer = chat(
        metaspace_tokenizer(prefix=True),
        "<s>{% for m in messages %}[the] {{ m['content'] }} [/the]</s>{% endfor %}",
    )
    vocab, frame = rt.Vocabulary.load(tokenizer), chat_frame(tokenizer)
    ids = [*chain(*after_prefix(vocab, frame.prefix, "the rest")), *frame.suffix]
    messages = [{"role": "user", "content": "the rest"}]
    assert ids == list(tokenizer.apply_chat_template(messages)["input_ids"])


def test_mistakes_are_errors(backend) -> None:
    with pytest.raises(RobustokError, match="no chat template"):
        chat_frame(chat(backend, None))
    with pytest.raises(RobustokError, match="0 times"):
        chat_frame(chat(backend, "{{ messages | length }}"))


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{{ raise_exception('no') }}",
        "{% if %}",
        "{{ 'a'.center(10 ** 30) }}",
    ],
)
def test_a_hostile_template_ends_in_one_line(backend, template: str) -> None:
    with pytest.raises(RobustokError, match="the chat template failed: ") as error:
        chat_frame(chat(backend, template))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
