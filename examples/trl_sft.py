"""A TRL SFTTrainer script on chats that draws tokenizations, by one added line.

Perturbs the user's turns only; the system prompt, the assistant's turns and the template stay
canonical. Needs trl. Trains a tiny model, without a hub: python examples/trl_sft.py
"""

from __future__ import annotations

import sys

from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from robustok import robustify
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main(out: str = "runs/trl-sft") -> None:
    items = langgame(frequent_words(60), 256, seed=0, format="short")
    trained = train_tokenizer(
        [i.question + i.answer for i in items] + ["system user assistant\n"], 400
    )
    trained.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained, pad_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    tokenizer.chat_template = TEMPLATE
    model = small_model(len(tokenizer), Shape(2, 64, 2, 2, 160, 256), seed=0)
    chats = [
        {
            "messages": [
                {"role": "system", "content": "Answer with one of the words."},
                {"role": "user", "content": item.question},
                {"role": "assistant", "content": item.answer.strip()},
            ]
        }
        for item in items
    ]
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=out,
            num_train_epochs=2,
            per_device_train_batch_size=32,
            learning_rate=3e-3,
            assistant_only_loss=True,
            max_length=256,
            bf16=False,
            dataloader_pin_memory=False,
            report_to=[],
        ),
        train_dataset=Dataset.from_list(chats),
        processing_class=tokenizer,
    )

    robustify(trainer, "uniform-k(alpha=1)", seed=0, where="user")  # the added line

    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
