"""The lattice of all tokenizations of a text: counts, enumeration, distances, neighbors."""

from robustok.lattice.lattice import Lattice as Lattice
from robustok.lattice.lattice import check_spelled as check_spelled
from robustok.lattice.lattice import distance as distance
