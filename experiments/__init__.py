"""What the paper claims and what was measured: see README.md. No part of the package."""
