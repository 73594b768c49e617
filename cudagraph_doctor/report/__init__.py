"""Renderers: a report in, text out."""
