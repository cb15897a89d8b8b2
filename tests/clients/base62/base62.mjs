const symbols = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

export function encode(id) {
  const number = BigInt(id);
  if (!/^\d+$/.test(id) || number >= 2n ** 63n) throw new RangeError(`${id} is not an id`);
  return Array.from({ length: 11 }, (_, n) => symbols[(number / 62n ** BigInt(10 - n)) % 62n]).join('');
}

export function decode(text) {
  const id = [...text.slice(0, 11)].reduce((id, symbol) => id * 62n + BigInt(symbols.indexOf(symbol)), 0n);
  if (!/^[0-9A-Za-z]{11}$/.test(text) || id >= 2n ** 63n) throw new RangeError(`${text} is not the text of an id`);
  return String(id);
}
