"""Text in files: how its bytes are to be read, and how to give them back as they came."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

#: Bytes at the start of a file that show whether it is text, and by which its form is judged.
HEAD, MOST_SCANNED = 64 * 1024, 32 * 1024 * 1024

#: What text is read as that is not UTF-8: most of it is this, or as good as this.
_NOT_UTF8 = "windows-1252"
_TOLD = {_NOT_UTF8: f"read as {_NOT_UTF8}, since it is not UTF-8"}
#: UTF-32 begins as UTF-16 does.
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
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
#: Where Python puts bytes that are no characters, and how they are spelled.
_BYTES_AT = 0xDC00
_BYTE = re.compile("[\udc80-\udcff]")
_SPELLED = re.compile(r"\\x([89a-f][0-9a-f])")


class Form(NamedTuple):
    """How text is kept in a file, but for what it says."""

    encoding: str = "utf-8"
    bom: bool = False
    #: How its lines end, or most of them.
    end: str = "\n"
    #: Whether some end otherwise. Then the CR before a line's end is part of the text.
    mixed: bool = False
    #: Whether some of its bytes are no characters.
    broken: bool = False

    def __str__(self) -> str:
        marks = [_TOLD.get(self.encoding, self.encoding)] if self.encoding != "utf-8" else []
        marks += (
            ["some of its bytes are no characters, and shown like \\xff"] if self.broken else []
        )
        marks += ["with a byte order mark"] if self.bom else []
        ends = {"\r\n": "CRLF", "\r": "CR"}.get(self.end, "LF")
        if self.mixed:
            marks.append(f"mixed line endings, most of them {ends}")
        elif self.end != "\n":
            marks.append(f"{ends} line endings")
        return ", ".join(marks)


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


def form(chunks: Iterable[bytes]) -> Form:
    """How a text that comes in pieces is kept. One place cannot tell: all of it is looked at."""
    pieces = iter(chunks)
    head = next(pieces, b"")
    bom, encoding = next((one for one in _BOMS if head.startswith(one[0])), (b"", "utf-8"))
    errors = "surrogateescape" if encoding == "utf-8" else "replace"
    tally = _Tally()
    for text in _decoded(chain([head[len(bom) :]], pieces), encoding, errors):
        tally.add(text)
    # Text of another time has no characters of UTF-8 but by chance, and a damaged one has many.
    if not bom and tally.broken > tally.characters:
        return Form(_NOT_UTF8, False, *tally.ends)
    return Form(encoding, bool(bom), *tally.ends, tally.broken > 0)


class _Tally:
    """What there is in a text, counted piece by piece."""

    def __init__(self) -> None:
        self._last = ""
        self._lf = self._crlf = self._crcrlf = self._cr = 0
        #: Characters beyond ASCII, and bytes that are none.
        self.characters = self.broken = 0

    def add(self, text: str) -> None:
        self._lf += text.count("\n")
        self._cr += text.count("\r")
        # A line's end may be cut in two, or in three.
        self._crlf += (self._last[-1:] + text).count("\r\n")
        self._crcrlf += (self._last + text).count("\r\r\n")
        self._last = (self._last + text)[-2:]
        if not text.isascii():
            whole = len(text.encode("utf-8", "ignore").decode())
            self.broken += len(text) - whole
            self.characters += whole - len(text.encode("ascii", "ignore"))

    @property
    def ends(self) -> tuple[str, bool]:
        """How most lines end, and whether some do not end so."""
        if not self._lf:
            return ("\r" if self._cr else "\n"), False
        end = "\r\n" if 2 * self._crlf > self._lf else "\n"
        return end, 0 < self._crlf < self._lf or self._crcrlf > 0


def decode(data: bytes) -> tuple[str, Form]:
    """The whole of a text, its lines ending in LF unless they end in several ways, and its form.

    `encode` gives the same bytes back. Bytes that are no characters are lone surrogates meanwhile,
    which `spelled` makes fit to be shown. Raises UnicodeDecodeError if it is UTF-16 or UTF-32 and
    broken.
    """
    shape = form([data])
    text = data[len(_bom(shape)) :].decode(shape.encoding, _errors(shape.encoding))
    return (text if shape.mixed else text.replace(shape.end, "\n")), shape


def encode(text: str, shape: Form) -> bytes:
    """The bytes of a text in this form. Raises UnicodeEncodeError if they cannot be had."""
    ended = text if shape.mixed else text.replace("\n", shape.end)
    return _bom(shape) + ended.encode(shape.encoding, _errors(shape.encoding))


def _errors(encoding: str) -> str:
    return "strict" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"


def spelled(text: str) -> str:
    """The text with each byte that is no character spelled out, as a model is shown it."""
    if text.isascii():
        return text
    return _BYTE.sub(lambda found: f"\\x{ord(found[0]) - _BYTES_AT:02x}", text)


def as_shown(text: str) -> str:
    """The text as a model is shown it: each line ends in LF, and each byte is a character."""
    return spelled(text.replace("\r\n", "\n"))


def unspelled(text: str, among: str) -> str:
    """The text with what spells a byte turned into it again, if it is among these."""
    return _SPELLED.sub(
        lambda found: byte if (byte := chr(_BYTES_AT + int(found[1], 16))) in among else found[0],
        text,
    )


def fitted(text: str, shape: Form) -> tuple[str, Form]:
    """A text from elsewhere that is to be kept in this form, without what that brings anyway."""
    plain = text.removeprefix("\ufeff") if shape.bom else text
    whole = shape._replace(broken=False, mixed=False)
    if shape.mixed and "\r" in text:
        # Who wrote some knows where they belong.
        return plain, whole._replace(end="\n")
    return (plain if shape.end == "\n" else plain.replace("\r\n", "\n")), whole


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
    pieces = iter(chunks)
    first = next(pieces, b"")[len(_bom(shape)) :]
    for text in _decoded(chain([first], pieces), shape.encoding, "backslashreplace"):
        yield text.replace("\r", "\n") if shape.end == "\r" else text


def _decoded(chunks: Iterable[bytes], encoding: str, errors: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    size = 0
    for chunk in chunks:
        size += len(chunk)
        yield decoder.decode(chunk)
    # Where no more of a file is looked at its last character may be cut in two.
    if size < MOST_SCANNED:
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
