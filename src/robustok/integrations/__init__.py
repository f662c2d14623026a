"""robustok inside other people's tools."""
