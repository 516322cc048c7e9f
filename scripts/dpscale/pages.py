"""The frame of a page to read: HTML that needs nothing else."""

from __future__ import annotations

from html import escape


def html_page(title: str, style: str, body: str) -> str:
    """
    Args:
        title: of the window, as text.
        style: CSS.
        body: HTML, heading included.
    """
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
