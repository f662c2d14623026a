"""robustok finetune: train a model on questions whose tokenization is drawn anew at every step."""

from __future__ import annotations

from robustok.cli.options import (
    BatchSize,
    Items,
    Json,
    LearningRate,
    Model,
    Out,
    OwnTokenizer,
    Scheme,
    Seed,
    Steps,
    Warmup,
    print_training,
)
from robustok.cli.progress import bar

NAME = "finetune"


def command(
    model: Model,
    items: Items,
    scheme: Scheme,
    seed: Seed,
    out: Out,
    steps: Steps,
    batch_size: BatchSize,
    learning_rate: LearningRate,
    warmup: Warmup = 0,
    tokenizer: OwnTokenizer = None,
    as_json: Json = False,
) -> None:
    """Fine-tune MODEL on drawn tokenizations.

    The same call goes on after an interruption. The question is drawn with SCHEME, the answer
    stays canonical and is alone in the loss.
    """
    from robustok.models import load_model
    from robustok.samplers import sampler
    from robustok.tasks import read_items
    from robustok.training import finetune
    from robustok.vocabulary import Vocabulary

    questions = read_items(items)
    vocab = Vocabulary.load(tokenizer or model)
    draw = sampler(scheme, vocab)
    with bar(f"finetune {draw.spec}") as progress:
        done = finetune(
            load_model(model, dtype="float32"),
            vocab,
            questions,
            sampler=draw,
            seed=seed,
            out=out,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warmup=warmup,
            progress=progress,
        )
    print_training(done, draw.spec, out, as_json)
