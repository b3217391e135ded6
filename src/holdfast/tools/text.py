"""Text in files: how its bytes are to be read, and how to give them back as they came."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: Bytes at the start of a file by which it is judged.
HEAD = 64 * 1024

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive, or a document or package in one"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"\x7fELF", "ELF program or library"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program or library"),
    (b"MZ", "Windows program or library"),
    (b"\x00asm", "WebAssembly module"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"OggS", "Ogg media"),
    (b"RIFF", "RIFF media"),
    (b"ID3", "MP3 audio"),
)
#: What text hardly ever holds, in the encodings whose bytes are its characters.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\f\r\x1b"))

#: What would not show as itself on a line of output, or would break it in two.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


class Form(NamedTuple):
    """How text is kept in a file, but for what it says."""

    encoding: str = "utf-8"
    bom: bool = False
    #: Whether each of its lines ends in CR LF. Where only some do, the CR is part of the line.
    crlf: bool = False

    def __str__(self) -> str:
        name = {"latin-1": "read as latin-1, since it is not UTF-8"}.get(
            self.encoding, self.encoding
        )
        marks = [name] if self.encoding != "utf-8" else []
        marks += ["with a byte order mark"] if self.bom else []
        return ", ".join([*marks, *(["CRLF line endings"] if self.crlf else [])])


def kind(head: bytes) -> str:
    """What a file is if it is not text, by how it begins; "" if it is text."""
    if any(head.startswith(bom) for bom, _ in _BOMS):
        return ""
    for start, name in _MAGIC:
        # Two letters may begin a text as well, a signature with odd bytes in it may not.
        if head.startswith(start) and (len(start) > 3 or not _is_text(head)):
            return name
    if head[4:8] == b"ftyp":
        return "MP4 media"
    if head[257:262] == b"ustar":
        return "tar archive"
    return "" if _is_text(head) else "binary data"


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    if _is_utf8(head):
        return True
    return sum(head.count(one) for one in _CONTROL) * 20 <= len(head)


def _is_utf8(head: bytes) -> bool:
    try:
        # Not final: the last character may be cut in two.
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def form(head: bytes) -> Form:
    """How this text is kept, as far as its beginning shows."""
    plain = (b"", "utf-8" if _is_utf8(head) else "latin-1")
    bom, encoding = next((one for one in _BOMS if head.startswith(one[0])), plain)
    text = head[len(bom) :].decode(encoding, "replace")
    ends = text.count("\n")
    crlf = 0 < ends == text.count("\r\n") and "\r\r\n" not in text
    return Form(encoding, bool(bom), crlf)


def decode(data: bytes) -> tuple[str, Form]:
    """The whole of a text, its lines ending in LF if they all ended in CR LF, and its form.

    `encode` gives the same bytes back. Raises UnicodeDecodeError if it is UTF-16 and broken.
    """
    shape = form(data)
    body = data[len(_bom(shape)) :]
    try:
        text = body.decode(shape.encoding)
    except UnicodeDecodeError:
        if shape.encoding != "utf-8":
            raise
        # The last character is cut in two.
        shape = shape._replace(encoding="latin-1", bom=False)
        text = data.decode("latin-1")
    return (text.replace("\r\n", "\n") if shape.crlf else text), shape


def encode(text: str, shape: Form) -> bytes:
    """The bytes of a text in this form. Raises UnicodeEncodeError if they cannot be had."""
    ended = text.replace("\n", "\r\n") if shape.crlf else text
    return _bom(shape) + ended.encode(shape.encoding)


def fitted(text: str, shape: Form) -> str:
    """A text from elsewhere without what its new form brings anyway."""
    plain = text.removeprefix("\ufeff") if shape.bom else text
    return plain.replace("\r\n", "\n") if shape.crlf else plain


def _bom(shape: Form) -> bytes:
    return next(bom for bom, name in _BOMS if name == shape.encoding) if shape.bom else b""


class Line(NamedTuple):
    """A line of a file: as much of it as is kept, how long it is, and whether it was ended."""

    text: str
    length: int
    ended: bool


def lines_of(chunks: Iterable[bytes], shape: Form, width: int) -> Iterator[Line]:
    """The lines of a file that comes in pieces. No more than `width` characters of one are kept."""
    kept, length = "", 0
    for text in _texts(chunks, shape):
        pieces = text.split("\n")
        for piece in pieces[:-1]:
            yield _line(kept + piece[: width + 1], length + len(piece), width, ended=True)
            kept, length = "", 0
        # One more than is shown: the CR before a line's end does not count.
        kept, length = (kept + pieces[-1])[: width + 1], length + len(pieces[-1])
    if length:
        yield _line(kept, length, width, ended=False)


def _texts(chunks: Iterable[bytes], shape: Form) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(shape.encoding)("backslashreplace")
    skip = len(_bom(shape))
    for chunk in chunks:
        yield decoder.decode(chunk[skip:])
        skip = 0
    yield decoder.decode(b"", final=True)


def _line(text: str, length: int, width: int, *, ended: bool) -> Line:
    if ended and len(text) == length and text.endswith("\r"):
        text, length = text[:-1], length - 1
    return Line(text[:width], length, ended)


def numbered(number: int, line: Line) -> str:
    """The line as a model is shown it."""
    more = line.length - len(line.text)
    cut = f" [… {more:,} more characters on this line]" if more else ""
    return f"{number:>6}\t{line.text}{cut}"


def shown(name: str) -> str:
    """A name on one line, with what would not show as itself spelled out."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), name)


def count(number: int, what: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
