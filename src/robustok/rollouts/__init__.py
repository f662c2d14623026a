"""Token ids of rollouts: align two tokenizations, build conversations without re-encoding, compare.

For pipelines whose policy samples ids while trainers, rewards and tools see text.
"""

from robustok.rollouts.alignment import Alignment as Alignment
from robustok.rollouts.alignment import align as align
from robustok.rollouts.prefixes import PrefixCheck as PrefixCheck
from robustok.rollouts.prefixes import prefix_of as prefix_of
from robustok.rollouts.stitching import Stitched as Stitched
from robustok.rollouts.stitching import stitch as stitch
