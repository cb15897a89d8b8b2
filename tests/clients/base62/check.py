"""Checks numbers and their texts, which lines of vectors.tsv name."""

from pathlib import Path

from base62 import decode, encode

vectors = [line.split("\t") for line in Path("vectors.tsv").read_text().splitlines()]
assert len(vectors) > 5
for number, text in vectors:
    assert encode(int(number)) == text and decode(text) == int(number), (number, text, encode(int(number)))

for function, wrong in [(encode, -1), (encode, 2**63)] + [
    (decode, text) for text in ["", "0IQhh4u4pX", "00IQhh4u4pXQ", "0IQhh4u4pX-", "0IQhh4u4pX\n", "AzL8n0Y58m8", "z" * 10**6]
]:
    try:
        raise AssertionError(f"{function.__name__} has read {wrong!r} as {function(wrong)!r}")
    except ValueError:
        pass
