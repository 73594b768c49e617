"""The rule pages, one Markdown file a code."""
