// Checks numbers and their texts, which lines of vectors.tsv name.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { decode, encode } from './base62.mjs';

const vectors = readFileSync('vectors.tsv', 'utf8').trimEnd().split('\n').map((line) => line.split('\t'));
assert.ok(vectors.length > 5);
for (const [number, text] of vectors) {
  assert.equal(encode(number), text);
  assert.equal(decode(text), number);
}

for (const wrong of ['', '-1', String(2n ** 63n)]) assert.throws(() => encode(wrong), RangeError);
for (const wrong of ['', '0IQhh4u4pX', '00IQhh4u4pXQ', '0IQhh4u4pX-', '0IQhh4u4pX\n', 'AzL8n0Y58m8', 'z'.repeat(1e6)]) {
  assert.throws(() => decode(wrong), RangeError, wrong.slice(0, 20));
}
