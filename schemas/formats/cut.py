"""Shortening of what others wrote, before it is redacted: of a secret across the end nothing may be left to store."""

import re

_WORD = re.compile(r'[^\s"]+')
_PHRASE = 64
"""Words: a numbered seed phrase has 48, a secret key as a list of bytes 64."""


def cut(text: str, most: int) -> str:
    """At most `most` characters of the text. A longer one ends before the word that would be split.

    A word is what has no white space and no double quotes in it. Of a text whose first word is longer than `most`
    nothing is left. Secrets of several words go too, as 64 words more are left out, but only where half of `most`
    remains: of a seed phrase across the end of a name of 256 characters the words before the end stay.

    >>> cut("the key is ghp_0123456789", 20)
    'the key is'
    """
    if len(text) <= most:
        return text
    end = most
    if _WORD.match(text, most):
        while end and _WORD.match(text, end - 1):
            end -= 1
    words = [word.start() for word in _WORD.finditer(text, most // 2, end)]
    if len(words) > _PHRASE:
        end = words[-_PHRASE]
    return text[:end].rstrip()
