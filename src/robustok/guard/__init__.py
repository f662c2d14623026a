"""Is this id sequence canonical? How far off is it, where, and what is it repaired?

For servers that take token ids, and for pipelines whose ids may drift from what their text would
be encoded to. What it does not do: judge the text itself.
"""

from robustok.guard.audit import Audit as Audit
from robustok.guard.audit import Drift as Drift
from robustok.guard.check import Guard as Guard
from robustok.guard.sequences import read_sequences as read_sequences
from robustok.guard.verdict import NOT_CANONICAL as NOT_CANONICAL
from robustok.guard.verdict import NOT_UTF8 as NOT_UTF8
from robustok.guard.verdict import SPECIAL_ID as SPECIAL_ID
from robustok.guard.verdict import SPECIAL_TEXT as SPECIAL_TEXT
from robustok.guard.verdict import TEXT_CHANGES as TEXT_CHANGES
from robustok.guard.verdict import UNKNOWN_ID as UNKNOWN_ID
from robustok.guard.verdict import Finding as Finding
from robustok.guard.verdict import Verdict as Verdict
from robustok.guard.verdict import Verdicts as Verdicts
from robustok.guard.verdict import tell as tell
