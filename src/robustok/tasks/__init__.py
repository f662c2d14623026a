"""Questions for models: generated language games, benchmarks, and their files."""

from robustok.tasks.benchmarks import HUB as HUB
from robustok.tasks.games import cute as cute
from robustok.tasks.games import langgame as langgame
from robustok.tasks.item import Item as Item
from robustok.tasks.item import Pair as Pair
from robustok.tasks.item import benchmark_files as benchmark_files
from robustok.tasks.item import read_items as read_items
from robustok.tasks.item import read_questions as read_questions
from robustok.tasks.item import write_items as write_items
from robustok.tasks.words import frequent_words as frequent_words
from robustok.tasks.words import read_texts as read_texts
from robustok.tasks.words import read_words as read_words

GAMES = {"langgame": langgame, "cute": cute}  # generators of questions
