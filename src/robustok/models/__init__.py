"""Models: small ones from random weights, and any causal language model by path or name."""

from robustok.models.load import Lora as Lora
from robustok.models.load import add_lora as add_lora
from robustok.models.load import check_fit as check_fit
from robustok.models.load import load_model as load_model
from robustok.models.load import load_tokenizer as load_tokenizer
from robustok.models.load import open_model as open_model
from robustok.models.load import save_tokenizer as save_tokenizer
from robustok.models.served import ServedModel as ServedModel
from robustok.models.small import ARCHITECTURES as ARCHITECTURES
from robustok.models.small import SHAPES as SHAPES
from robustok.models.small import Shape as Shape
from robustok.models.small import small_model as small_model
from robustok.models.small import train_tokenizer as train_tokenizer
