SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def encode(id):
    if not 0 <= id < 2**63:
        raise ValueError(f"{id} is not an id")
    return "".join(SYMBOLS[id // 62**place % 62] for place in reversed(range(11)))


def decode(text):
    id = sum(SYMBOLS.index(symbol) * 62**place for place, symbol in enumerate(reversed(text[:11])))
    if len(text) != 11 or id >= 2**63:
        raise ValueError(f"{text!r} is not the text of an id")
    return id
