"""Adapters of robustok to other libraries and servers."""
