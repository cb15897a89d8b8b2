// Decodes ids by the expressions of docs/decode.md, as engines/decode.py does for the engines in Python.

import fs from 'node:fs';

const rows = (name) => fs.readFileSync(name, 'utf8').trimEnd().split('\n').map((line) => line.split('\t'));
const shown = (value) => (value instanceof Date ? value.toISOString() : String(value));

const ids = rows('ids.tsv');
for (const [layout, wanted, expression] of rows('expressions.tsv')) {
  const evaluate = new Function('id', `return ${expression}`);
  if (wanted.startsWith('first id')) {
    console.log([layout, wanted, '', shown(evaluate())].join('\t'));
  } else {
    // Programs read ids as strings.
    for (const [, id] of ids.filter((row) => row[0] === layout)) {
      console.log([layout, wanted, id, shown(evaluate(id))].join('\t'));
    }
  }
}
