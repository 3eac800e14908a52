"""Values in text that follow the name of a secret: `password=...`, `"apiKey": "..."`, `--token ...`, `<pwd>...</`."""

import re
from collections.abc import Iterator

from fluvial.processors.secret_names import kind_of_name, secret_kind

_NEEDLES = (
    *("key", "secret", "passw", "passp", "passc", "_pass", "pwd", "phrase", "token", "mnemonic", "auth", "cookie"),
    *("credential", "seed", "jwt", "wif", "xprv", "sign", "priv", "words", '"pk"', '"sk"', "_pk", "_sk", "pk=", "sk="),
)
_QUOTE = r"\\*[\"'`]"
_NAME = re.compile(
    r"(?<![A-Za-z0-9])(?P<name>[A-Za-z][\w-]{0,63}+(?:[ .](?:[Kk]eys?|[Pp]hrase|[Tt]oken|[Ww]ords|[Ss]ecret)){0,2}+)"
    rf"(?:{_QUOTE})?\s{{0,3}}(?P<sign>:=|={{1,3}}>?|:|->)\s{{0,3}}",
    re.ASCII,
)
_OPENING = re.compile(rf"(?:\[\s{{0,3}})?(?P<quote>{_QUOTE})")
_BARE = re.compile(r"(?:(?:[Bb]earer|[Bb]asic|[Tt]oken) )?[^\s\"'`,;}\])\\]+")
_WORDS = re.compile(r"(?:[A-Za-z]{3,9}[ ,]{1,2}){11,23}[A-Za-z]{3,9}(?![A-Za-z])")
"""A seed phrase whose checksum may not hold."""
_LONGEST = 256
"""How far the end of a value is looked for before it is known to be a secret."""
_LINE = re.compile(
    r"(?m)^[ \t>-]{0,40}(?:export |set |env )?[\"']?(?P<name>[A-Za-z][\w.-]{0,80}+)[\"']?"
    r"(?P<sign>[ \t]{0,8}:[ \t]{1,8}|=)(?P<value>[^\s\"'`][^\n]{0,4000}+)",
    re.ASCII,
)
"""A line of YAML or of environment variables."""
_FLAG = re.compile(r"(?<![\w-])--?(?P<name>[a-zA-Z][\w-]{1,40}+)[ =][\"']?(?P<value>[^\s\"'-][^\s\"']{0,4000}+)")
_LISTED = re.compile(
    rf"{_QUOTE}(?P<name>--?[A-Za-z][\w-]{{1,40}}+|(?:proxy-)?authorization|x-[a-z-]{{1,40}}){_QUOTE}\s{{0,20}},\s{{0,20}}"
    rf"(?P<quote>{_QUOTE})(?P<value>[^\n]{{1,1000}}?)(?P=quote)",
    re.IGNORECASE,
)
"""An option of a command and its value as items of a list, or a header and its own."""
_PAIR = re.compile(
    rf"(?:name|key){_QUOTE}\s{{0,3}}:\s{{0,3}}{_QUOTE}(?P<name>[\w.-]{{1,80}}+){_QUOTE}\s{{0,20}},\s{{0,20}}{_QUOTE}value{_QUOTE}"
    rf"\s{{0,3}}:\s{{0,3}}(?P<quote>{_QUOTE})(?P<value>[^\n]{{1,1000}}?)(?P=quote)"
)
"""`"name": "API_KEY", "value": "..."`."""
_ELEMENT = re.compile(r"<(?P<name>[A-Za-z][\w.-]{1,60}+)>(?P<value>[^<>\n]{1,1000}+)</")
_REFERENCE = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+")
_CLOSED = re.compile(r"[,;)\]}](?:[\s,;)\]}]|$)")
_QUERY = re.compile(r"&[\w-]+=")
_CODE = re.compile(r"[A-Za-z_][\w.]*[(\[]")
_TYPES = {
    *("str", "string", "int", "integer", "bool", "boolean", "bytes", "text", "any", "object", "varchar", "secretstr"),
    *("missing", "invalid", "incorrect", "expired", "hidden", "unset", "empty", "yes", "no", "changeme"),
    *("secret", "password", "token"),
}

Found = tuple[int, int, str]


def may_name_secrets(lower: str) -> bool:
    """False where no name of a secret is in the text, which is given in lower case. Quick."""
    return any(map(lower.__contains__, _NEEDLES))


def named_secrets(text: str) -> Iterator[Found]:
    """Start, end and kind of each."""
    yield from _assigned(text)
    yield from _lines(text)
    if "-" in text:
        yield from _by_form(_FLAG, text)
    if "," in text:
        yield from _by_form(_LISTED, text)
        yield from _by_form(_PAIR, text)
    if "</" in text:
        yield from _by_form(_ELEMENT, text)


def _assigned(text: str) -> Iterator[Found]:
    reached = 0
    for name in _NAME.finditer(text):
        if name.start() < reached or kind_of_name(name["name"]) is None:
            continue
        opening = _OPENING.match(text, name.end())
        start = opening.end() if opening else name.end()
        quote = opening["quote"] if opening else ""
        end = _end_of_value(text, start, quote, start + _LONGEST)
        if name["sign"] == "=" and not quote and "&" in text[start:end]:
            end = text.index("&", start)
        kind = secret_kind(name["name"], text[start:end])
        if kind == "mnemonic" and not quote and (words := _WORDS.match(text, start)):
            yield start, words.end(), kind
            reached = words.end()
        elif kind and _is_value(text[start:end], name.group(), quoted=bool(quote)):
            if end - start == _LONGEST:
                end = _end_of_value(text, end, quote, len(text))
            yield start, end, kind
            reached = end


def _end_of_value(text: str, start: int, quote: str, limit: int) -> int:
    """Where the value ends: at its closing quote, else with its line; without quotes where the word ends."""
    if not quote:
        bare = _BARE.match(text, start, limit)
        return bare.end() if bare else start
    line = text.find("\n", start, limit)
    limit = min(limit, len(text)) if line < 0 else line
    end = text.find(quote, start, limit)
    while end > start and text[end - 1] == "\\":
        end = text.find(quote, end + 1, limit)
    return limit if end < 0 else end


def _is_value(value: str, before: str, quoted: bool) -> bool:
    """Whether this is a value, and not code or prose: without quotes it has a digit or follows `=` at once."""
    if quoted:
        return not _CLOSED.match(value)
    if set(value) & set("([{<$*") or _REFERENCE.fullmatch(value):
        return False
    return before.endswith("=") or (len(value) >= 4 and any(map(str.isdigit, value)))


def _lines(text: str) -> Iterator[Found]:
    for match in _LINE.finditer(text):
        known = kind_of_name(match["name"])
        if known is None or known.doubtful:
            continue
        value = match["value"].rstrip()
        if not secret_kind(match["name"], value):
            continue
        start, words = match.start("value"), value.split()
        if match["sign"] == "=":
            if not (_CODE.match(value) or _QUERY.search(value) or _REFERENCE.fullmatch(words[0].rstrip(",;)"))):
                yield start, start + len(words[0]), known.kind
        elif len(words) == 1:
            if value.lower() not in _TYPES and not set(value) & set("(){}[]<>,;|"):
                yield start, start + len(value), known.kind
        elif known.kind == "mnemonic" and len(words) >= 4 and all(word.isalpha() for word in words):
            yield start, start + len(value), known.kind


def _by_form(form: re.Pattern[str], text: str) -> Iterator[Found]:
    for match in form.finditer(text):
        kind = secret_kind(match["name"], match["value"])
        if kind:
            yield *match.span("value"), kind
