"""The schemes: each a probability distribution over the tokenizations of a text, one a file."""

from robustok.samplers.base import Sampler as Sampler
from robustok.samplers.bpe_dropout import BpeDropout as BpeDropout
from robustok.samplers.canonical import Canonical as Canonical
from robustok.samplers.characters import Characters as Characters
from robustok.samplers.exactly import Exactly as Exactly
from robustok.samplers.grampa import Grampa as Grampa
from robustok.samplers.maxmatch_dropout import MaxMatchDropout as MaxMatchDropout
from robustok.samplers.mix import Mix as Mix
from robustok.samplers.registry import SCHEMES as SCHEMES
from robustok.samplers.registry import register as register
from robustok.samplers.registry import sampler as sampler
from robustok.samplers.registry import schemes as schemes
from robustok.samplers.schedules import Schedule as Schedule
from robustok.samplers.schedules import at_progress as at_progress
from robustok.samplers.schedules import schedule as schedule
from robustok.samplers.spec import Spec as Spec
from robustok.samplers.stochastok import StochasTok as StochasTok
from robustok.samplers.stochastok_uniform import StochasTokUniform as StochasTokUniform
from robustok.samplers.uniform import Uniform as Uniform
from robustok.samplers.uniform_k import UniformK as UniformK
from robustok.samplers.unigram import Unigram as Unigram
