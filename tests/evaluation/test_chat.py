from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from tests.guard.tokenizers_of import metaspace_tokenizer
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok import RobustokError
from robustok.evaluation import after_prefix, chat_frame
from robustok.models import train_tokenizer

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
    frame = chat_frame(tokenizer, system="Safe?", user="Judge: {text} Now.")
    prompt = tokenizer.decode(frame.prefix) + "garden" + tokenizer.decode(frame.suffix)
    messages = [
        {"role": "system", "content": "Safe?"},
        {"role": "user", "content": "Judge: garden Now."},
    ]
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
    with pytest.raises(RobustokError, match="once"):
        chat_frame(chat(backend, TEMPLATE), user="no place")
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
