"""Checks whether id sequences are canonical, where they are not, and returns the canonical ids.

For servers that take token ids, and for pipelines whose ids may drift from the encoding of their
text. It does not judge the text itself.
"""

from robustok.guard.audit import Audit as Audit
from robustok.guard.audit import Drift as Drift
from robustok.guard.audit import DriftPart as DriftPart
from robustok.guard.check import Guard as Guard
from robustok.guard.findings import NOT_CANONICAL as NOT_CANONICAL
from robustok.guard.findings import NOT_UTF8 as NOT_UTF8
from robustok.guard.findings import SPECIAL_ID as SPECIAL_ID
from robustok.guard.findings import SPECIAL_TEXT as SPECIAL_TEXT
from robustok.guard.findings import TEXT_CHANGES as TEXT_CHANGES
from robustok.guard.findings import UNKNOWN_ID as UNKNOWN_ID
from robustok.guard.findings import Finding as Finding
from robustok.guard.findings import Findings as Findings
from robustok.guard.findings import Verdict as Verdict
from robustok.guard.findings import Verdicts as Verdicts
from robustok.guard.findings import describe as describe
from robustok.guard.layouts import Rollout as Rollout
from robustok.guard.layouts import read_rollouts as read_rollouts
