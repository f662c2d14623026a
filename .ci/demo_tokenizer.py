"""Train the tokenizer `demo` of the package: a byte-level BPE of 4,000 tokens.

    python .ci/demo_tokenizer.py src/robustok/tokenizer/demo.json

It is trained on three texts, all of which may be used and passed on:

- EVERYDAY below, written for this purpose and part of this project (Apache-2.0). It counts 40
  times, so that common English words are tokens;
- the pages of `docs/`, for the words of this field (Apache-2.0);
- the documentation of the Python language that comes with Python, `pydoc_data.topics` (PSF-2.0, a
  permissive license), for punctuation, numbers and code.

The same texts give the same tokenizer; with another release of Python, or after an edit of a page,
merges near the end of the list change. Train it again only with a reason: examples and tests
show its draws.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from pydoc_data.topics import topics

from robustok.models import train_tokenizer

SIZE = 4000
WEIGHT = 40  # of EVERYDAY
PAGES = Path(__file__).parents[1] / "docs"
EVERYDAY = """
hello world
hello everyone
and more
Hello world, and more. Hello, how are you today? Good morning, good evening, good night, thank you.
The quick brown fox jumps over the lazy dog. What is the capital of France? The capital is Paris.
Which word has the most letters? Which word is the longest, which is the shortest, and which one
starts with the letter a? Choose the right answer. The answer to the question is yes, not no.
People have lived in this city for more than two hundred years. Every year, many children go to
school, where they learn to read, to write and to count. Their mother and father work all day, and
in the evening the family sits around the table to eat bread, fruit, fish, meat or rice and to
drink water, milk, coffee or tea. Some friends come to visit, bring a small present and tell a long
story. The house has a red door, a green roof and white walls. Inside there are four rooms: a
kitchen, a bedroom, a bathroom and a large living room with chairs, a bed, books, pictures and a
piano. Music plays on the radio while the cat sleeps under the window. The dog runs through the
garden after a ball, between the trees and across the grass, until it is tired. Birds sing in the
morning. When spring comes the snow on the mountain melts and the river rises. In summer the sun is
hot, the sky is blue, and we walk along the beach by the sea. In autumn leaves fall from the trees,
the wind is strong and it begins to rain. Winter nights are cold and dark, but the fire keeps us
warm. On Monday she took the train to the office. On Tuesday he drove his new car to the hospital
because his brother was ill. By Wednesday everybody felt better. They will meet again on Thursday,
Friday or Saturday, perhaps on Sunday, in January, February, March, April, May, June, July, August,
September, October, November or December. One, two, three, four, five, six, seven, eight, nine,
ten, twenty. The government of the country wants to change the law about money, work and health. A
woman asked the president whether the price of food would become lower this month. He said that
nobody could know before the end of the year. The newspaper wrote about the war, the market and the
weather. Science tries to explain how nature works. The earth moves around the sun, and the moon
around the earth. Light travels faster than sound. Water freezes into ice, and iron is heavier than
wood. A doctor knows the human body: the head, face, eyes, ears, nose, mouth, neck, arms, hands,
legs, feet, heart and blood. A teacher explains history, language, mathematics, physics and art. A
farmer grows corn and keeps cows, horses, sheep and chickens. A computer stores information, a
machine saves time, and an engineer builds bridges, streets, ships and airplanes. A student needs
paper and a pencil. I think that you should not believe everything which you hear. You can find the
truth if you look for it yourself. Sometimes it is hard to understand what others mean, and it may
take some time to become friends. Please help me, open the door, close the window, give them back
what they lost, and let us start over. She would have gone there if she had known. He could not see
anything without his glasses. They were happy, sad, angry, afraid, young, old, rich, poor,
beautiful, strong, weak, clean, important, different, possible, true, false, early, late, near,
far, full, empty, high, low, open, easy, difficult. Someone must have been here last night, since
nothing is where it was. Never mind: it is only a game. The system of the world depends on power,
energy, industry, business, education and trade. In general a group of members forms a company, a
party or a team, and its leader makes the decisions. The state gives every person the same rights,
whatever their name, their color or their religion may be. The revolution changed the way in which
society thinks about freedom, and its history is written in many languages. Language models read
text as tokens. A tokenizer splits every word into tokens, and the same sentence has many
tokenizations. The model was trained on one of them and fails on others.
"""


def texts() -> list[str]:
    pages = [page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md"))]
    return [*[EVERYDAY] * WEIGHT, *pages, *(topics[name] for name in sorted(topics))]


if __name__ == "__main__":
    spec = json.loads(train_tokenizer(texts(), SIZE).to_str())
    spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    compact = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    Path(sys.argv[1]).write_text(compact + "\n", encoding="utf-8")
