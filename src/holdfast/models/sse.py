"""Server-sent events, taken out of bytes as they arrive. Pure: somebody else does the reading.

It keeps to the rules of the WHATWG for event streams, but leaves data as bytes. Whatever the
other side sends, what is held here stays within the limits below.
"""

from __future__ import annotations

from holdfast.errors import BadReply
from holdfast.models.wire import ServerEvent

#: Bytes of data in one event, of one line, and of a whole stream.
MOST_DATA = 1024 * 1024
MOST_LINE = 8 * 1024 * 1024
MOST_BYTES = 64 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_CR = b"\r"[0]
_ENDS = b"\r\n"


class Decoder:
    """One stream. An event that is unfinished when the stream ends is none."""

    def __init__(self) -> None:
        self._total = 0
        self._first = True
        self._after_cr = False
        #: Nothing is left of the pieces before.
        self._at_rest = False
        #: The line that has not ended yet.
        self._rest = bytearray()
        #: The event that has not ended yet.
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0

    def plain(self, piece: bytes) -> list[bytes]:
        """The data of the events in this piece, if it is made of nothing but whole ones without a name,
        as most are; else nothing, and then it is to be fed. Raises BadReply, too_large."""
        found = _plain(piece) if self._at_rest else []
        if found:
            self._count(piece)
        return found

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that this piece completes. Raises BadReply, too_large."""
        events: list[ServerEvent] = []
        for line in self._lines(piece):
            if line[:5] == b"data:":
                # One space after the colon belongs to the colon.
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif line:
                self._note(line)
            else:
                if self._data:
                    events.append(ServerEvent(self._kind, b"\n".join(self._data)))
                    self._data, self._size = [], 0
                self._kind = ""
        self._at_rest = not (self._rest or self._data or self._after_cr or self._kind)
        return events

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that this piece ends, whatever they began with."""
        self._count(piece)
        if self._after_cr and piece:
            # CR and LF end one line together, even when they arrive apart.
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if not piece:
            return []
        lines = piece.splitlines()
        self._after_cr = piece[-1] == _CR
        rest = b"" if piece[-1] in _ENDS else lines.pop()
        room = MOST_LINE - len(self._rest) - len(piece)
        if lines and (self._rest or self._first):
            lines[0] = self._opening(lines[0])
        if rest:
            self._rest += rest
        if room < 0 and max(len(self._rest), *map(len, lines), 0) > MOST_LINE:
            raise _too_large("a line of the reply", MOST_LINE)
        return lines

    def _count(self, piece: bytes) -> None:
        self._total += len(piece)
        if self._total > MOST_BYTES:
            raise _too_large("the reply", MOST_BYTES)

    def _opening(self, line: bytes) -> bytes:
        """The line with what came of it before."""
        line = bytes(self._rest) + line
        self._rest = bytearray()
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        return line

    def _note(self, line: bytes) -> None:
        """Take in a line that is not the usual one. A comment is a field without a name."""
        field, _, value = line.partition(b":")
        if field == b"data":
            self._add(b"")
        elif field == b"event":
            self._kind = value.removeprefix(b" ").decode("utf-8", "replace")

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data) + 1
        if self._size > MOST_DATA + 1:
            raise _too_large("an event of the reply", MOST_DATA)


def _plain(piece: bytes) -> list[bytes]:
    """The data of each event if all are whole and in the plainest form, as in most pieces of most
    streams; else nothing."""
    if piece[:6] != b"data: " or piece[-2:] != b"\n\n" or _CR in piece or len(piece) > MOST_DATA:
        return []
    found = piece[6:-2].split(b"\n\ndata: ")
    return found if piece.count(b"\n") == 2 * len(found) else []


def _too_large(what: str, limit: int) -> BadReply:
    return BadReply(f"{what} is larger than {limit // (1024 * 1024)} MiB", reason="too_large")
